"""The numbers of an analysis as rich renderables, for a terminal of any width."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from rich.box import Box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.padding import Padding
from rich.table import Table as RichTable
from rich.text import Text

from scaling import wording

if TYPE_CHECKING:
    from sweeps.schema import Spec

GAP = 2  # columns between columns
NOTE = 24  # columns that a note needs at least
HEAD = Box("    \n    \n ── \n    \n    \n    \n    \n    \n")  # a rule below the headings and nothing else


def summary(analysis: Any, spec: Spec | None = None) -> list[RenderableType]:
    """What a person should see when a sweep has been analysed: question, answer, tables, notes.

    `analysis` is an `Analysis` or its `to_json()`. Names from the spec are printed as text: neither
    console markup nor control characters in them have an effect.
    """
    data = wording.as_json(analysis)
    parts: list[RenderableType] = [Text(wording.clean(str(data.get("sweep", ""))), style="bold")]
    if spec is not None and spec.question:
        parts.append(Text(wording.clean(spec.question), style="italic"))
    parts.append(Text(wording.runs_sentence(data), style="dim"))
    parts.append(Text(""))
    parts += [Text(sentence) for sentence in wording.answer(data)]
    parts += [_Table(table) for table in wording.tables(data)]
    notes = [wording.clean(str(note)) for note in data.get("notes", ())]
    if notes:
        parts += [Text("\nNotes", style="bold"), *(_item("-", note) for note in notes)]
    return parts


def _item(mark: str, text: str) -> RenderableType:
    grid = RichTable.grid(padding=(0, 1))
    grid.add_row(mark, Text(text))
    return grid


class _Table:
    """A wording.Table as columns where they fit, else as one block a row."""

    def __init__(self, table: wording.Table) -> None:
        self.table = table

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Text(f"\n{self.table.title}", style="bold")
        columns = _columns(self.table)
        if _needs(self.table) <= options.max_width:
            yield columns
        else:
            yield from _blocks(self.table)
        for number, note in enumerate(self.table.notes, 1):
            yield _item(f"{number}", note)
        yield Text(self.table.caption, style="dim")


def _needs(table: wording.Table) -> int:
    """Terminal columns that the table takes with nothing wrapped but notes."""
    widths = [
        max(min(cell_len(line), NOTE) if _wraps(title) else cell_len(line) for line in lines)
        for title, lines in _lines(table)
    ]
    return sum(widths) + GAP * (len(widths) - 1)


def _lines(table: wording.Table) -> list[tuple[str, list[str]]]:
    """Every column's title with the lines of its cells, the title among them."""
    cells = zip(table.columns, *table.rows, strict=True)
    return [(title, [line for text in (title, *rest) for line in text.split("\n")]) for title, *rest in cells]


def _wraps(title: str) -> bool:
    return title == "reason"


def _columns(table: wording.Table) -> RichTable:
    made = RichTable(box=HEAD, show_edge=False, pad_edge=False, padding=(0, GAP - 1, 0, 0),
                     collapse_padding=True, header_style="bold")  # fmt: skip
    for index, title in enumerate(table.columns):
        made.add_column(Text(title), justify="right" if index in table.numeric else "left", no_wrap=not _wraps(title))
    for row in table.rows:
        made.add_row(*map(Text, row))
    return made


def _blocks(table: wording.Table) -> Iterator[RenderableType]:
    for row in table.rows:
        about = enumerate(row[: table.keys])
        yield Text(" · ".join(f"{table.columns[i]} {t}" if i in table.numeric else t for i, t in about if t))
        grid = RichTable.grid(padding=(0, GAP, 0, 0))
        grid.add_column(style="dim", no_wrap=True)
        grid.add_column()
        for title, text in zip(table.columns[table.keys :], row[table.keys :], strict=True):
            if text:
                grid.add_row(Text(title), Text(text))
        yield Padding(grid, (0, 0, 0, 2))
