"""Which runs would teach most: `python -m scaling.next SPEC --goal n_params=7e10,tokens=1.4e12 --budget 1e21`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from scaling.answers.arguments import (
    Chosen,
    CostText,
    Group,
    Law,
    Least,
    Most,
    chosen,
    limits_of,
    named_numbers,
    number,
)  # fmt: skip
from scaling.answers.cost import Cost, cost_over
from scaling.answers.words import Sheet, unit_of
from scaling.arrays import Floats
from scaling.design import Check, design_check
from scaling.errors import AnalysisError, nearest
from scaling.experiments import (
    MOST_RUNS,
    PER_PLACE,
    Goal,
    Plan,
    best_input_goal,
    candidates,
    next_experiments,
    parameter_goal,
    prediction_goal,
    reach_goal,
    score,
)  # fmt: skip
from scaling.findings import point_text
from scaling.fits import Fit
from scaling.sources import AsJson, Database, Home, Overrides, failing, print_json
from scaling.wording import number as shown
from scaling.wording import plain

KINDS = ("parameter", "best", "reach")
EPILOG = """Goals: a place (n_params=7e10,tokens=1.4e12), parameter:alpha, best:n_params@1e24 (the logarithm of the best
n_params at that budget), reach:2.0 (the logarithm of the least cost that reaches a response).

Examples:

python -m scaling.next sweeps/published/chinchilla.yaml --law 'Huber 1e-3' --goal n_params=7e10,tokens=1.4e12
--budget 1e22

python -m scaling.next sweeps/published/chinchilla.yaml --law 'Huber 1e-3' --goal best:n_params@1e24 --budget 1e22

Exit codes: 0 done (a refusal is an answer), 2 the spec or the arguments are wrong."""
app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


def goal_of(one: Chosen, text: str, cost: str | None) -> tuple[Goal, str]:
    """The quantity that `text` asks about, and what it is called.

    A place, `parameter:NAME`, `best:INPUT@BUDGET` or `reach:RESPONSE`. Raises AnalysisError for anything else.
    """
    fit, of = one.found.fit, one.found.of
    kind, sign, rest = (part.strip() for part in text.partition(":"))
    if not sign:
        at, residual = named_numbers("--goal", text.split(",")), fit.objective.residual
        what = of if residual == "linear" else f"{residual} {of}"
        return prediction_goal(fit.law, at, residual), f"{what} at {point_text(at)}"
    if kind == "parameter":
        return parameter_goal(fit.law, rest), rest
    if kind == "best":
        name, _, budget = rest.partition("@")
        return best_input_goal(fit, name, number(budget), cost, one.goal), f"log {name} at {plain(number(budget))}"
    if kind == "reach":
        return reach_goal(fit, number(rest), cost, one.goal), f"log cost to reach {of} {rest}"
    raise AnalysisError(f"--goal {text!r}: {kind!r} is no kind of goal.{nearest(kind, KINDS)}")


def offered(fit: Fit, kind: Literal["grid", "cells"], most: list[str] | None, least: list[str] | None) -> Floats:
    """The candidates [d, m] within the limits. Raises AnalysisError for an unknown input or where none is left."""
    places = candidates(fit, kind)
    for name, limit in limits_of(most, least).items():
        if name not in fit.law.inputs:
            raise AnalysisError(f"limit {name!r}: {fit.law.name} has no such input.{nearest(name, fit.law.inputs)}")
        low, high = limit.range
        row = places[fit.law.inputs.index(name)]
        places = places[:, (row >= low * (1 - 1e-12)) & (row <= high * (1 + 1e-12))]
    if not places.shape[1]:
        raise AnalysisError("no candidate lies within the limits.")
    return places


def check_of(fit: Fit, cost: Cost) -> Check:
    """What the rows of a refused fit can tell of its law, and what would cure it."""
    return design_check(fit.law, fit.rows.x, residual=fit.objective.residual, cost=cost.at(fit.rows.x))


@app.command(epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
def main(  # noqa: PLR0917 - typer reads the command line from this signature
    spec: Annotated[Path, typer.Argument(help="The YAML file whose law is asked.", show_default=False)],
    overrides: Overrides = None,
    goal: Annotated[
        str, typer.Option(help="A place as name=value,name=value; parameter:, best: or reach:.", show_default=False)
    ] = "",
    budget: Annotated[str, typer.Option(help="What all new runs may cost together.", show_default=False)] = "",
    law: Law = None,
    group: Group = None,
    cost: CostText = None,
    places: Annotated[
        Literal["grid", "cells"], typer.Option("--candidates", help="A grid around the rows, or their places only.")
    ] = "grid",
    limit: Most = None,
    least: Least = None,
    per_place: Annotated[int, typer.Option(min=1, help="How often a place may be run.")] = PER_PLACE,
    runs: Annotated[int, typer.Option(min=1, help="How many runs at most.")] = MOST_RUNS,
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
            raise typer.BadParameter("give --goal and --budget, such as --goal parameter:alpha --budget 1e21")
        (one,) = chosen(spec, overrides, home, db, [(law, group)])
        fit = one.found.fit
        price = cost_over(fit.law, cost)
        head = {"schema": 1, "fit": one.found.name, "group": one.found.group}
        if not fit.params:
            _refused(fit, price, head if as_json else None)
            return
        asked, name = goal_of(one, goal, cost)
        grid = offered(fit, places, limit, least)
        plan = next_experiments(
            fit, asked, grid, price.at(grid), number(budget), name=name, unit=unit_of(price.text), noise=noise,
            per_place=per_place, most=runs,
        )  # fmt: skip
        realised = score(fit, asked, plan, noise=noise) if simulate and plan.picks else None
        if as_json:
            print_json({**head, **plan.to_json(), **({} if realised is None else {"simulated": realised})})
            return
        _show(plan, realised)


def _refused(fit: Fit, price: Cost, head: dict[str, Any] | None) -> None:
    """Without parameters there is no plan for a goal, but there may be runs that give parameters."""
    check = check_of(fit, price)
    if head is not None:
        print_json({**head, "why": list(fit.why), "check": check.to_json()})
        return
    from scaling.answers.console import show

    show([*fit.why, *([check.advice] if check.advice else [])])


def _show(plan: Plan, realised: float | None) -> None:
    from scaling.answers.console import show

    said = [plan.text]
    if realised is not None:
        said.append(f"In simulated experiments with these runs it is {shown(realised, 0.1 * realised)}.")
    if any(p.aim == "test" for p in plan.picks):
        said.append("Runs for a test are chosen against the law: dear, and far from what has been run.")
    inputs = tuple(plan.picks[0].at) if plan.picks else ()
    rows = [
        (*(shown(p.at[n]) for n in inputs), times, shown(p.cost), p.aim, f"{after:.3g}")
        for p, times, after in _runs(plan)
    ]
    sheets = [Sheet("Runs to add, in order", (*inputs, "runs", f"{plan.unit} each", "for", "s.e. then"), tuple(rows))]
    show([*said, *plan.why], sheets if rows else [])


def _runs(plan: Plan) -> list[tuple[Any, str, float]]:
    """The picks, with neighbours that are replicates of each other taken together: pick, number, error after."""
    made: list[tuple[Any, int, float]] = []
    for p in plan.picks:
        if made and made[-1][0].at == p.at and made[-1][0].aim == p.aim:
            made[-1] = (made[-1][0], made[-1][1] + 1, p.after)
        else:
            made.append((p, 1, p.after))
    return [(p, str(n), after) for p, n, after in made]


if __name__ == "__main__":
    app()
