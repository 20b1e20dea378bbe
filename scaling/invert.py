"""What it takes to reach a target: `python -m scaling.invert SPEC --target 2.1 --axis tokens --at n_params=7e9`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from scaling.answers.arguments import (
    CostText,
    Given,
    Group,
    Law,
    Least,
    Level,
    Most,
    chosen,
    limits_of,
    named_numbers,
    number,
)  # fmt: skip
from scaling.answers.invert import invert
from scaling.sources import AsJson, Database, Home, Overrides, failing, print_json

EPILOG = """Examples:

python -m scaling.invert sweeps/published/chinchilla.yaml --target 2.1 --axis tokens --at n_params=7e9

python -m scaling.invert sweeps/published/chinchilla.yaml --target 2.0

Exit codes: 0 done (a refusal is an answer), 2 the spec or the arguments are wrong."""
app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command(epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
def main(  # noqa: PLR0917 - typer reads the command line from this signature
    spec: Annotated[Path, typer.Argument(help="The YAML file whose laws are fitted.", show_default=False)],
    overrides: Overrides = None,
    target: Annotated[str | None, typer.Option(help="The response to reach.", show_default=False)] = None,
    within: Annotated[
        float | None,
        typer.Option(help="Instead of a target: the share of what the axis gives at its --limit, or without end.",
                     show_default=False),
    ] = None,
    axis: Annotated[
        str | None, typer.Option(help="The input whose value is wanted. (default: the cost)", show_default=False)
    ] = None,
    law: Law = None,
    group: Group = None,
    cost: CostText = None,
    at: Given = None,
    limit: Most = None,
    least: Least = None,
    level: Level = None,
    as_json: AsJson = False,
    home: Home = Path("results"),
    db: Database = None,
) -> None:  # fmt: skip
    """The smallest value of an input, or the smallest cost, whose response reaches a target."""
    with failing(as_json):
        aim = None if target is None else number(target)
        fixed, limits = named_numbers("--at", at), limits_of(limit, least)
        (one,) = chosen(spec, overrides, home, db, [(law, group)])
        answer = invert(
            one.found.fit, aim, axis, at=fixed, cost=cost, limits=limits, within=within, goal=one.goal, level=level
        )
        if as_json:
            head = {"schema": 1, "fit": one.found.name, "of": one.found.of, "group": one.found.group}
            print_json({**head, "inversion": answer.to_json()})
            return
        from scaling.answers.console import show
        from scaling.answers.words import inversion_sentences

        show(inversion_sentences(answer, one.found.of))


if __name__ == "__main__":
    app()
