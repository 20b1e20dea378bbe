"""The configuration of a language-model run: what may be said, what is filled in, what is frozen."""

from __future__ import annotations

import math
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from models import corpus
from scaling.rules import ScalingRule, rule

_T = TypeVar("_T")
RESOLVED_VERSION = 1
TRAINED_GROUPS = ("hidden", "embedding", "head", "vector")
# Optimizer family -> kind per parameter group (hidden, embedding, head, vector).
FAMILIES: dict[str, dict[str, str]] = {
    "adamw": dict.fromkeys(TRAINED_GROUPS, "adamw"),
    "muon": {"hidden": "muon", "embedding": "adamw", "head": "adamw", "vector": "adamw"},
    "muonh": {"hidden": "muonh", "embedding": "adamw", "head": "adamh", "vector": "adamw"},
    "adamh": {"hidden": "adamh", "embedding": "adamw", "head": "adamh", "vector": "adamw"},
}
SPHERE = frozenset({"muonh", "adamh"})
DECAY_ON_SPHERE = (
    "weight decay on the sphere is no decay: (1 - lr wd) W - lr U points where W - lr / (1 - lr wd) U does, "
    "so it only rescales the learning rate to lr / (1 - lr wd). Set weight_decay to 0 and change lr"
)


def _whole(value: object) -> object:
    """Counts may come out of an expression as 64.0; a truth value or a text is no number."""
    if isinstance(value, bool | str):
        raise ValueError(f"expected a whole number, got {value!r}")
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def _number(value: object) -> object:
    if isinstance(value, bool | str):
        raise ValueError(f"expected a number, got {value!r}")
    return value


def _finite(value: float) -> float:
    if not math.isfinite(value):
        raise ValueError(f"expected a finite number, got {value!r}")
    return value


Count = Annotated[int, BeforeValidator(_whole), Field(ge=1)]
Natural = Annotated[int, BeforeValidator(_whole), Field(ge=0)]
Number = Annotated[float, BeforeValidator(_number), AfterValidator(_finite)]
Positive = Annotated[Number, Field(gt=0)]
NonNegative = Annotated[Number, Field(ge=0)]
Device = Annotated[str, Field(pattern=r"^(auto|cpu|cuda(:\d+)?)$")]
Share = Annotated[Number, Field(ge=0, le=1)]
Momentum = Annotated[Number, Field(ge=0, lt=1)]


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class BaseShape(Section):
    """Where the learning rate is tuned. A rule scales the axes named here; others are left alone."""

    width: Count | None = None
    depth: Count | None = None
    tokens: Positive | None = None
    batch_tokens: Positive | None = None  # tokens a step


class Model(Section):
    width: Count
    depth: Count = 2
    head_dim: Count = 16
    n_heads: Count | None = None  # None: width / head_dim
    kv_heads: Count | None = None  # None: n_heads; fewer: grouped-query attention
    ffn_ratio: Positive = 2.0  # inner width of the gated MLP / width
    residual: Positive | None = None  # multiplier of each branch; None: the rule's, 1/sqrt(2 depth)
    norm_eps: Positive = 1e-5
    rope_base: Positive = 10_000.0


class PerGroup(Section):
    hidden: Positive = 1.0
    embedding: Positive = 1.0
    head: Positive = 1.0
    vector: Positive = 1.0


class Optim(Section):
    name: Literal["auto", "adamw", "muon", "muonh", "adamh"] = "auto"  # auto: the rule's own
    lr: Positive | None = None  # peak, at the base shape
    lr_scale: PerGroup = PerGroup()  # multiplies lr per group
    weight_decay: NonNegative | None = None  # None: 0.1 for AdamW and Muon, 0 on the sphere
    momentum: Momentum = 0.95  # Muon, MuonH
    beta1: Momentum = 0.9  # AdamW, AdamH
    beta2: Momentum = 0.95
    eps: Positive = 1e-8
    clip: Positive = 1.0  # largest global gradient norm


class Eval(Section):
    tokens: Count = 16_384  # validation targets, the same ones in every evaluation and run
    every: Count | None = None  # steps; None: a quarter of the run. The last step is always evaluated
    batch: Count = 32  # sequences at once


