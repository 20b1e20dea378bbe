"""The exceptions a user may meet. Each text is one clear sentence for a person.

SweeplawError
├── SpecError            a spec (or an override) is wrong, with its place
├── ScalarError          an unquoted value that people and YAML readers disagree about
├── IdentityError        a value that has no canonical form
└── ExpressionError      an expression that can't be read or makes no sense
    └── NoValue          an expression without a value for these inputs (log of 0, an unknown fact)
        └── Impossible   the task says that the configuration can't be
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from typing import Any


class SweeplawError(Exception):
    """Base of every expected failure; its text is for a person."""


class SpecError(SweeplawError):
    """What is wrong in a spec, and where: `<file>:<line>:<column>: <key.path>: <sentence>`.

    `line` and `column` count from 1; both are None for a file as a whole or a command-line override (then
    `file` names the override). When several things are wrong, the attributes are those of the first one,
    `others` has the rest, and the text has a line for each.
    """

    def __init__(
        self,
        problem: str,
        *,
        file: str = "",
        line: int | None = None,
        column: int | None = None,
        key: str = "",
        others: Sequence[SpecError] = (),
    ) -> None:
        self.problem = problem
        self.file = file
        self.line = line
        self.column = column
        self.key = key
        self.others = tuple(others)
        place = ":".join(str(part) for part in (file, line, column) if part not in ("", None))
        own = ": ".join(part for part in (place, shown(key, 200), problem) if part)
        super().__init__("\n".join([own, *map(str, self.others)]))

    @classmethod
    def join(cls, errors: Sequence[SpecError]) -> SpecError:
        """One error that tells all of `errors` (at least one), in the order of their places."""
        ordered = sorted(errors, key=lambda e: (e.line or 0, e.column or 0))
        first = ordered[0]
        return cls(
            first.problem,
            file=first.file,
            line=first.line,
            column=first.column,
            key=first.key,
            others=ordered[1:],
        )


class ScalarError(SweeplawError):
    """An unquoted value that people and YAML readers disagree about."""


class IdentityError(SweeplawError):
    """A value that has no canonical form, so no stable identity."""


class ExpressionError(SweeplawError):
    """An expression that can't be read, names something unknown, or gives the wrong kind of result."""


class NoValue(ExpressionError):
    """An expression that has no value for these inputs, such as a division by zero."""


class Impossible(NoValue):
    """The task refused the configuration; the text is the task's own."""


def nearest(name: str, known: Iterable[str]) -> str:
    """`; did you mean `x`?` for the known name closest to `name`, or an empty text."""
    if len(name) > 100:
        return ""
    choices = [choice for choice in known if len(choice) <= 100]
    exact = [choice for choice in choices if choice.lower() == name.lower()]
    tails = [choice for choice in choices if choice.rpartition(".")[2] == name]
    found = exact or difflib.get_close_matches(name, choices, n=1, cutoff=0.6) or tails[:1]
    return f"; did you mean `{found[0]}`?" if found else ""


def listed(names: Iterable[str], limit: int = 12) -> str:
    """Names for a sentence: `a`, `b`, `c` (at most `limit` of them)."""
    quoted = [f"`{name}`" for name in names]
    return ", ".join(quoted[:limit]) + (f" and {len(quoted) - limit} more" if len(quoted) > limit else "")


def shown(text: object, limit: int = 60) -> str:
    """A value for a sentence, cut to `limit` characters."""
    whole = str(text)
    return whole if len(whole) <= limit else f"{whole[: limit - 1]}…"


def described(value: Any) -> str:
    """What a value is, for a sentence: `the text 'x'`, `the number 3`, `a list`."""
    if value is None:
        return "null (an empty value)"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return f"the text '{shown(value, 40)}'"
    if isinstance(value, int | float):
        return f"the number {shown(value, 30)}"
    if isinstance(value, list | tuple):
        return "an empty list" if not value else "a list"
    if isinstance(value, dict):
        return "an empty mapping" if not value else "a mapping"
    return f"a {type(value).__name__}"
