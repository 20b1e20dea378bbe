"""Answers as rich renderables, for a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from scaling.answers.words import Sheet


def table_of(sheet: Sheet) -> Table:
    """A sheet as a table without lines; texts are printed as they are, markup has no effect."""
    made = Table(title=Text(sheet.title, style="bold"), title_justify="left", box=None, pad_edge=False,
                 header_style="bold")  # fmt: skip
    for index, heading in enumerate(sheet.columns):
        made.add_column(Text(heading), overflow="fold", min_width=3 if index else None)
    for row in sheet.rows:
        made.add_row(*map(Text, row))
    return made


def show(sentences: Sequence[str], sheets: Sequence[Sheet] = (), console: Console | None = None) -> None:
    """Prints sentences, then tables."""
    console = console or Console()
    for sentence in sentences:
        console.print(Text(sentence))
    for sheet in sheets:
        console.print()
        console.print(table_of(sheet))
