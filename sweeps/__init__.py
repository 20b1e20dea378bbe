"""The declaration language: one YAML file to the cells of a sweep, each with its identity."""

from sweeps.errors import ExpressionError, IdentityError, SpecError, SweeplawError
from sweeps.expand import Cell, Expansion, Facts, Infeasible, expand
from sweeps.grids import axis_values
from sweeps.identity import IDENTITY_VERSION, canonical, run_id
from sweeps.load import LoadedSpec, load
from sweeps.schema import Spec

__all__ = [
    "IDENTITY_VERSION",
    "Cell",
    "Expansion",
    "ExpressionError",
    "Facts",
    "IdentityError",
    "Infeasible",
    "LoadedSpec",
    "Spec",
    "SpecError",
    "SweeplawError",
    "axis_values",
    "canonical",
    "expand",
    "load",
    "run_id",
]
