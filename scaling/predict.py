"""What a fitted law says of a place: `python -m scaling.predict SPEC --at tokens=1e12 --at n_params=7e10`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from scaling.answers.arguments import Given, Group, Law, Level, chosen, places
from scaling.answers.asked import usable
from scaling.answers.plain import present
from scaling.errors import AnalysisError, nearest
from scaling.fits import Fit
from scaling.sources import AsJson, Database, Home, Overrides, failing, print_json

EPILOG = """Example:

python -m scaling.predict sweeps/published/chinchilla.yaml --at n_params=70B --at tokens=1.4e12,15e12

Exit codes: 0 done (a refusal is an answer), 2 the spec or the arguments are wrong."""
app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


def ordered(fit: Fit, wanted: list[dict[str, float]]) -> list[dict[str, float]]:
    """Places with the law's inputs in its own order; raises AnalysisError for a missing, unknown or wrong one."""
    for place in wanted:
        for name, value in place.items():
            if name not in fit.law.inputs:
                raise AnalysisError(f"--at {name}: {fit.law.name} has no such input.{nearest(name, fit.law.inputs)}")
            if not value > 0:
                raise AnalysisError(f"--at {name}={value:g}: must be > 0.")
        for name in fit.law.inputs:
            if name not in place:
                raise AnalysisError(
                    f"{fit.law.name} over {fit.law.over}: {name} is missing; give it with --at {name}=…"
                )
    return [{name: place[name] for name in fit.law.inputs} for place in wanted]


@app.command(epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
def main(  # noqa: PLR0917 - typer reads the command line from this signature
    spec: Annotated[Path, typer.Argument(help="The YAML file whose laws are fitted.", show_default=False)],
    overrides: Overrides = None,
    at: Given = None,
    law: Law = None,
    group: Group = None,
    noise: Annotated[
        float, typer.Option(min=0.0, help="Relative error of one run, to predict a run and not the law's mean.")
    ] = 0.0,
    level: Level = None,
    as_json: AsJson = False,
    home: Home = Path("results"),
    db: Database = None,
) -> None:
    """A fitted law's response at given inputs, with its interval; a list of values gives one line each."""
    with failing(as_json):
        wanted = places(at)
        (one,) = chosen(spec, overrides, home, db, [(law, group)])
        fit = usable(one.found.fit)
        wanted = ordered(fit, wanted)
        found = fit.predict(np.array([list(p.values()) for p in wanted]).T, level, noise)
        if as_json:
            head = {"schema": 1, "fit": one.found.name, "of": one.found.of, "group": one.found.group}
            lows, highs = ([None] * len(wanted) if v is None else v.tolist() for v in (found.lo, found.hi))
            rows: list[dict[str, Any]] = [
                present({"at": place, "value": float(value), "lo": lo, "hi": hi, "basis": found.basis})
                for place, value, lo, hi in zip(wanted, found.value, lows, highs, strict=True)
            ]
            print_json({**head, "level": level or fit.level, "predictions": rows, "why": list(fit.why)})
            return
        from scaling.answers.console import show
        from scaling.answers.words import prediction_sheet

        show((), [prediction_sheet(wanted, found, one.found.of)])
        show([f"Interval: {found.basis}.", *(f"The fit is {fit.status}: {reason}" for reason in fit.why)])


if __name__ == "__main__":
    app()
