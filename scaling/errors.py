"""What the analysis raises when it is asked for something the results cannot give."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

from sweeps.errors import SweeplawError


class AnalysisError(SweeplawError):
    """The spec asks of the results what they do not hold; the text says what and offers the nearest name."""


def nearest(name: str, known: Iterable[str]) -> str:
    """A clause such as " Did you mean 'val_loss'?", or the choices, or nothing when there are none."""
    choices = sorted(known)
    close = get_close_matches(name, choices, n=1, cutoff=0.5)
    if close:
        return f" Did you mean {close[0]!r}?"
    return f" Known: {', '.join(choices)}." if choices else ""
