"""The training loop of a language model: one process, one device, resumable to the bit."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import AdamW, Optimizer

from models import corpus, cost
from models.config import Config, parse
from models.optimizers import AdamH, Muon, MuonH
from models.transformer import Shape, Transformer, initialise

State = dict[str, Any]


class Run(Protocol):
    """What the loop needs of a run handle."""

    threads: int
    device: str

    def log(self, step: int, /, **values: float) -> None: ...
    def summary(self, **values: Any) -> None: ...
    def checkpoint(self, state: Callable[[], State], *, step: int) -> None: ...
    def restore(self) -> State | None: ...
    def diverged(self, reason: str) -> None: ...


def lr_factor(step: int, steps: int, warmup: float, decay: float, final: float) -> float:
    """Learning rate of step 0, 1, ... steps - 1, relative to its peak.

    Rises linearly over the first `warmup` share of the steps (the last of them reaches the peak), falls
    linearly over the last `decay` share towards `final`, which it would reach one step after the end.
    """
    rise, fall = round(warmup * steps), decay * steps
    up = (step + 1) / rise if step < rise else 1.0
    done = max(0.0, (step - (steps - fall)) / fall) if fall else 0.0
    return up * (1.0 - (1.0 - final) * done)


class Batches:
    """Training windows in a seeded order, each once per epoch; a new epoch shifts and reshuffles them.

    A batch depends on (seed, step) alone, so there is no position to save.
    """

    def __init__(self, tokens: corpus.Tokens, context: int, batch: int, seed: int) -> None:
        self.tokens, self.context, self.batch, self.seed = tokens, context, batch, seed
        self.windows = (len(tokens) - 1) // context
        self._epoch = -1
        self._starts = np.empty(0, np.int64)

    def __call__(self, step: int) -> tuple[Tensor, Tensor]:
        """Inputs and targets of one step, both int64 [batch, context]."""
        first = step * self.batch
        starts = np.array([self._start(i) for i in range(first, first + self.batch)])
        return windows(self.tokens, starts, self.context)

    def _start(self, index: int) -> int:
        epoch, place = divmod(index, self.windows)
        if epoch != self._epoch:
            random = np.random.default_rng((self.seed, epoch))
            slack = (len(self.tokens) - 1) % self.context
            offset = int(random.integers(slack + 1))
            self._starts = random.permutation(self.windows) * self.context + offset
            self._epoch = epoch
        return int(self._starts[place])


def windows(tokens: corpus.Tokens, starts: np.ndarray[Any, Any], context: int) -> tuple[Tensor, Tensor]:
    """Inputs and, one place on, targets: int64 [n, context] each."""
    block = torch.from_numpy(tokens[starts[:, None] + np.arange(context + 1)].astype(np.int64))
    return block[:, :-1], block[:, 1:]


class Evaluation:
    """The same validation windows every time, spread evenly over the whole validation text."""

    def __init__(self, tokens: corpus.Tokens, config: Config, device: torch.device) -> None:
        available = (len(tokens) - 1) // config.context
        count = min(available, math.ceil(config.eval.tokens / config.context))
        starts = np.arange(count) * available // count * config.context
        inputs, targets = windows(tokens, starts, config.context)
        self.inputs = torch.split(inputs.to(device), config.eval.batch)
        self.targets = torch.split(targets.to(device), config.eval.batch)
        self.tokens = count * config.context

    @torch.no_grad()
    def __call__(self, model: Transformer) -> float:
        """Mean loss, nats per token."""
        total = sum(
            model.loss(inputs, targets).double() * targets.numel()
            for inputs, targets in zip(self.inputs, self.targets, strict=True)
        )
        return float(total) / self.tokens


def build(config: Mapping[str, Any]) -> Transformer:
    """The model of a resolved configuration, initialised from its seed."""
    parsed, frozen = parse(config), config["resolved"]
    model = parsed.model
    shape = Shape(
        vocab_size=frozen["vocab_size"],
        context=parsed.context,
        width=model.width,
        depth=model.depth,
        n_heads=parsed.n_heads,
        kv_heads=parsed.kv_heads,
        head_dim=model.head_dim,
        ffn=parsed.ffn,
        residual=config["model"]["residual"],
        logit_scale=frozen["groups"]["head"]["multiplier"],
        norm_eps=model.norm_eps,
        rope_base=model.rope_base,
    )
    transformer = Transformer(shape)
    initialise(transformer, frozen["groups"], model.width, parsed.seed)
    return transformer


def optimizers(model: Transformer, config: Mapping[str, Any]) -> list[Optimizer]:
    """One optimizer per kind, one parameter group per group, each with `peak_lr`, the top of its schedule."""
    optim, by_kind = parse(config).optim, dict[str, list[dict[str, Any]]]()
    for name, parameters in model.parameter_groups().items():
        group = config["resolved"]["groups"][name]
        by_kind.setdefault(group["optimizer"], []).append(
            {
                "params": parameters,
                "lr": group["lr"],
                "peak_lr": group["lr"],
                "weight_decay": group["weight_decay"],
            }
        )
    betas = (optim.beta1, optim.beta2)
    make: dict[str, Callable[[Any], Optimizer]] = {
        "adamw": lambda groups: AdamW(groups, lr=0.0, betas=betas, eps=optim.eps, fused=True),
        "adamh": lambda groups: AdamH(groups, lr=0.0, betas=betas, eps=optim.eps),
        "muon": lambda groups: Muon(groups, lr=0.0, momentum=optim.momentum, eps=optim.eps),
        "muonh": lambda groups: MuonH(groups, lr=0.0, momentum=optim.momentum, eps=optim.eps),
    }
    return [make[kind](groups) for kind, groups in by_kind.items()]


@dataclass
class Trainer:
    """The mutable part of a run: everything that a checkpoint holds."""

    model: Transformer
    optimizers: list[Optimizer]
    parameters: list[nn.Parameter]
    step: int = 0  # steps done
    loss_sum: float = 0.0  # of the training losses since the last log
    loss_count: int = 0
    first_loss: float | None = None

    def state(self) -> State:
        return {
            "step": self.step,
            "loss_sum": self.loss_sum,
            "loss_count": self.loss_count,
            "first_loss": self.first_loss,
            "model": self.model.state_dict(),
            # Only tensors: rates and the like are frozen in the configuration. Keys as text survive any format.
            "optimizers": [
                {str(index): dict(slots) for index, slots in optimizer.state_dict()["state"].items()}
                for optimizer in self.optimizers
            ],
        }

    def load(self, state: State) -> None:
        self.step, self.first_loss = int(state["step"]), state["first_loss"]
        self.loss_sum, self.loss_count = float(state["loss_sum"]), int(state["loss_count"])
        self.model.load_state_dict(state["model"])
        for optimizer, slots in zip(self.optimizers, state["optimizers"], strict=True):
            groups = optimizer.state_dict()["param_groups"]
            state_dict = {
                "state": {int(index): slot for index, slot in slots.items()},
                "param_groups": groups,
            }
            optimizer.load_state_dict(state_dict)

    def update(self, inputs: Tensor, targets: Tensor, factor: float, clip: float) -> None:
        """One step at `factor` times the peak learning rates."""
        device = self.parameters[0].device
        loss = self.model.loss(inputs.to(device), targets.to(device))
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(self.parameters, clip)
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = group["peak_lr"] * factor
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        value = loss.item()
        self.first_loss = value if self.first_loss is None else self.first_loss
        self.loss_sum, self.loss_count, self.step = self.loss_sum + value, self.loss_count + 1, self.step + 1

    def mean_loss(self) -> float:
        """Mean training loss since the last call."""
        mean = self.loss_sum / self.loss_count
        self.loss_sum, self.loss_count = 0.0, 0
        return mean


def train(config: Mapping[str, Any], data: corpus.Corpus, run: Run) -> None:
    """Train a resolved configuration, from the run's checkpoint if it has one."""
    parsed = parse(config)
    if torch.get_num_threads() != run.threads:
        torch.set_num_threads(run.threads)
    device = torch.device(run.device if parsed.device == "auto" else parsed.device)
    model = build(config).to(device)
    trainer = Trainer(model, optimizers(model, config), list(model.parameters()))
    if (state := run.restore()) is not None:
        trainer.load(state)
    run.summary(**facts(config, parsed))
    evaluate = Evaluation(data.validation, parsed, device)
    batches = Batches(data.train, parsed.context, parsed.batch, parsed.seed)
    _loop(config, trainer, batches, evaluate, run)


