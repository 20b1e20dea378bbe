import copy
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.optim import AdamW

from models import corpus, lm, training
from models.config import parse
from models.optimizers import AdamH, MuonH
from models.training import Batches, Evaluation, lr_factor

Config = dict[str, Any]


def test_training_learns_and_reports(config: Config, fake_run: Any) -> None:
    run = fake_run()
    lm.train(config | {"steps": 60, "log_every": 10, "eval": {"tokens": 512, "every": 30}}, run)
    assert [step for step, _ in run.logs] == [10, 20, 30, 40, 50, 60]
    assert [step for step, values in run.logs if "val_loss" in values] == [30, 60]
    losses = [values["train_loss"] for _, values in run.logs]
    assert losses[-1] < losses[0] - 0.5
    assert run.val_loss < math.log(run.facts["vocab_size"]) - 0.8
    assert run.reason is None


def test_the_summary_counts(config: Config, fake_run: Any) -> None:
    run = fake_run()
    lm.train(config, run)
    estimate = lm.estimate(config)
    assert run.facts["n_params"] == estimate.n_params
    assert run.facts["flops"] == estimate.flops
    assert run.facts["tokens"] == estimate.tokens == 12 * 4 * 32
    assert run.facts["n_params"] - run.facts["n_params_non_embedding"] == 16 * run.facts["vocab_size"]
    assert run.facts["corpus_sha256"] == corpus.load("topics").sha256
    rates = [0.05 * (1 - 0.9 * step / 12) for step in range(12)]
    assert run.facts["sum_lr"] == pytest.approx(sum(rates))


@pytest.mark.parametrize("rule", ["hyperp", "standard", "mup"])
def test_the_result_depends_on_the_configuration_alone(config: Config, fake_run: Any, rule: str) -> None:
    config["parametrization"] = rule
    one, two = fake_run(), fake_run()
    lm.train(config, one)
    lm.train(lm.resolve(config), two)
    assert one.logs == two.logs
    other = fake_run()
    lm.train(config | {"seed": 1}, other)
    assert other.val_loss != one.val_loss


@pytest.mark.parametrize("name", ["hyperp", "standard", "muon", "adamh"])
@pytest.mark.parametrize("stop_at", [1, 5, 11])
def test_a_stopped_and_restored_run_ends_bitwise_alike(
    config: Config, fake_run: Any, stop: type[BaseException], name: str, stop_at: int
) -> None:
    if name in ("muon", "adamh"):
        config["optim"] |= {"name": name}
    config["parametrization"] = "hyperp" if name == "hyperp" else "standard"
    whole, first = fake_run(), fake_run(stop_at=stop_at)
    lm.train(config, whole)
    with pytest.raises(stop):
        lm.train(config, first)
    second = fake_run(first.state)
    lm.train(config, second)
    assert first.logs + second.logs == whole.logs


def test_the_checkpoint_is_plain(config: Config, fake_run: Any, stop: type[BaseException]) -> None:
    run = fake_run(stop_at=3)
    with pytest.raises(stop):
        lm.train(config, run)

    def check(value: Any) -> None:
        if isinstance(value, dict):
            assert all(isinstance(key, str) for key in value)
            value = list(value.values())
        if isinstance(value, list):
            for each in value:
                check(each)
        else:
            assert isinstance(value, torch.Tensor | int | float | str | None)

    check(run.state)
    assert run.state["step"] == 3
    assert math.isfinite(json.loads(json.dumps(run.state["loss_sum"])))


@pytest.mark.parametrize(("rule", "rate"), [("standard", 1e30), ("standard", 300.0)])
def test_a_lost_run_is_marked_and_stops(config: Config, fake_run: Any, rule: str, rate: float) -> None:
    run = fake_run()
    lm.train(config | {"parametrization": rule, "optim": {"lr": rate}, "steps": 200}, run)
    assert run.reason is not None
    assert run.logs[-1][0] < 200
    assert "val_loss" in run.logs[-1][1]


