"""What a person sees while runs are trained: a bar with an estimate on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from types import TracebackType

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

LINE_SECONDS = 15.0
MAX_ALIKE = 3


def duration(seconds: float | None) -> str:
    """A duration in two units at most: `45 s`, `3 min 20 s`, `2 h 05 min`, `3 d 4 h`."""
    if seconds is None:
        return "?"
    if 0 < seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours < 48 else f"{hours // 24} d {hours % 24} h"


class RunProgress:
    """Counts outcomes and estimates the time left from the cost of what is done and what is not."""

    def __init__(self, console: Console, weights: Mapping[str, float]) -> None:
        self._console, self._weights = console, weights
        self._left = dict(weights)
        self._began = self._line = time.monotonic()
        self.counts: dict[str, int] = {}
        self._reasons: Counter[str] = Counter()
        self._bar = Progress(
            SpinnerColumn(),
            TextColumn("{task.completed:.0f}/{task.total:.0f} runs"),
            BarColumn(None),
            TimeElapsedColumn(),
            TextColumn("{task.fields[text]}"),
            console=console,
            disable=not console.is_terminal,
            transient=True,
        )
        self._task = self._bar.add_task("", total=len(weights), text="")

    def __enter__(self) -> RunProgress:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def finished(self, run: str, status: str, name: str, reason: str | None) -> None:
        """One more outcome. Failures and divergences are said at once, above the bar."""
        self._left.pop(run, None)
        self.counts[status] = self.counts.get(status, 0) + 1
        if status in ("failed", "diverged"):
            self._say(status, name, (reason or "").partition("\n")[0])
        self._bar.update(self._task, completed=len(self._weights) - len(self._left), text=self._text())

    def _say(self, status: str, name: str, reason: str) -> None:
        """A sweep often fails for one reason; after MAX_ALIKE runs it is only counted."""
        self._reasons[reason] += 1
        if self._reasons[reason] > MAX_ALIKE:
            return
        colour = "red" if status == "failed" else "yellow"
        more = "; more like this are only counted" if self._reasons[reason] == MAX_ALIKE else ""
        self._console.print(f"[{colour}]{status}[/] {escape(name)}: {escape(reason)}{more}", highlight=False)

    def tick(self) -> None:
        self._bar.update(self._task, text=self._text())
        if not self._console.is_terminal and time.monotonic() - self._line > LINE_SECONDS:
            self._line = time.monotonic()
            done = len(self._weights) - len(self._left)
            self._console.print(f"{done}/{len(self._weights)} runs, {self._text()}", highlight=False)

    def _text(self) -> str:
        done = sum(self._weights.values()) - sum(self._left.values())
        bad = [f"{self.counts[s]} {s}" for s in ("failed", "diverged") if self.counts.get(s)]
        if done <= 0:
            return ", ".join([*bad, "ETA after the first run"])
        eta = (time.monotonic() - self._began) * sum(self._left.values()) / done
        return ", ".join([*bad, f"ETA {duration(eta)}"])
