import copy
import math
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from models import corpus, lm
from models.config import parse

Config = dict[str, Any]


def groups(config: Config) -> dict[str, dict[str, Any]]:
    result: dict[str, dict[str, Any]] = lm.resolve(config)["resolved"]["groups"]
    return result


def changed(config: Config, **sections: Any) -> Config:
    result = copy.deepcopy(config)
    for name, value in sections.items():
        result[name] = {**result.get(name, {}), **value} if isinstance(value, dict) else value
    return result


def test_hyperp_groups_as_numbers(config: Config) -> None:
    found = groups(changed(config, model={"width": 64}))
    assert {name: group["optimizer"] for name, group in found.items()} == {
        "hidden": "muonh",
        "embedding": "adamw",
        "head": "adamh",
        "vector": "adamw",
    }
    assert {group["lr"] for group in found.values()} == {0.05}
    assert {group["weight_decay"] for group in found.values()} == {0.0}
    assert found["hidden"]["init_std"] == pytest.approx(1 / math.sqrt(3 * 64))
    assert found["head"]["init_std"] == pytest.approx(1 / 8)


def test_standard_groups_as_numbers(config: Config) -> None:
    found = groups(changed(config, parametrization="standard", model={"width": 64}))
    assert {group["optimizer"] for group in found.values()} == {"adamw"}
    decays = {name: group["weight_decay"] for name, group in found.items()}
    assert decays == {"hidden": 0.1, "embedding": 0.1, "head": 0.1, "vector": 0.0}
    assert {group["init_std"] for name, group in found.items() if name != "vector"} == {0.02}


def test_mup_scales_from_its_base(config: Config) -> None:
    found = groups(changed(config, parametrization="mup", model={"width": 64}))
    assert found["hidden"]["lr"] == pytest.approx(0.05 / 4)
    assert found["hidden"]["init_std"] == pytest.approx(0.01)
    assert found["head"]["multiplier"] == pytest.approx(1 / 4)
    assert found["embedding"]["lr"] == found["head"]["lr"] == found["vector"]["lr"] == 0.05


def test_scales_per_group(config: Config) -> None:
    scaled = changed(config, optim={"lr_scale": {"embedding": 0.5}}, init_scale={"head": 0.64})
    assert groups(scaled)["embedding"]["lr"] == 0.025
    assert groups(scaled)["head"]["init_std"] == pytest.approx(0.64 / 4)


def test_depth_and_horizon_scale_only_when_the_base_names_them(config: Config) -> None:
    deep = changed(config, model={"depth": 8})
    assert groups(deep)["hidden"]["lr"] == 0.05
    assert groups(changed(deep, base={"depth": 2}))["hidden"]["lr"] == pytest.approx(0.025)
    tokens = 12 * 4 * 32
    assert groups(changed(config, base={"tokens": tokens / 2}))["head"]["lr"] == pytest.approx(0.05 * 2**-0.32)
    assert groups(changed(config, base={"batch_tokens": 32}))["head"]["lr"] == pytest.approx(0.1)


def test_resolving_is_idempotent_and_does_not_change_its_input(config: Config) -> None:
    before = copy.deepcopy(config)
    resolved = lm.resolve(config)
    assert config == before
    assert lm.resolve(resolved) == resolved


def test_spellings_of_one_run_resolve_alike(config: Config) -> None:
    by_tokens = {key: value for key, value in config.items() if key != "steps"} | {"tokens": 12 * 4 * 32.0 + 20}
    assert lm.resolve(by_tokens) == lm.resolve(config)
    assert lm.resolve(changed(config, model={"width": 16.0})) == lm.resolve(config)
    assert lm.resolve(changed(config, optim={"name": "muonh"}, seed=0)) == lm.resolve(config)


def test_a_frozen_run_keeps_its_numbers(config: Config) -> None:
    resolved = copy.deepcopy(lm.resolve(config))
    resolved["resolved"]["groups"]["hidden"]["lr"] = 0.123  # what an older version had frozen
    assert groups(resolved)["hidden"]["lr"] == 0.123


def test_a_run_of_another_version_is_refused(config: Config) -> None:
    resolved = lm.resolve(config)
    resolved["resolved"]["version"] = 99
    with pytest.raises(ValueError, match=r"resolved\.version: got 99"):
        lm.resolve(resolved)


