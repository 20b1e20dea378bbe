"""Which law predicts the dearest runs best: `python -m scaling.compare SPEC --laws power,power_offset`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from scaling.answers.words import Sheet
from scaling.comparison import Comparison, NestedTest, Stop, compare_laws, nested_tests, rolling
from scaling.errors import AnalysisError
from scaling.findings import LawFit, point_text
from scaling.laws import Law, law_over
from scaling.sources import AsJson, Database, Home, Overrides, analysis_of, failing, print_json
from scaling.wording import number

EPILOG = """Example:

python -m scaling.compare sweeps/published/chinchilla.yaml --laws chinchilla_tied,coupled,kaplan_joint

Exit codes: 0 done, 2 the spec or the arguments are wrong."""
app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@dataclass(frozen=True)
class Subject:
    """Laws by name, over the same rows: those of `first`."""

    first: LawFit
    laws: dict[str, Law]

    @property
    def title(self) -> str:
        group = f" ({point_text(self.first.group)})" if self.first.group else ""
        return f"{self.first.of} over {', '.join(self.first.over)}{group}"


@dataclass(frozen=True)
class Answer:
    """What came out of one subject; `why` says instead what kept its laws from being compared."""

    subject: Subject
    found: Comparison | None = None
    stops: tuple[Stop, ...] = ()
    tests: tuple[NestedTest, ...] = ()
    untested: tuple[str, ...] = ()
    why: str = ""

    def to_json(self) -> dict[str, Any]:
        """Plain values; what could not be told is absent."""
        first = self.subject.first
        head: dict[str, Any] = {"of": first.of, "over": list(first.over), "group": first.group}
        if self.found is None:
            return {**head, "why": self.why}
        more = {"rolling": [s.to_json() for s in self.stops], "nested": [t.to_json() for t in self.tests],
                "untested": list(self.untested)}  # fmt: skip
        return {**head, **self.found.to_json(), **more}


def subjects(fits: Sequence[LawFit], names: Sequence[str]) -> list[Subject]:
    """The fits grouped by response, inputs and group; each with its own laws and those of `names`.

    The rows are those of the fit that saw most. A law with a parameter held, tied or bounded goes by the name of its
    fit. Raises AnalysisError for an unknown law.
    """
    groups: dict[str, list[LawFit]] = {}
    for fit in fits:
        groups.setdefault(repr((fit.of, fit.over, fit.group)), []).append(fit)
    made = []
    for same in groups.values():
        first = max(same, key=lambda f: len(f.fit.rows))
        laws: dict[str, Law] = {}
        for f in same:
            plain = f.fit.law == law_over(f.fit.law.name, f.over)
            laws.setdefault(f.fit.law.name if plain else f.name, f.fit.law)
        for name in names:
            laws.setdefault(name, law_over(name, first.over))
        made.append(Subject(first, laws))
    return made


@app.command(epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
def main(  # noqa: PLR0917 - typer reads the command line from this signature
    spec: Annotated[Path, typer.Argument(help="The YAML file whose laws are compared.", show_default=False)],
    overrides: Overrides = None,
    laws: Annotated[
        str | None, typer.Option(help="Further laws, by name or formula, between commas.", show_default=False)
    ] = None,
    nested: Annotated[
        bool, typer.Option("--nested", help="Also test by bootstrap whether the larger of two nested laws is needed.")
    ] = False,
    as_json: AsJson = False,
    home: Home = Path("results"),
    db: Database = None,
) -> None:
    """Fit every law to the cheap rows, score it on the dear ones, and show how wrong it would have been earlier."""
    with failing(as_json):
        names = [n.strip() for n in (laws or "").split(",") if n.strip()]
        fits = analysis_of(spec, [*(overrides or ()), "fit.bootstrap=100"], home, db).fits
        if not fits:
            raise AnalysisError("the spec's results have no fit.")
        answers = [answer(subject, nested) for subject in subjects(fits, names)]
        if all(a.found is None for a in answers):
            raise AnalysisError(answers[0].why)
        if as_json:
            print_json({"schema": 1, "comparisons": [a.to_json() for a in answers]})
            return
        for i, one in enumerate(answers):
            print("\n" if i else "", end="")
            _show(one)


def answer(subject: Subject, nested: bool = False) -> Answer:
    """The comparison of a subject's laws, how wrong the best would have been earlier, and tests of nested ones."""
    fit = subject.first.fit
    try:
        found = compare_laws(subject.laws, fit.rows, objective=fit.objective, seed=fit.seed)
    except AnalysisError as error:
        return Answer(subject, why=str(error))
    stops = [] if found.best is None else rolling(subject.laws[found.best], fit.rows, objective=fit.objective)
    known = [law for name, law in subject.laws.items() if law.name == name]
    tests, why = nested_tests(known if nested else (), fit.rows, objective=fit.objective, seed=fit.seed)
    return Answer(subject, found, tuple(stops), tuple(tests), tuple(why))


def _show(one: Answer) -> None:
    from scaling.answers.console import show

    found = one.found
    if found is None:
        show([f"{one.subject.title}: {one.why}"])
        return
    rows = tuple(
        (s.law, str(s.parameters), s.status, _share(s.error), _plain(s.log_score), _plain(s.aicc)) for s in found.scores
    )
    columns = ("law", "parameters", "status", "error", "log score", "AICc")
    said = [
        f"{one.subject.title}: fitted to {found.trained} rows, scored on {found.tested} of cost above "
        f"{number(found.frontier)}.",
        found.why,
        *(f"{s.law}: {reason}" for s in found.scores if s.misses is None for reason in s.why),
        *(t.text for t in one.tests),
        *one.untested,
    ]
    sheets = [Sheet("On the dearest rows", columns, rows)]
    if one.stops:
        past = tuple((number(s.cost), str(s.rows), *(_share(e) for _, e, _ in s.errors)) for s in one.stops)
        heads = ("stopped at cost", "rows", *(f"error at {f:g} times" for f, _, _ in one.stops[0].errors))
        sheets.append(Sheet(f"Had the experiment stopped earlier, by {found.best}", heads, past))
    show(said, sheets)


def _share(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.2g} %"


def _plain(value: float | None) -> str:
    return "–" if value is None else f"{value:.4g}"


if __name__ == "__main__":
    app()
