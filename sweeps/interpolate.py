"""`${model.width}` in the values of `base`: read once into a plan, then filled cell by cell.

The meaning is OmegaConf's, for the part that is supported: absolute (`${a.b}`) and relative (`${.b}`,
`${..b}`) references, list items (`${a.0}`, `${a[0]}`), several in one text, and `\\${` for a plain `${`. A
value that is one reference takes the type of what it refers to. Resolvers (`${oc.env:HOME}`) are refused:
a spec reads nothing but itself.
"""

from __future__ import annotations

import marshal
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from sweeps import paths
from sweeps.errors import SweeplawError, nearest, shown
from sweeps.paths import Parts

_START = re.compile(r"(\\*)\$\{")
_REFERENCE = re.compile(r"(?P<dots>\.*)(?P<path>[A-Za-z0-9_]+(?:\.[A-Za-z0-9_]+|\[[0-9]+\])*)")
_ITEM = re.compile(r"\[([0-9]+)\]")

# Values that refer to values that refer to … may double at each level; these bounds end it early.
MAX_TEMPLATES = 200
MAX_TEXT = 10_000  # characters of one filled text
MAX_COPY = 100_000  # bytes of one filled mapping or list, marshalled


class InterpolationError(SweeplawError):
    """An interpolation that can't be read or filled; `place` is where it stands in `base`."""

    def __init__(self, problem: str, place: Parts = ()) -> None:
        super().__init__(problem)
        self.place = place


@dataclass(frozen=True)
class Template:
    """One text of `base` with references: where it stands, and its pieces (texts and referred places)."""

    place: Parts
    pieces: tuple[str | Parts, ...]

    @property
    def references(self) -> list[Parts]:
        return [piece for piece in self.pieces if isinstance(piece, tuple)]

    def fill(self, config: dict[str, Any]) -> None:
        """Writes the value into `config`. Raises KeyError with the dotted place that is missing."""
        if len(self.pieces) == 1 and isinstance(self.pieces[0], tuple):
            value = paths.read(config, self.pieces[0])
            if isinstance(value, dict | list):
                blob = marshal.dumps(value, 2)
                if len(blob) > MAX_COPY:
                    raise InterpolationError("the interpolation grows too large", self.place)
                value = marshal.loads(blob)  # a copy: no two places share a container
        else:
            value = "".join(
                piece if isinstance(piece, str) else str(paths.read(config, piece)) for piece in self.pieces
            )
            if len(value) > MAX_TEXT:
                raise InterpolationError("the interpolation grows too large", self.place)
        paths.write(config, self.place, value)


def interpolated(text: str) -> bool:
    """Whether a text has `${` (escaped or not)."""
    return "${" in text


def parse(text: str, place: Parts) -> Template:
    """The pieces of a text that stands at `place`. Raises InterpolationError."""
    pieces: list[str | Parts] = []
    plain, position = "", 0
    while (start := _START.search(text, position)) is not None:
        slashes = len(start[1])
        plain += text[position : start.start()] + "\\" * (slashes // 2)
        if slashes % 2:
            plain, position = plain + "${", start.end()
            continue
        end = text.find("}", start.end())
        if end < 0:
            raise InterpolationError(f"`{shown(text)}` has a `${{` without a `}}`", place)
        if plain:
            pieces.append(plain)
        pieces.append(_reference(text[start.end() : end], place))
        plain, position = "", end + 1
    plain += text[position:]
    if plain or not pieces:
        pieces.append(plain)
    return Template(place, tuple(pieces))


def _reference(inner: str, place: Parts) -> Parts:
    whole = f"${{{shown(inner)}}}"
    if "${" in inner:
        raise InterpolationError(f"`{whole}` is nested; refer to one place by its path", place)
    if ":" in inner:
        resolver = inner.partition(":")[0].strip()
        raise InterpolationError(
            f"`{whole}` is refused: a spec may not read the environment or run code, so `{shown(resolver)}:` "
            "is not available; write the value, or refer to another value of base",
            place,
        )
    match = _REFERENCE.fullmatch(inner.strip())
    if match is None:
        raise InterpolationError(f"`{whole}` is not a path such as `${{model.width}}`", place)
    parts = paths.split(_ITEM.sub(r".\1", match["path"]))
    dots = len(match["dots"])
    if dots == 0:
        return parts
    if dots > len(place):
        raise InterpolationError(f"`{whole}` goes above base", place)
    return place[: len(place) - dots] + parts


def templates(base: Any) -> list[Template]:
    """The interpolations of `base`, in the order they stand. Raises InterpolationError."""
    found = [(place, text) for place, text in paths.leaves(base) if isinstance(text, str) and interpolated(text)]
    if len(found) > MAX_TEMPLATES:
        raise InterpolationError(
            f"{len(found)} interpolations; at most {MAX_TEMPLATES} are allowed", found[MAX_TEMPLATES][0]
        )
    return [parse(text, place) for place, text in found]


def ordered(found: Sequence[Template]) -> list[Template]:
    """The templates so that each comes after those it reads. Raises InterpolationError for a cycle."""
    waiting = {template.place: [t for t in found if _reads(template, t)] for template in found}
    done: list[Template] = []
    placed: set[Parts] = set()
    while len(done) < len(found):
        ready = [t for t in found if t.place not in placed and all(other.place in placed for other in waiting[t.place])]
        if not ready:
            stuck = _cycle(found, placed, waiting)
            chain = " -> ".join(".".join(t.place) for t in [*stuck, stuck[0]])
            raise InterpolationError(
                f"the interpolations refer to each other in a circle: {shown(chain, 300)}", stuck[0].place
            )
        done.extend(ready)
        placed.update(t.place for t in ready)
    return done


def _reads(template: Template, other: Template) -> bool:
    return any(paths.overlap(reference, other.place) for reference in template.references)


def _cycle(found: Sequence[Template], placed: set[Parts], waiting: dict[Parts, list[Template]]) -> list[Template]:
    here = next(t for t in found if t.place not in placed)
    walked: list[Template] = []
    while here not in walked:
        walked.append(here)
        here = next(t for t in waiting[here.place] if t.place not in placed)
    return walked[walked.index(here) :]


def affected(order: Iterable[Template], changed: Iterable[Parts]) -> list[Template]:
    """Of templates in order, those whose value depends on a changed place, directly or through others."""
    moved = list(changed)
    result = []
    for template in order:
        if any(paths.overlap(ref, place) for ref in template.references for place in moved):
            result.append(template)
            moved.append(template.place)
    return result


def missing(template: Template, known: Sequence[Parts], order: Sequence[Template]) -> str | None:
    """A sentence for a reference that leads nowhere, given every place that base or an axis sets."""
    through = [t.place for t in order]
    for reference in template.references:
        below = any(reference[: len(place)] == place for place in through)
        if below or any(place[: len(reference)] == reference for place in known):
            continue
        name = ".".join(reference)
        return (
            f"`${{{shown(name)}}}` refers to nothing in base and to no place that an axis or a derived value sets"
            f"{nearest(name, ['.'.join(place) for place in known])}"
        )
    return None
