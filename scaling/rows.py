"""What a fit sees: rows of inputs and responses, their errors, clusters and costs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from scaling.arrays import Bools, Floats, Ints
from scaling.errors import AnalysisError
from scaling.laws import Law
from scaling.objectives import Objective


@dataclass(frozen=True)
class Rows:
    """Rows of one fit: inputs x [d, n] > 0 (or [n] for one input), response y [n], their names.

    stderr [n] are standard errors of y (never variances or weights), `dof` the degrees of freedom behind them. Rows
    with the same number in `cluster` [n] are not independent. `cost` [n] is what a row cost, in FLOP or any unit.
    `censored` [n] marks rows whose y is only a lower bound, `trials` [n] the number of draws behind a share y.
    """

    x: Floats
    y: Floats
    stderr: Floats | None = None
    dof: float = 0.0
    ids: tuple[str, ...] = ()
    cluster: Ints | None = None
    cost: Floats | None = None
    censored: Bools | None = None
    trials: Floats | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "x", np.atleast_2d(np.asarray(self.x, dtype=float)))
        object.__setattr__(self, "y", np.asarray(self.y, dtype=float))

    def __len__(self) -> int:
        return len(self.y)

    def take(self, which: Ints | Bools) -> Rows:
        """The rows `which`."""
        index = np.arange(len(self))[which]
        return Rows(
            self.x[:, index], self.y[index], _taken(self.stderr, index), self.dof,
            tuple(self.ids[i] for i in index) if self.ids else (), _taken(self.cluster, index),
            _taken(self.cost, index), _taken(self.censored, index), _taken(self.trials, index),
        )  # fmt: skip

    def sorted(self) -> Rows:
        """The rows in an order that does not depend on how they came."""
        return self.take(np.lexsort((self.y, *self.x[::-1])))

    @property
    def groups(self) -> Ints:
        """The cluster of each row as 0, 1, …; every row its own where none are given."""
        if self.cluster is None:
            return np.arange(len(self))
        return np.unique(self.cluster, return_inverse=True)[1]

    @property
    def places(self) -> int:
        """How many different places the rows are at."""
        return len(np.unique(self.x, axis=1).T)

    def name(self, i: int) -> str:
        return self.ids[i] if self.ids else f"row {i + 1}"

    def check(self, law: Law, objective: Objective) -> None:
        """Raises AnalysisError for a row that can't enter the objective."""
        for axis, values in zip(law.inputs, self.x, strict=True):
            for i in np.flatnonzero(~(np.isfinite(values) & (values > 0)))[:1]:
                raise AnalysisError(f"{self.name(i)}: {axis} = {values[i]:g}, must be > 0 for law {law.name!r}.")
        residual = objective.residual
        allowed = np.isfinite(self.y)
        if objective.name == "binomial":
            allowed &= (self.y >= 0) & (self.y <= 1)
            wanted = "a share from 0 to 1 under objective: binomial"
        elif residual == "logit":
            allowed &= (self.y > 0) & (self.y < 1)
            wanted = "between 0 and 1 under residual: logit"
        elif residual == "log":
            allowed &= self.y > 0
            wanted = "> 0 under residual: log; residual: linear takes any number"
        else:
            wanted = "a finite number"
        for i in np.flatnonzero(~allowed)[:1]:
            raise AnalysisError(f"{self.name(i)}: the response is {self.y[i]:g}, must be {wanted}.")
        if self.stderr is not None and np.any(self.stderr < 0):
            raise AnalysisError("standard errors must not be negative.")


Array = TypeVar("Array", Floats, Ints, Bools)


def _taken(array: Array | None, index: Ints) -> Array | None:
    return None if array is None else array[index]


def cost_of(law: Law, x: Floats) -> Floats | None:
    """What places x [d, n] cost, in a unit of its own: 6 N D, or the input of a law over one; None if unknown."""
    if len(law.inputs) == 1:
        return np.asarray(x[0])
    if {"n_params", "tokens"} <= set(law.inputs):
        return np.asarray(6.0 * x[law.inputs.index("n_params")] * x[law.inputs.index("tokens")])
    return None