class Config(Section):
    corpus: str = "stdlib"  # stdlib, topics, or a path
    tokenizer: Literal["chars", "bytes"] = "chars"
    context: Count = 64  # tokens of a training sequence
    batch: Count = 8  # sequences a step
    steps: Count | None = None
    tokens: Positive | None = None  # instead of steps: training targets, rounded to whole steps
    warmup: Share = 0.0  # share of the steps over which the learning rate rises linearly
    decay: Share = 1.0  # share of the steps, at the end, over which it falls linearly
    final_lr: Share = 0.1  # learning rate after the decay / peak
    parametrization: str = "standard"
    base: BaseShape = BaseShape()
    model: Model
    optim: Optim = Optim()
    init_scale: PerGroup = PerGroup()  # multiplies the initial standard deviation per group
    eval: Eval = Eval()
    log_every: Count | None = None  # steps between training losses; None: a twentieth of the run
    diverge_margin: Positive = 2.0  # nats above the start (or the uniform guess) at which a run is given up
    seed: Natural = 0
    device: Device = "auto"  # auto: the one the launcher gives

    @property
    def n_heads(self) -> int:
        return self.model.n_heads or max(1, self.model.width // self.model.head_dim)

    @property
    def kv_heads(self) -> int:
        return self.model.kv_heads or self.n_heads

    @property
    def ffn(self) -> int:
        """Inner width of the gated MLP."""
        return max(1, round(self.model.ffn_ratio * self.model.width))

    @property
    def step_tokens(self) -> int:
        return self.batch * self.context

    @property
    def n_steps(self) -> int | None:
        if self.steps is not None:
            return self.steps
        return None if self.tokens is None else max(1, round(self.tokens / self.step_tokens))


def parse(config: Mapping[str, Any]) -> Config:
    """Validate a configuration.

    Raises ValueError, which names the key, what it got, what was expected, and the nearest known key.
    """
    try:
        parsed = Config.model_validate({key: value for key, value in config.items() if key != "resolved"})
    except ValidationError as error:
        raise ValueError("; ".join(_sentence(problem) for problem in error.errors())) from error
    _check_shapes(parsed)
    return parsed


def _check_shapes(config: Config) -> None:
    model = config.model
    if model.n_heads is None and model.width % model.head_dim:
        raise ValueError(f"model.width: {model.width} is no multiple of model.head_dim {model.head_dim}")
    if model.head_dim % 2:
        raise ValueError(f"model.head_dim: {model.head_dim} is odd; rotary positions need pairs")
    if config.n_heads % config.kv_heads:
        raise ValueError(f"model.kv_heads: {config.kv_heads} does not divide the {config.n_heads} heads")
    if config.steps is None or config.tokens is None:
        return
    tokens = config.steps * config.step_tokens
    if config.tokens != tokens:
        raise ValueError(
            f"steps and tokens: {config.steps} steps of {config.batch} x {config.context} tokens are "
            f"{tokens} tokens, not {config.tokens:.12g}; give one of the two"
        )


def _sentence(problem: Any) -> str:
    place = ".".join(map(str, problem["loc"]))
    if problem["type"] == "extra_forbidden":
        known = list(_section(problem["loc"][:-1]).model_fields)
        near = get_close_matches(str(problem["loc"][-1]), known, n=1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        return f"{place}: unknown key; {hint}known: {', '.join(known)}"
    if problem["type"] == "missing":
        return f"{place}: missing"
    return f"{place}: got {problem['input']!r}; {problem['msg'].removeprefix('Value error, ')}"


def _section(place: tuple[int | str, ...]) -> type[BaseModel]:
    section: type[BaseModel] = Config
    for key in place:
        inner = section.model_fields[str(key)].annotation
        assert isinstance(inner, type)
        assert issubclass(inner, BaseModel)
        section = inner
    return section


def resolve(config: Mapping[str, Any]) -> dict[str, Any]:
    """Every value of the run as a number: defaults filled, the rule applied, the corpus identified.

    The result has the section `resolved`: version, corpus_sha256, vocab_size and per parameter group its
    optimizer, lr, weight_decay, initial std and forward multiplier. A resolved configuration comes back as
    it is (after a check of its values), so what was frozen stays frozen.
    Raises ValueError (CorpusError for the corpus).
    """
    parsed = parse(config)
    if "resolved" in config:
        if config["resolved"]["version"] != RESOLVED_VERSION:
            raise ValueError(
                f"resolved.version: got {config['resolved']['version']!r}, this program knows {RESOLVED_VERSION}"
            )
        return dict(config)
    steps = _required(parsed.n_steps, "steps: missing (or give tokens)")
    scaling_rule = rule(parsed.parametrization)
    family = _family(parsed, scaling_rule)
    data = corpus.load(parsed.corpus, parsed.tokenizer)
    _check_sizes(parsed, data)
    filled = parsed.model_dump()
    filled["steps"], filled["tokens"] = steps, steps * parsed.step_tokens
    filled["model"] |= {"n_heads": parsed.n_heads, "kv_heads": parsed.kv_heads}
    filled["optim"]["name"] = family
    filled["eval"]["every"] = parsed.eval.every or math.ceil(steps / 4)
    filled["log_every"] = parsed.log_every or math.ceil(steps / 20)
    shape = {"width": parsed.model.width, "depth": parsed.model.depth, "tokens": filled["tokens"]}
    shape["batch_tokens"] = parsed.step_tokens
    base = {axis: size for axis, size in parsed.base.model_dump().items() if size is not None}
    residual = parsed.model.residual or scaling_rule.values("residual", "multiplier", None, shape, base)
    filled["model"]["residual"] = residual
    filled["resolved"] = {
        "version": RESOLVED_VERSION,
        "corpus_sha256": data.sha256,
        "vocab_size": data.vocab_size,
        "groups": {group: _group(group, parsed, scaling_rule, family, (shape, base)) for group in TRAINED_GROUPS},
    }
    return filled


def _required(value: _T | None, problem: str) -> _T:
    if value is None:
        raise ValueError(problem)
    return value


def _family(config: Config, scaling_rule: ScalingRule) -> str:
    own = next(name for name, kinds in FAMILIES.items() if kinds == dict(scaling_rule.optimizers))
    family = own if config.optim.name == "auto" else config.optim.name
    if family not in scaling_rule.families:
        raise ValueError(
            f"optim.name: got {family!r}, but rule {scaling_rule.name!r} is derived for "
            f"{' or '.join(scaling_rule.families)}"
        )
    if config.optim.weight_decay and SPHERE & set(FAMILIES[family].values()):
        raise ValueError(f"optim.weight_decay: got {config.optim.weight_decay!r} with {family!r}; {DECAY_ON_SPHERE}")
    return family


def _check_sizes(config: Config, data: corpus.Corpus) -> None:
    for split, size in (("training", len(data.train)), ("validation", len(data.validation))):
        needed = config.context + 1
        if size < needed:
            raise corpus.CorpusError(
                f"corpus {config.corpus!r} is too small: it has {size} {split} tokens, "
                f"a context of {config.context} needs {needed}"
            )


def _group(
    group: str,
    config: Config,
    scaling_rule: ScalingRule,
    family: str,
    sizes: tuple[Mapping[str, float], Mapping[str, float]],
) -> dict[str, Any]:
    shape, base = sizes
    kind = FAMILIES[family][group]
    lr = _required(config.optim.lr, "optim.lr: missing") * getattr(config.optim.lr_scale, group)
    settings: dict[str, Any] = {
        "optimizer": kind,
        "lr": scaling_rule.values(group, "lr", lr, shape, base),
        "weight_decay": 0.0 if group == "vector" or kind in SPHERE else _decay(config, family),
        "init": scaling_rule.init[group],
    }
    if group == "vector":
        return settings | {"init_std": 0.0, "multiplier": 1.0}
    std = scaling_rule.values(group, "init_std", None, shape, base)
    settings["init_std"] = std * getattr(config.init_scale, group)
    # The std above is for matrices with fan_in = width; the down projection's is width * ffn_ratio.
    settings["init_fan_power"] = float(scaling_rule.exponent("init_std", group, "width")) if group == "hidden" else 0.0
    settings["multiplier"] = scaling_rule.values(group, "multiplier", None, shape, base) if group == "head" else 1.0
    return settings


def _decay(config: Config, family: str) -> float:
    if config.optim.weight_decay is not None:
        return config.optim.weight_decay
    return 0.1 if family in ("adamw", "muon") else 0.0