def test_nan_is_logged_not_hidden(config: Config, fake_run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("models.transformer.Transformer.loss", lambda self, *_: self.norm.weight.sum() * math.nan)
    run = fake_run()
    lm.train(config, run)
    assert run.reason == "training loss is nan at step 1"
    step, values = run.logs[0]
    assert step == 1
    assert math.isnan(values["train_loss"])
    assert math.isnan(values["val_loss"])


def test_another_corpus_than_the_frozen_one_is_refused(config: Config, fake_run: Any, tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    path.write_text("some text to learn from\n" * 200)
    resolved = lm.resolve(config | {"corpus": str(path)})
    lm.train(resolved, fake_run())
    path.write_text("another text to learn from\n" * 200)
    corpus.reload(str(path))
    with pytest.raises(corpus.CorpusError, match="is not the one of this run: its sha256 is"):
        lm.train(resolved, fake_run())
    path.write_text("some text to learn from\n" * 200)  # put back: the process looks again
    lm.train(resolved, fake_run())


def test_optimizers_follow_the_groups(config: Config) -> None:
    resolved = lm.resolve(config)
    model = training.build(resolved)
    made = training.optimizers(model, resolved)
    assert [type(each) for each in made] == [MuonH, AdamW, AdamH]
    assert [len(each.param_groups) for each in made] == [1, 2, 1]
    standard = lm.resolve(config | {"parametrization": "standard"})
    (adamw,) = training.optimizers(training.build(standard), standard)
    assert [group["weight_decay"] for group in adamw.param_groups] == [0.1, 0.1, 0.1, 0.0]
    assert {group["peak_lr"] for group in adamw.param_groups} == {0.05}


def test_radii_are_kept_through_training(config: Config, fake_run: Any, stop: type[BaseException]) -> None:
    start = training.build(lm.resolve(config)).state_dict()
    run = fake_run(stop_at=12)
    with pytest.raises(stop):
        lm.train(config, run)
    for name, weight in run.state["model"].items():
        if weight.ndim == 2 and "embedding" not in name:
            assert float(weight.norm()) == pytest.approx(float(start[name].norm()), rel=1e-6)
            assert not torch.equal(weight, start[name])


# The data.


def test_an_epoch_has_every_window_once_and_tokens_are_targets() -> None:
    tokens = np.arange(10 * 8 + 1, dtype=np.uint8)
    batches = Batches(tokens, context=8, batch=5, seed=0)
    inputs, targets = zip(*(batches(step) for step in range(2)), strict=True)
    assert torch.equal(torch.cat(targets).flatten().sort().values, torch.arange(1, 81))
    assert torch.equal(torch.cat(inputs) + 1, torch.cat(targets))


def test_batches_depend_on_seed_and_step_alone() -> None:
    tokens = np.random.default_rng(0).integers(0, 90, 1000).astype(np.uint8)
    forward, backward = Batches(tokens, 8, 3, seed=5), Batches(tokens, 8, 3, seed=5)
    first = [forward(step)[0] for step in range(100)]  # more than two epochs
    for step in reversed(range(100)):
        assert torch.equal(backward(step)[0], first[step])
    assert not torch.equal(Batches(tokens, 8, 3, seed=6)(0)[0], first[0])


@given(size=st.integers(9, 400), context=st.integers(1, 8), batch=st.integers(1, 7), step=st.integers(0, 300))
def test_batches_stay_inside_the_text(size: int, context: int, batch: int, step: int) -> None:
    tokens = np.arange(size, dtype=np.uint16)
    inputs, targets = Batches(tokens, context, batch, seed=1)(step)
    assert inputs.shape == targets.shape == (batch, context)
    assert torch.equal(targets, inputs + 1)
    assert 0 <= int(inputs.min()) <= int(targets.max()) < size


def test_evaluation_spreads_over_the_text_and_counts_its_tokens(config: Config) -> None:
    parsed = parse(config | {"eval": {"tokens": 100, "batch": 3}})
    evaluation = Evaluation(np.arange(10_000, dtype=np.uint16), parsed, torch.device("cpu"))
    assert evaluation.tokens == 4 * 32  # whole windows
    starts = torch.cat(evaluation.inputs)[:, 0]
    assert starts.tolist() == [0, 78 * 32, 156 * 32, 234 * 32]
    assert len(evaluation.inputs) == 2


def test_evaluation_is_the_mean_over_tokens_whatever_the_batch(config: Config) -> None:
    model = training.build(lm.resolve(config))
    data = corpus.load("topics").validation
    losses = [
        Evaluation(data, parse(config | {"eval": {"tokens": 320, "batch": batch}}), torch.device("cpu"))(model)
        for batch in (1, 3, 10)
    ]
    assert losses == pytest.approx([losses[0]] * 3, rel=1e-6)


# The schedule.


def test_linear_decay_of_the_published_runs() -> None:
    # lr_t = lr (1 - 0.9 t / T), no warm-up.
    assert [lr_factor(t, 10, 0.0, 1.0, 0.1) for t in range(10)] == pytest.approx([1 - 0.09 * t for t in range(10)])


def test_warmup_plateau_and_decay() -> None:
    factors = [lr_factor(t, 10, 0.2, 0.5, 0.0) for t in range(10)]
    assert factors == pytest.approx([0.5, 1.0, 1.0, 1.0, 1.0, 1.0, 0.8, 0.6, 0.4, 0.2])


@given(steps=st.integers(1, 500), warmup=st.floats(0, 1), decay=st.floats(0, 1), final=st.floats(0, 1))
def test_the_factor_is_a_share(steps: int, warmup: float, decay: float, final: float) -> None:
    assert all(0.0 <= lr_factor(t, steps, warmup, decay, final) <= 1.0 + 1e-12 for t in range(steps))


def test_threads_are_those_of_the_run(config: Config, fake_run: Any) -> None:
    run = fake_run()
    run.threads = 1
    lm.train(copy.deepcopy(config), run)
    assert torch.get_num_threads() == 1
