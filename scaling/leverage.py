"""Compute leverage between two fits: `python -m scaling.leverage SPEC --a rule=standard --b rule=hyperp`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from scaling.answers.arguments import CostText, Given, Law, Level, chosen, named_numbers, number
from scaling.answers.leverage import leverage
from scaling.sources import AsJson, Database, Home, Overrides, failing, print_json

EPILOG = """Example:

python -m scaling.leverage sweeps/published/hyperp.yaml --law power_offset --a optimizer=muon --b optimizer=hyperp

Exit codes: 0 done (a refusal is an answer), 2 the spec or the arguments are wrong."""
app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


def selection(law: str | None, text: str) -> tuple[str | None, list[str]]:
    """The fit that `text` means: groups as key=value with commas, or the name of a fit."""
    parts = [part.strip() for part in text.split(",")]
    groups = [part for part in parts if "=" in part]
    names = [part for part in parts if "=" not in part]
    return (names[0] if names else law), groups


@app.command(epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
def main(  # noqa: PLR0917 - typer reads the command line from this signature
    spec: Annotated[Path, typer.Argument(help="The YAML file whose laws are fitted.", show_default=False)],
    overrides: Overrides = None,
    a: Annotated[str, typer.Option("--a", help="The baseline: a fit's name, or its group as key=value.")] = "",
    b: Annotated[str, typer.Option("--b", help="What is compared with it, in the same way.")] = "",
    law: Law = None,
    cost: CostText = None,
    at: Given = None,
    response: Annotated[
        list[str] | None,
        typer.Option(help="Responses to compare at. (default: those that both have seen)", show_default=False),
    ] = None,
    level: Level = None,
    as_json: AsJson = False,
    home: Home = Path("results"),
    db: Database = None,
) -> None:
    """How many times less b costs than a for the same response."""
    with failing(as_json):
        if not a or not b:
            raise typer.BadParameter("give --a and --b, such as --a rule=standard --b rule=hyperp")
        wanted = [number(text) for text in response] if response else None
        fixed = named_numbers("--at", at)
        one, other = chosen(spec, overrides, home, db, [selection(law, a), selection(law, b)])
        answer = leverage(
            one.found.fit, other.found.fit, wanted, names=(a, b), cost=cost, at=fixed, goal=one.goal, level=level
        )
        if as_json:
            print_json({"schema": 1, "of": one.found.of, **answer.to_json()})
            return
        from scaling.answers.console import show
        from scaling.answers.words import leverage_sentences, leverage_sheets

        show(leverage_sentences(answer, one.found.of), leverage_sheets(answer, one.found.of))


if __name__ == "__main__":
    app()
