"""Scaling rules: how a hyperparameter of a parameter group follows the shape of a run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from types import MappingProxyType

GROUPS = ("hidden", "embedding", "head", "vector", "residual")
HYPERPARAMETERS = ("lr", "init_std", "multiplier")
AXES = ("width", "depth", "tokens", "batch_tokens")

_EMPTY: Mapping[str, Fraction] = MappingProxyType({})


@dataclass(frozen=True)
class Entry:
    """One cell row of a rule: value * product over axes of (shape / anchor) ** exponent.

    value: the rule's own value at the anchor; None where the user gives it (a learning rate).
    absolute: the anchor is 1 on every axis, so `value` is a constant of the formula (1/sqrt(3) in std =
        1/sqrt(3 width)) and the entry always applies. Otherwise the anchor is the base shape, and only the
        axes that the base shape names are scaled.
    """

    exponents: Mapping[str, Fraction] = field(default_factory=lambda: _EMPTY)
    value: float | None = None
    absolute: bool = False

    def factor(self, shape: Mapping[str, float], base: Mapping[str, float]) -> float:
        """Product of (shape / anchor) ** exponent over the axes that apply; dimensionless."""
        result = 1.0
        for axis, exponent in self.exponents.items():
            if self.absolute:
                result *= _size(shape, axis) ** float(exponent)
            elif axis in base:
                result *= (_size(shape, axis) / _size(base, axis)) ** float(exponent)
        return result


def _size(shape: Mapping[str, float], axis: str) -> float:
    if axis not in shape:
        raise ValueError(f"the shape {dict(shape)} has no {axis!r}, which the rule scales with")
    if not shape[axis] > 0:
        raise ValueError(f"{axis} is {shape[axis]!r}; a scaling rule needs a size above 0")
    return float(shape[axis])


@dataclass(frozen=True)
class ScalingRule:
    """A table: hyperparameter x parameter group x axis -> exponent, with the values the rule fixes itself.

    optimizers: parameter group -> kind of optimizer, for the optimizer that the rule is made for.
    families: the optimizer families that its exponents hold for (see `models.lm`, `optim.name`).
    init: parameter group -> shape of the initial distribution.

    >>> RULES["hyperp"].values("hidden", "lr", 0.01, {"width": 64}, {"width": 16})
    0.01
    >>> RULES["mup"].values("hidden", "lr", 0.01, {"width": 64}, {"width": 16})
    0.0025
    """

    name: str
    source: str
    families: tuple[str, ...]
    optimizers: Mapping[str, str]
    init: Mapping[str, str]
    entries: Mapping[tuple[str, str], Entry]

    def entry(self, hyperparameter: str, group: str) -> Entry:
        """The row of one hyperparameter and group; an empty one (nothing scales) where the table has none."""
        _known("hyperparameter", hyperparameter, HYPERPARAMETERS)
        _known("parameter group", group, GROUPS)
        return self.entries.get((hyperparameter, group), _NOTHING)

    def exponent(self, hyperparameter: str, group: str, axis: str) -> Fraction:
        """The cell of the table; 0 where the rule leaves the hyperparameter alone along the axis."""
        _known("axis", axis, AXES)
        return self.entry(hyperparameter, group).exponents.get(axis, Fraction(0))

    def values(
        self,
        group: str,
        hyperparameter: str,
        base_value: float | None,
        shape: Mapping[str, float],
        base: Mapping[str, float],
    ) -> float:
        """The hyperparameter of `group` at `shape`, tuned as `base_value` at `base`.

        shape, base: sizes by axis name, e.g. {"width": 64}; axes that `base` does not name are left alone.
        base_value: None takes the rule's own value.
        Raises ValueError for an unknown name, a size that is missing or not positive, or no value at all.
        """
        for axis in base:
            _known("axis", axis, AXES)
        row = self.entry(hyperparameter, group)
        value = row.value if base_value is None else base_value
        if value is None:
            raise ValueError(f"rule {self.name!r} fixes no {hyperparameter} of group {group!r}: give a base value")
        return value * row.factor(shape, base)

    def describe(self) -> list[tuple[str, ...]]:
        """The table as rows of text, the first one the header: what a report prints."""
        rows: list[tuple[str, ...]] = [("hyperparameter", "group", "optimizer", "value", *AXES)]
        for (hyperparameter, group), row in self.entries.items():
            exponents = (str(row.exponents.get(axis, Fraction(0))) for axis in AXES)
            value = "tuned" if row.value is None else f"{row.value:.6g}"
            anchor = " at shape 1" if row.absolute and row.exponents else ""
            rows.append(
                (hyperparameter, group, self.optimizers.get(group, "-"), value + anchor, *exponents),
            )
        return rows


_NOTHING = Entry()


def _known(kind: str, name: str, names: Iterable[str]) -> None:
    if name not in names:
        raise ValueError(f"unknown {kind} {name!r}; known: {', '.join(names)}")


def _exponents(**axes: Fraction) -> Mapping[str, Fraction]:
    return MappingProxyType(axes)


_HALF = Fraction(1, 2)
_TRAINED = ("hidden", "embedding", "head", "vector")
_ADAMW = MappingProxyType(dict.fromkeys(_TRAINED, "adamw"))
_NORMAL = MappingProxyType({"hidden": "normal", "embedding": "normal", "head": "normal", "vector": "ones"})
# Two branches a block: their sum over the depth keeps the variance of one (arXiv 2603.28743, Theorem 3).
_RESIDUAL = Entry(_exponents(depth=-_HALF), value=2**-0.5, absolute=True)


def _standard() -> ScalingRule:
    """What is written down when nobody thinks of scale: N(0, 0.02^2) and one learning rate at every size."""
    entries = {("lr", group): Entry() for group in _TRAINED}
    entries |= {("init_std", group): Entry(value=0.02) for group in ("hidden", "embedding", "head")}
    entries[("multiplier", "head")] = Entry(value=1.0)
    entries[("multiplier", "residual")] = _RESIDUAL
    return ScalingRule(
        name="standard",
        source="GPT-2's constants (0.02); no exponent",
        families=("adamw", "muon", "muonh", "adamh"),
        optimizers=_ADAMW,
        init=_NORMAL,
        entries=MappingProxyType(entries),
    )


def _mup() -> ScalingRule:
    """muP for Adam: arXiv 2203.03466, Table 8.

    Its entries, in powers of fan_in for (input and vectors, output, hidden): initial variance (-1, 0, -1),
    multiplier (0, -1, 0), Adam learning rate (0, 0, -1). The fan_in of the embedding is the vocabulary, which
    does not grow. At the base shape the rule equals `standard`; 1/d attention is moot while head_dim is fixed.
    """
    entries = {
        ("lr", "hidden"): Entry(_exponents(width=Fraction(-1))),
        ("lr", "embedding"): Entry(),
        ("lr", "head"): Entry(),
        ("lr", "vector"): Entry(),
        ("init_std", "hidden"): Entry(_exponents(width=-_HALF), value=0.02),
        ("init_std", "embedding"): Entry(value=0.02),
        ("init_std", "head"): Entry(value=0.02),
        ("multiplier", "head"): Entry(_exponents(width=Fraction(-1)), value=1.0),
        ("multiplier", "residual"): _RESIDUAL,
    }
    return ScalingRule(
        name="mup",
        source="arXiv 2203.03466, Table 8 (Adam)",
        families=("adamw",),
        optimizers=_ADAMW,
        init=_NORMAL,
        entries=MappingProxyType(entries),
    )


def _hyperp(name: str, source: str, tokens: tuple[str, ...]) -> ScalingRule:
    """HyperP (arXiv 2603.28743, Table 1, eq. 8); `tokens`: the groups whose learning rate follows them.

    The head's std is 1/sqrt(width), not the constant 0.02 of the published runs: the sphere keeps the head's
    norm for ever, so with a constant no logit can pass 0.02 width gain, which starves narrow models.
    """
    shared = {"depth": -_HALF, "batch_tokens": _HALF}
    lr = {group: shared | ({"tokens": Fraction(-8, 25)} if group in tokens else {}) for group in _TRAINED}
    entries = {("lr", group): Entry(_exponents(**exponents)) for group, exponents in lr.items()}
    entries |= {
        # Kaiming-uniform with a = sqrt(5): std 1/sqrt(3 fan_in), so the radius is sqrt(fan_out / 3).
        ("init_std", "hidden"): Entry(_exponents(width=-_HALF), value=3**-0.5, absolute=True),
        ("init_std", "embedding"): Entry(value=0.01),
        ("init_std", "head"): Entry(_exponents(width=-_HALF), value=1.0, absolute=True),
        ("multiplier", "head"): Entry(value=1.0),
        ("multiplier", "residual"): _RESIDUAL,
    }
    return ScalingRule(
        name=name,
        source=source,
        families=("muonh",),
        optimizers=MappingProxyType(dict(_ADAMW) | {"hidden": "muonh", "head": "adamh"}),
        init=MappingProxyType(dict(_NORMAL) | {"hidden": "uniform"}),
        entries=MappingProxyType(entries),
    )


RULES: Mapping[str, ScalingRule] = MappingProxyType(
    {
        rule.name: rule
        for rule in (
            _standard(),
            _mup(),
            _hyperp("hyperp", "arXiv 2603.28743, eq. 8, as run: one factor for all groups", _TRAINED),
            _hyperp("hyperp_table", "arXiv 2603.28743, Table 1: tokens move hidden only", ("hidden",)),
        )
    }
)


def rule(name: str) -> ScalingRule:
    """The rule of that name; ValueError with the nearest known one otherwise."""
    if name not in RULES:
        from difflib import get_close_matches

        near = get_close_matches(name, RULES, n=1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise ValueError(f"unknown parametrization {name!r}: {hint}known: {', '.join(RULES)}")
    return RULES[name]
