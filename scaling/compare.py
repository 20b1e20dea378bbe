"""Which law predicts the dearest runs best: `python -m scaling.compare SPEC --laws power,power_offset`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from scaling.answers.words import Sheet
from scaling.comparison import Comparison, Stop, compare_laws, rolling
from scaling.errors import AnalysisError
from scaling.findings import LawFit, point_text
from scaling.laws import Law, law_over
from scaling.sources import AsJson, Database, Home, Overrides, analysis_of, failing, print_json
from scaling.wording import number

EPILOG = """Example:

python -m scaling.compare sweeps/published/chinchilla.yaml --laws chinchilla,chinchilla_tied,coupled,kaplan_joint

Exit codes: 0 done, 2 the spec or the arguments are wrong."""
app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@dataclass(frozen=True)
class Subject:
    """Laws over the same rows."""

    first: LawFit
    laws: tuple[Law, ...]

    @property
    def title(self) -> str:
        group = f" ({point_text(self.first.group)})" if self.first.group else ""
        return f"{self.first.of} over {', '.join(self.first.over)}{group}"


def subjects(fits: Sequence[LawFit], names: Sequence[str]) -> list[Subject]:
    """The fits grouped by response, inputs and group; each with its own laws and those of `names`.

    The rows are those of the fit that saw most. Raises AnalysisError for an unknown law.
    """
    found: dict[str, list[LawFit]] = {}
    for fit in fits:
        found.setdefault(repr((fit.of, fit.over, fit.group)), []).append(fit)
    made = []
    for same in found.values():
        first = max(same, key=lambda f: len(f.fit.rows))
        own = {f.fit.law.name: f.fit.law for f in same}
        asked = {n: law_over(n, first.over) for n in names}
        made.append(Subject(first, tuple((own | asked).values())))
    return made


@app.command(epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
def main(  # noqa: PLR0917 - typer reads the command line from this signature
    spec: Annotated[Path, typer.Argument(help="The YAML file whose laws are compared.", show_default=False)],
    overrides: Overrides = None,
    laws: Annotated[
        str | None, typer.Option(help="Further laws, by name or formula, between commas.", show_default=False)
    ] = None,
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
        answers = [_answer(subject) for subject in subjects(fits, names)]
        if as_json:
            print_json({"schema": 1, "comparisons": [_json(*a) for a in answers]})
            return
        for subject, found, stops in answers:
            _show(subject, found, stops)


def _answer(subject: Subject) -> tuple[Subject, Comparison, list[Stop]]:
    fit = subject.first.fit
    found = compare_laws(subject.laws, fit.rows, objective=fit.objective, seed=fit.seed)
    best = next((law for law in subject.laws if law.name == found.best), None)
    return subject, found, [] if best is None else rolling(best, fit.rows, objective=fit.objective)


def _json(subject: Subject, found: Comparison, stops: Sequence[Stop]) -> dict[str, Any]:
    past = [
        {"cost": s.cost, "rows": s.rows, "errors": [{"factor": f, "error": e, "rows": n} for f, e, n in s.errors
                                                    if e is not None]}
        for s in stops
    ]  # fmt: skip
    head = {"of": subject.first.of, "over": list(subject.first.over), "group": subject.first.group}
    return {**head, **found.to_json(), "rolling": past}


def _show(subject: Subject, found: Comparison, stops: Sequence[Stop]) -> None:
    from scaling.answers.console import show

    rows = tuple(
        (s.law, str(s.parameters), s.status, _share(s.error), _plain(s.log_score), _plain(s.aicc)) for s in found.scores
    )
    columns = ("law", "parameters", "status", "error", "log score", "AICc")
    above = "" if found.frontier is None else f" of cost above {number(found.frontier)}"
    said = [
        f"{subject.title}: fitted to {found.trained} rows, scored on {found.tested}{above}.", found.why,
        *(f"{s.law}: {reason}" for s in found.scores if s.errors is None for reason in s.why),
    ]  # fmt: skip
    sheets = [Sheet("On the dearest rows", columns, rows)]
    if stops:
        past = tuple(
            (number(s.cost), str(s.rows), *(_share(e) if e is not None else "–" for _, e, _ in s.errors)) for s in stops
        )
        heads = ("stopped at cost", "rows", *(f"error at {f:g} times" for f, _, _ in stops[0].errors))
        sheets.append(Sheet(f"Had the experiment stopped earlier, by {found.best}", heads, past))
    show(said, sheets)


def _share(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.2g} %"


def _plain(value: float | None) -> str:
    return "–" if value is None else f"{value:.4g}"


if __name__ == "__main__":
    app()
