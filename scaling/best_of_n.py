"""Best of N from reward samples: `python -m scaling.best_of_n rewards.csv --n 16,256`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import numpy as np
import orjson
import polars as pl
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from scaling.errors import AnalysisError, nearest
from scaling.tails.tail import TailFit, fit_tail
from scaling.wording import clean, interval

USAGE_ERROR = 2
EPILOG = """Example:

python -m scaling.best_of_n rewards.csv --reward reward --prompt prompt --n 16,256,1024

Exit codes: 0 done (a refusal is an answer), 2 the table or the arguments are wrong."""
app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


def read_rewards(path: Path, reward: str, prompt: str | None) -> tuple[list[str], list[np.ndarray[Any, Any]]]:
    """Prompts and their samples from a CSV, Parquet or NPY file (`[prompts, samples]` or `[samples]`).

    Without `prompt`, a table is one group. Raises AnalysisError naming the file, and the column or row.
    """
    if not path.exists():
        raise AnalysisError(f"{path}: no such file")
    if path.suffix == ".npy":
        matrix = np.atleast_2d(np.load(path, allow_pickle=False)).astype(float)
        return [f"prompt {i}" for i in range(len(matrix))], list(matrix)
    try:
        frame = pl.read_parquet(path) if path.suffix == ".parquet" else pl.read_csv(path, comment_prefix="#")
    except (pl.exceptions.PolarsError, OSError) as error:
        raise AnalysisError(f"{path}: can't be read: {str(error).splitlines()[0]}") from None
    for name in (reward, *([prompt] if prompt else [])):
        if name not in frame.columns:
            raise AnalysisError(f"{path}: no column {name!r}.{nearest(name, frame.columns)}")
    if not frame[reward].dtype.is_numeric():
        raise AnalysisError(f"{path}: column {reward!r} holds {frame[reward].dtype}, rewards are numbers.")
    if missing := frame[reward].null_count():
        raise AnalysisError(f"{path}: column {reward!r} lacks {missing} of {len(frame)} rewards.")
    if prompt is None:
        return ["all"], [frame[reward].cast(pl.Float64).to_numpy()]
    groups = frame.group_by(prompt, maintain_order=True).agg(pl.col(reward).cast(pl.Float64))
    return [str(name) for name in groups[prompt]], [np.array(values) for values in groups[reward]]


def answers(fit: TailFit, counts: list[int]) -> list[dict[str, Any]]:
    """E[best of N], mean over prompts, for each N: with its interval, or with the sentence that stands instead."""
    if fit.status == "refused":
        return [{"n": n, "why": " ".join(fit.why)} for n in counts]
    found = fit.predict(np.array(counts, dtype=float))
    made: list[dict[str, Any]] = []
    for i, n in enumerate(counts):
        if found.why and found.why[i]:
            made.append({"n": n, "why": found.why[i]})
            continue
        ends = {} if found.lo is None or found.hi is None else {"lo": float(found.lo[i]), "hi": float(found.hi[i])}
        made.append({"n": n, "value": float(found.value[i]), **ends, "measured": n <= fit.n})
    return made


@app.command(epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
def best_of_n(  # noqa: PLR0917 - typer reads the command line from this signature
    table: Annotated[Path, typer.Argument(help="CSV, Parquet or NPY file of rewards.", show_default=False)],
    n: Annotated[str, typer.Option("--n", help="The N to answer for, with commas.")] = "1,4,16,64,256,1024",
    reward: Annotated[str, typer.Option(help="Column of the rewards.")] = "reward",
    prompt: Annotated[str | None, typer.Option(help="Column that says which prompt a reward belongs to.")] = None,
    target: Annotated[float | None, typer.Option(help="Also answer: which N reaches this reward?")] = None,
    level: Annotated[float, typer.Option(min=0.5, max=0.999, help="Coverage of the intervals.")] = 0.95,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output.")] = False,
) -> None:
    """Expected best of N samples: exact inside the data, from a fitted and back-tested tail beyond."""
    try:
        counts = _counts(n)
        names, samples = read_rewards(table, reward, prompt)
        fit = fit_tail(samples, names=names, level=level)
        output: dict[str, Any] = {"schema": 1, "fit": fit.to_json(), "level": level, "best_of": answers(fit, counts)}
        if target is not None and fit.status != "refused":
            found = fit.invert(target)
            output["target"] = {"reward": target, **{k: v for k, v in vars(found).items() if v is not None}}
    except AnalysisError as error:
        Console(stderr=True).print(Text.assemble(("error: ", "bold red"), str(error)), soft_wrap=True)
        raise typer.Exit(USAGE_ERROR) from None
    if as_json:
        print(orjson.dumps(output, option=orjson.OPT_INDENT_2).decode())
    else:
        _print(fit, output)


def _counts(text: str) -> list[int]:
    try:
        counts = [int(part) for part in text.split(",")]
    except ValueError:
        counts = []
    if not counts or min(counts) < 1:
        raise AnalysisError(f"--n {text}: expected whole numbers from 1 on, with commas, such as 16,256.")
    return counts


def _print(fit: TailFit, output: dict[str, Any]) -> None:
    console = Console()
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("N", "expected best", ""):
        table.add_column(heading, justify="right" if heading == "N" else "left")
    for row in output["best_of"]:
        if "value" in row:
            where = "measured" if row["measured"] else f"predicted ({fit.family})"
            table.add_row(str(row["n"]), interval(row["value"], row.get("lo"), row.get("hi")), where)
        else:
            table.add_row(str(row["n"]), "–", Text(clean(row["why"])))
    groups = len(fit.groups)
    console.print(f"{int(fit.groups.n.sum())} rewards of {groups} prompt{'s' if groups > 1 else ''}", highlight=False)
    console.print(table)
    if "target" in output:
        console.print(Text(_target_text(output["target"])))
    if fit.status != "refused":
        for sentence in fit.why:
            console.print(Text(f"- {clean(sentence)}"))


def _target_text(target: dict[str, Any]) -> str:
    if "n" not in target:
        return f"reward {target['reward']:g}: {target.get('why', 'not reached')}"
    return f"reward {target['reward']:g} is expected at N = {interval(target['n'], target.get('lo'), target.get('hi'))}"


if __name__ == "__main__":
    app(prog_name="python -m scaling.best_of_n")