def _loop(config: Mapping[str, Any], trainer: Trainer, batches: Batches, evaluate: Evaluation, run: Run) -> None:
    steps, clip = config["steps"], config["optim"]["clip"]
    schedule = config["warmup"], config["decay"], config["final_lr"]
    while trainer.step < steps:
        inputs, targets = batches(trainer.step)
        factor = lr_factor(trainer.step, steps, *schedule)
        trainer.update(inputs, targets, factor, clip)
        step = trainer.step
        evaluated = step % config["eval"]["every"] == 0 or step == steps
        if evaluated or step % config["log_every"] == 0 or not math.isfinite(trainer.loss_sum):
            values = {
                "train_loss": trainer.mean_loss(),
                "lr": factor * config["resolved"]["groups"]["hidden"]["lr"],
            }
            reason = divergence(values["train_loss"], trainer, config)
            if evaluated or reason:
                values["val_loss"] = evaluate(trainer.model)
            run.log(step, **values)
            if reason:
                return run.diverged(reason)
        run.checkpoint(trainer.state, step=step)
    return None


def divergence(loss: float, trainer: Trainer, config: Mapping[str, Any]) -> str | None:
    """Why the run is lost, or None.

    A loss above both its first value and ln(vocabulary), the loss of a model that knows nothing, is worse
    than no training. A window's mean may pass that for a moment and come back: `diverge_margin` is allowed.
    """
    if not math.isfinite(loss):
        return f"training loss is {loss} at step {trainer.step}"
    start = max(trainer.first_loss or 0.0, math.log(config["resolved"]["vocab_size"]))
    if loss > start + config["diverge_margin"]:
        return f"training loss {loss:.3f} at step {trainer.step} is {loss - start:.3f} nats above its start"
    return None


def facts(config: Mapping[str, Any], parsed: Config) -> dict[str, Any]:
    """The run's summary: counts, budget, corpus, and the path length of the schedule."""
    frozen = config["resolved"]
    counts = cost.parameters(parsed, frozen["vocab_size"])
    steps, n_params = config["steps"], sum(counts.values())
    schedule = config["warmup"], config["decay"], config["final_lr"]
    factors = math.fsum(lr_factor(step, steps, *schedule) for step in range(steps))
    return {
        "n_params": n_params,
        "n_params_non_embedding": n_params - counts["embedding"],
        "flops": config["tokens"] * cost.flops_per_token(parsed, frozen["vocab_size"]),
        "tokens": config["tokens"],
        "steps": steps,
        "corpus": config["corpus"],
        "corpus_sha256": frozen["corpus_sha256"],
        "vocab_size": frozen["vocab_size"],
        "sum_lr": factors * frozen["groups"]["hidden"]["lr"],
    }
