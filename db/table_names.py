"""What a spec asks of its table: names and expressions, each with its place in the spec."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sweeps.expressions import compile_expression
from sweeps.schema import FitSpec, LawSpec, Spec


@dataclass(frozen=True)
class Wanted:
    """A name that the spec uses: where (dotted), and whether its values must be numbers."""

    name: str
    key: str
    number: bool


class Uses:
    """All that a spec with `results` uses of its table.

    `wanted` are names, `rules` compiled expressions by their places, `metrics` what is fitted: NaN and infinities
    there mean a run that diverged.
    """

    def __init__(self, spec: Spec) -> None:
        fit = spec.fit
        self.wanted = [*_roles(spec), *(_fit(fit) if fit is not None else ())]
        self.rules = [(key, compile_expression(text)) for key, text in _texts(spec)]
        laws = [law.of for law in fit.laws if law.of and not law.of.endswith(".optimum")] if fit is not None else []
        self.metrics = list(dict.fromkeys([fit.of, *laws])) if fit is not None else []

    def place_of(self, name: str) -> str | None:
        """The first place that uses `name`; None if none does."""
        keys = [w.key for w in self.wanted if w.name == name]
        keys += [key for key, rule in self.rules if name in rule.names]
        return keys[0] if keys else None


def _roles(spec: Spec) -> Iterator[Wanted]:
    for role, number in (("axes", True), ("tune", True), ("compare", False), ("replicates", False)):
        yield from (Wanted(name, f"{role}.{name}", number) for name in getattr(spec, role))


def _fit(fit: FitSpec) -> Iterator[Wanted]:
    yield Wanted(fit.of, "fit.of", True)
    if fit.cluster is not None:
        yield Wanted(fit.cluster, "fit.cluster", False)
    if fit.isoflop is not None:
        yield from (Wanted(getattr(fit.isoflop, k), f"fit.isoflop.{k}", True) for k in ("n", "tokens", "budget"))
    if isinstance(fit.hold_out, dict):
        yield from (Wanted(name, f"fit.hold_out.{name}", False) for name in fit.hold_out)
    for index, law in enumerate(fit.laws):
        yield from _law(law, f"fit.laws.{index}")


def _law(law: LawSpec, key: str) -> Iterator[Wanted]:
    for item, name in enumerate(law.inputs):
        yield Wanted(name, f"{key}.over" if isinstance(law.over, str) else f"{key}.over.{item}", True)
    if law.of is not None and not law.of.endswith(".optimum"):
        yield Wanted(law.of, f"{key}.of", True)
    for part in ("stderr", "trials", "censored"):
        if (name := getattr(law, part)) is not None:
            yield Wanted(name, f"{key}.{part}", True)
    if isinstance(law.hold_out, dict):
        yield from (Wanted(name, f"{key}.hold_out.{name}", False) for name in law.hold_out)


def _texts(spec: Spec) -> Iterator[tuple[str, str]]:
    """Every expression with its place, in the order in which they are used."""
    table, fit = spec.results, spec.fit
    assert table is not None
    yield from ((f"results.where.{index}", text) for index, text in enumerate(table.where))
    if table.schedule is not None:
        yield "results.schedule", table.schedule
    yield from ((f"derive.{name}.expr", entry.expr) for name, entry in spec.derive.items())
    yield from ((f"where.{index}", text) for index, text in enumerate(spec.where))
    if fit is None:
        return
    if fit.cost is not None:
        yield "fit.cost", fit.cost
    if isinstance(fit.hold_out, str):
        yield "fit.hold_out", fit.hold_out
    for index, law in enumerate(fit.laws):
        for part in ("where", "hold_out"):
            if isinstance(text := getattr(law, part), str):
                yield f"fit.laws.{index}.{part}", text