@pytest.mark.parametrize(
    ("sections", "text"),
    [
        ({"modl": {}}, "modl: unknown key; did you mean 'model'"),
        ({"model": {"widht": 3}}, "model.widht: unknown key; did you mean 'width'"),
        ({"optim": {"xyzzy": 3}}, "optim.xyzzy: unknown key; known: name, lr,"),
        ({"optim": {"lr_scale": {"heads": 3}}}, "optim.lr_scale.heads: unknown key; did you mean 'head'"),
        ({"optim": {"lr": "fast"}}, "optim.lr: got 'fast'; expected a number"),
        ({"optim": {"lr": 0}}, "optim.lr: got 0; Input should be greater than 0"),
        ({"optim": {"lr": math.inf}}, "optim.lr: got inf; expected a finite number"),
        ({"optim": {"lr": None}}, "optim.lr: missing"),
        ({"optim": {"name": "adam"}}, "optim.name: got 'adam'; Input should be 'auto', 'adamw'"),
        ({"optim": {"name": "adamw"}}, "optim.name: got 'adamw', but rule 'hyperp' is derived for muonh"),
        ({"optim": {"weight_decay": 0.1}}, r"optim.weight_decay: got 0.1 with 'muonh'; .*lr / \(1 - lr wd\)"),
        ({"parametrization": "hyprep"}, "unknown parametrization 'hyprep': did you mean 'hyperp'"),
        ({"tokenizer": "bpe"}, "tokenizer: got 'bpe'; Input should be 'chars' or 'bytes'"),
        ({"steps": True}, "steps: got True; expected a whole number"),
        ({"steps": 1.5}, "steps: got 1.5"),
        ({"steps": None}, r"steps: missing \(or give tokens\)"),
        ({"tokens": 100}, "steps and tokens: 12 steps of 4 x 32 tokens are 1536 tokens, not 100"),
        ({"model": {"width": 20}}, "model.width: 20 is no multiple of model.head_dim 8"),
        ({"model": {"head_dim": 1}}, "model.head_dim: 1 is odd"),
        ({"model": {"n_heads": 3, "kv_heads": 2}}, "model.kv_heads: 2 does not divide the 3 heads"),
        ({"context": 10**6}, "corpus 'topics' is too small: it has .* training tokens"),
        ({"device": "gpu"}, "device: got 'gpu'"),
    ],
)
def test_errors_name_the_key(config: Config, sections: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        lm.resolve(changed(config, **sections))


def test_a_missing_section_and_a_missing_corpus(config: Config) -> None:
    with pytest.raises(ValueError, match=r"^model: missing$"):
        lm.resolve({})
    with pytest.raises(corpus.CorpusError, match=r"corpus '\./nowhere' is no file or folder"):
        lm.resolve(changed(config, corpus="./nowhere"))


def test_estimate_counts_the_published_models() -> None:
    # arXiv 2603.28743: N = 16 w^2 d + 1024 w d + 64000 w with w = 128 d, and its FLOPs per token.
    published = {8: (208142336, 2.054160e9), 16: (1238368256, 1.065144e10), 24: (3895984128, 3.062366e10)}
    from models import cost

    for depth, (n, flops) in published.items():
        width = 128 * depth
        model = {"width": width, "depth": depth, "head_dim": 128, "n_heads": 2 * depth, "kv_heads": 4, "ffn_ratio": 4}
        config = parse({"model": model, "context": 4096})
        counts = cost.parameters(config, 32000)
        assert counts["hidden"] + counts["embedding"] + counts["head"] == n
        with_lookup = cost.flops_per_token(config, 32000) + 6 * counts["embedding"]  # they count it as a product
        assert with_lookup == pytest.approx(flops, rel=1e-6)


def test_estimate_of_resolved_and_unresolved_agree(config: Config) -> None:
    assert lm.estimate(config) == lm.estimate(lm.resolve(config))
    assert lm.estimate(config).tokens == 12 * 4 * 32


def test_estimate_without_a_length_or_rate(config: Config) -> None:
    open_ended = {key: value for key, value in config.items() if key not in ("steps", "optim")}
    cost = lm.estimate(open_ended)
    assert cost.n_params == lm.estimate(config).n_params
    assert (cost.flops, cost.tokens, cost.bytes) == (None, None, None)


def test_resolve_and_estimate_are_fast_and_light(config: Config, tmp_path: Path) -> None:
    script = tmp_path / "light.py"
    script.write_text(f"""
import sys, time
from models import lm
config = {config!r}
lm.resolve(config), lm.estimate(config)
def best(call):
    times = []
    for _ in range(200):
        start = time.perf_counter(); call(config); times.append(time.perf_counter() - start)
    return min(times)
assert max(best(lm.resolve), best(lm.estimate)) < 300e-6, (best(lm.resolve), best(lm.estimate))
heavy = {{"torch", "optuna", "plotly", "scipy", "sympy"}} & set(sys.modules)
assert not heavy, heavy
""")
    start = time.perf_counter()
    subprocess.run([sys.executable, str(script)], check=True)
    assert time.perf_counter() - start < 10
