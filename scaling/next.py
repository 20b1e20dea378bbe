"""Which runs would teach most: `python -m scaling.next SPEC --goal n_params=7e10,tokens=1.4e12 --budget 1e21`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from scaling.answers.arguments import CostText, Group, Law, chosen, named_numbers, number
from scaling.answers.asked import usable
from scaling.answers.cost import cost_over
from scaling.answers.words import Sheet, unit_of
from scaling.design import Goal, Plan, candidates, next_runs, parameter_goal, prediction_goal, score
from scaling.findings import point_text
from scaling.fits import Fit
from scaling.sources import AsJson, Database, Home, Overrides, failing, print_json
from scaling.wording import number as shown

EPILOG = """Examples:

python -m scaling.next sweeps/published/chinchilla.yaml --law 'Huber 1e-3' --goal n_params=7e10,tokens=1.4e12
--budget 1e22

python -m scaling.next sweeps/published/chinchilla.yaml --law 'Huber 1e-3' --goal parameter:alpha --budget 1e22

Exit codes: 0 done, 2 the spec or the arguments are wrong."""
app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


def goal_of(fit: Fit, text: str, of: str) -> tuple[Goal, str]:
    """The quantity that `text` asks about, and what it is called: a place, or `parameter:NAME`."""
    kind, sign, name = text.partition(":")
    if sign and kind.strip() == "parameter":
        return parameter_goal(fit.law, name.strip()), name.strip()
    at = named_numbers("--goal", text.split(","))
    residual = fit.objective.residual
    what = of if residual == "linear" else f"{residual} {of}"
    return prediction_goal(fit.law, at, residual), f"{what} at {point_text(at)}"


@app.command(epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
def main(  # noqa: PLR0917 - typer reads the command line from this signature
    spec: Annotated[Path, typer.Argument(help="The YAML file whose law is asked.", show_default=False)],
    overrides: Overrides = None,
    goal: Annotated[
        str, typer.Option(help="A place, as name=value,name=value, or parameter:NAME.", show_default=False)
    ] = "",
    budget: Annotated[str, typer.Option(help="What all new runs may cost together.", show_default=False)] = "",
    law: Law = None,
    group: Group = None,
    cost: CostText = None,
    noise: Annotated[
        float | None,
        typer.Option(min=0.0, help="Relative error of one run. (default: the scatter of the rows)", show_default=False),
    ] = None,
    simulate: Annotated[bool, typer.Option("--simulate", help="Check the plan by simulated experiments.")] = False,
    as_json: AsJson = False,
    home: Home = Path("results"),
    db: Database = None,
) -> None:
    """The runs that would shrink the uncertainty of one quantity most per unit of cost."""
    with failing(as_json):
        if not goal or not budget:
            raise typer.BadParameter("give --goal and --budget")
        (one,) = chosen(spec, overrides, home, db, [(law, group)])
        fit = usable(one.found.fit)
        asked, name = goal_of(fit, goal, one.found.of)
        price = cost_over(fit.law, cost)
        places = candidates(fit)
        plan = next_runs(fit, asked, places, price.at(places), number(budget), name=name, noise=noise)
        realised = score(fit, asked, plan, noise=noise) if simulate and plan.picks else None
        if as_json:
            extra = {} if realised is None else {"simulated": realised}
            print_json({"schema": 1, "fit": one.found.name, "group": one.found.group, **plan.to_json(), **extra})
            return
        _show(plan, unit_of(price.text), realised)


def _show(plan: Plan, unit: str, realised: float | None) -> None:
    from dataclasses import replace

    from scaling.answers.console import show

    said = [replace(plan, unit=unit).text]
    if realised is not None:
        said.append(f"By simulation of these runs: {shown(realised)}.")
    if any(p.aim == "test" for p in plan.picks):
        said.append("Runs for a test are chosen against the law: dear, and far from what has been run.")
    rows = tuple(
        (str(i), *(shown(v) for v in p.at.values()), shown(p.cost), p.aim, f"{p.after:.3g}")
        for i, p in enumerate(plan.picks, 1)
    )
    inputs = tuple(plan.picks[0].at) if plan.picks else ()
    sheets = [Sheet("Runs to add, in order", ("", *inputs, unit, "for", "s.e. then"), rows)] if rows else []
    show([*said, *(f"The fit: {reason}" for reason in plan.why)], sheets)


if __name__ == "__main__":
    app()
