"""Whether the data can tell the parameters of a law apart."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from scaling.arrays import Floats

WEAK_CONDITION, REFUSED_CONDITION = 1e3, 1e5


def condition(jacobian: Floats, names: Sequence[str]) -> tuple[float, str]:
    """Condition number of a Jacobian [n, p] with unit columns, and the parameters that its weak direction mixes."""
    if jacobian.shape[1] == 0:
        return 1.0, ""
    size = np.linalg.norm(jacobian, axis=0)
    unit = jacobian / np.where(size > 0, size, 1.0)
    _, singular, right = np.linalg.svd(unit, full_matrices=False)
    weak = np.abs(right[-1])
    mixed = [n for n, w in zip(names, weak, strict=True) if w > 0.3 * weak.max()]
    text = " and ".join([", ".join(mixed[:-1]), mixed[-1]]) if len(mixed) > 1 else mixed[0]
    low = singular[-1] if len(singular) == jacobian.shape[1] else 0.0
    return (float(singular[0] / low) if low > 1e-14 * singular[0] else np.inf), text


def collinear(x: Floats, inputs: Sequence[str]) -> str | None:
    """The sentence that says which inputs [d, n] move together, or not at all; None where they are free."""
    logs = np.log(x)
    for a, name in zip(logs, inputs, strict=True):
        if np.ptp(a) < 1e-9:
            return f"{name} is {np.exp(a[0]):.4g} in every row"
    for j in range(1, len(inputs)):
        design = np.vstack([np.ones(x.shape[1]), logs[:j]]).T
        coefficients, *_ = np.linalg.lstsq(design, logs[j], rcond=None)
        left = logs[j] - design @ coefficients
        r = np.sqrt(max(0.0, 1 - float(left @ left) / float(np.sum((logs[j] - logs[j].mean()) ** 2))))
        if r > 0.9999:
            terms = [f"{_factor(c)}log {n}" for c, n in zip(coefficients[1:], inputs[:j], strict=True) if abs(c) > 1e-3]
            constant = float(coefficients[0])
            rest = f" {'+' if constant >= 0 else '-'} {abs(constant):.2f}" if abs(constant) > 5e-3 else ""
            return f"log {inputs[j]} = {' + '.join(terms)}{rest} (r = {r:.4f})"
    return None


def _factor(value: float) -> str:
    return "" if abs(value - 1) < 5e-3 else f"{value:.3g} "
