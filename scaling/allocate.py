"""Spend a budget: `python -m scaling.allocate SPEC --budget 1e24`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from scaling.answers.allocate import allocate
from scaling.answers.arguments import (
    CostText,
    Given,
    Group,
    Law,
    Least,
    Level,
    Most,
    Multiple,
    chosen,
    limits_of,
    named_numbers,
    number,
)  # fmt: skip
from scaling.sources import AsJson, Database, Home, Overrides, failing, print_json

EPILOG = """Examples:

python -m scaling.allocate sweeps/published/chinchilla.yaml --budget 5.76e23

python -m scaling.allocate sweeps/published/chinchilla.yaml --budget 1e24 --cost "6*n_params*tokens + 2*n_params*1e12"
--limit tokens=1e13

Exit codes: 0 done (a refusal is an answer), 2 the spec or the arguments are wrong."""
app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command(epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
def main(  # noqa: PLR0917 - typer reads the command line from this signature
    spec: Annotated[Path, typer.Argument(help="The YAML file whose laws are fitted.", show_default=False)],
    overrides: Overrides = None,
    budget: Annotated[list[str], typer.Option(help="What may be spent; several give several answers.")] = [],  # noqa: B006
    law: Law = None,
    group: Group = None,
    cost: CostText = None,
    at: Given = None,
    limit: Most = None,
    least: Least = None,
    multiple: Multiple = None,
    noise: Annotated[float, typer.Option(min=0.0, help="Standard deviation of one run's response.")] = 0.0,
    level: Level = None,
    as_json: AsJson = False,
    home: Home = Path("results"),
    db: Database = None,
) -> None:
    """The best inputs of a fitted law for a budget, and what it costs to be off."""
    with failing(as_json):
        budgets = [number(text) for text in budget]
        if not budgets:
            raise typer.BadParameter("give at least one --budget, such as --budget 1e24")
        fixed, limits = named_numbers("--at", at), limits_of(limit, least, multiple)
        (one,) = chosen(spec, overrides, home, db, [(law, group)])
        answers = [
            allocate(one.found.fit, c, cost, at=fixed, limits=limits, goal=one.goal, level=level, noise=noise)
            for c in budgets
        ]
        if as_json:
            head = {"schema": 1, "fit": one.found.name, "of": one.found.of, "group": one.found.group}
            print_json({**head, "allocations": [a.to_json() for a in answers]})
            return
        from scaling.answers.console import show
        from scaling.answers.words import allocation_sentences, allocation_sheets

        for a in answers:
            show(allocation_sentences(a, one.found.of), allocation_sheets(a))


if __name__ == "__main__":
    app()
