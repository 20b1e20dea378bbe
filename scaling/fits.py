"""A fit: a law with parameters, their joint draws and the rows it saw; what it answers, and how far to trust it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from scaling.arrays import Floats
from scaling.errors import AnalysisError
from scaling.intervals import Interval, Method, generator
from scaling.laws import Law
from scaling.objectives import Objective, linked, unlinked
from scaling.origin import ModelError
from scaling.rows import Rows

Status = Literal["ok", "weak", "refused"]


@dataclass(frozen=True)
class Diagnostics:
    """How a fit came about: condition number of the scaled Jacobian, misfits, and how draws were made.

    `rms` is of the residuals; `excess` the standard deviation beyond replicate noise; `model` the law's own error
    beyond the data; all in residual units. `basins` are other places of nearly the same objective, best first.
    """

    condition: float = np.nan
    rms: float = np.nan
    excess: float = 0.0
    model: ModelError = field(default_factory=ModelError)
    method: Method = "none"
    unconverged_draws: int = 0
    basins: tuple[dict[str, float], ...] = ()
    covariance: Floats | None = None  # [p, p] of the natural parameters, by the delta method; None where it misleads


@dataclass(frozen=True)
class Predictions:
    """Values [m] with interval ends [m], or None where no interval can be given, and what the interval holds.

    `law_lo` and `law_hi` are the ends for the law alone, as far as its parameters are uncertain.
    """

    value: Floats
    lo: Floats | None
    hi: Floats | None
    basis: str
    law_lo: Floats | None = None
    law_hi: Floats | None = None


@dataclass(frozen=True)
class Fit:
    """A fitted law. `refused` fits have no parameters; `why` says what is wrong and what would cure it."""

    law: Law
    status: Status
    why: tuple[str, ...]
    rows: Rows
    objective: Objective
    value: float = np.nan  # of the objective, summed over rows
    params: dict[str, Interval] = field(default_factory=dict)
    draws: Floats | None = None  # [b, p], natural parameters
    diagnostics: Diagnostics = field(default_factory=Diagnostics)
    level: float = 0.95
    seed: int = 0

    @property
    def point(self) -> Floats:
        """The parameters [p]."""
        return np.array([self.params[name].value for name in self.law.names])

    def spread(self, x: Floats) -> Floats | None:
        """Draws of the law at `x` [d, m]: [b, m]; None where there are no draws."""
        return None if self.draws is None else self.law.value(self.draws, self.law.shaped(x)[:, None, :])

    def predict(self, x: Floats, level: float | None = None, noise: float | None = 0.0) -> Predictions:
        """The law at `x` [d, m] ([m] for one input), with the interval of an observation there.

        The interval joins parameter draws, where it could be estimated the law's own error, and the noise of the
        observation: a standard deviation in residual units (log y for a log objective), 0 for the law itself, or
        None for the scatter of the fit's own rows. Raises AnalysisError on a refused fit.
        """
        if not self.params:
            raise AnalysisError(f"{self.law.name} over {self.law.over} was refused: {' '.join(self.why)}")
        x = self.law.shaped(np.atleast_1d(np.asarray(x, dtype=float)))
        x = x[:, None] if x.ndim == 1 else x
        value = self.law.value(self.point, x)
        around = self.spread(x)
        if around is None:
            return Predictions(value, None, None, "no interval")
        level = self.level if level is None else level
        both = [(1 - level) / 2, (1 + level) / 2]
        law_lo, law_hi = np.quantile(around, both, axis=0)
        rng = generator(self.seed, "predict", self.law.name)
        spread = np.hypot(noise or 0.0, self.diagnostics.model.at(self.law, x))
        shift = rng.standard_normal(len(around))[:, None] * spread
        if noise is None:
            shift = shift + rng.choice(self.scatter(), size=(len(around), 1))
        if np.any(shift):
            residual = self.objective.residual
            around = unlinked(residual, linked(residual, around) + shift)
        lo, hi = np.quantile(around, both, axis=0)
        return Predictions(value, lo, hi, self._basis(noise), law_lo, law_hi)

    def scatter(self) -> Floats:
        """Residuals of the rows [n], widened for the parameters that were fitted to them."""
        residual = self.objective.residual
        r = linked(residual, self.rows.y) - linked(residual, self.law.value(self.point, self.rows.x))
        r = r[np.isfinite(r)]
        return np.asarray(r * np.sqrt(len(r) / max(len(r) - len(self.params), 1)))

    def _basis(self, noise: float | None) -> str:
        parts = ["parameters", *(["scatter of the rows"] if noise is None else ["run noise"] if noise > 0 else [])]
        if self.diagnostics.model.sd is None:
            return " + ".join(parts) + "; assumes the law holds"
        return " + ".join([*parts, "law error from rolling origin"])
