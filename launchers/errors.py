"""What can go wrong here, and the exit codes of every command.

SweeplawError
└── LaunchError       a sweep that can't be started as asked
    └── TaskError     the task of a spec can't be imported or doesn't fit
Interrupted           (BaseException) unwinds a task whose job has to stop
"""

from __future__ import annotations

from enum import IntEnum

from sweeps.errors import SweeplawError


class Exit(IntEnum):
    OK = 0  # everything asked for is done
    FAILED = 1  # some runs failed
    USAGE = 2  # the spec or the arguments are wrong
    INTERRUPTED = 130  # Ctrl-C; the same command continues


class LaunchError(SweeplawError):
    """A sweep that can't be started as asked."""


class TaskError(LaunchError):
    """The task of a spec can't be imported, or isn't a task."""


class Interrupted(BaseException):
    """Raised inside a task, after its state was saved, when the job has to stop."""
