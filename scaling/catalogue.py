"""The registered laws as a page: `python -m scaling.catalogue > docs/laws.md`."""

from __future__ import annotations

import numpy as np

from scaling.laws import Law, Parameter, law_over
from scaling.registry import REGISTRY, Entry

EXAMPLES = {"power_multi": ("n_params", "tokens"), "architecture": ("width", "depth", "tokens")}
HEAD = """# Laws

What `law:` in a spec, and `scaling.fit.fit`, know by name. `python -m scaling.catalogue` prints this page. Any formula
over numbers, names, `+ - * / ^`, parentheses, and `exp log log2 log10 sqrt tanh expm1 log1p softplus harmonic
normal_max` of one argument or `min max log_rising` of two, is a law as well: those of its names that are not inputs
are parameters.

Ranges are those of the search, in units of the inputs' geometric means where a parameter has a unit. A parameter
without a range is linear: it is solved for, is not negative unless "any sign" stands, and its range comes from the
data. `freeze`, `tie` and `bounds` in a spec change all of this.
"""


def page() -> str:
    """The page in Markdown."""
    return HEAD + "".join(_entry(name, entry) for name, entry in REGISTRY.items())


def _entry(name: str, entry: Entry) -> str:
    inputs = EXAMPLES.get(name, entry.inputs)
    law = law_over(name, inputs)
    over = "any inputs, such as " if name in EXAMPLES else ""
    lines = [
        f"\n## {name}\n",
        f"    {law.formula}\n",
        f"Over {over}{', '.join(f'`{i}`' for i in inputs)}. {_parameters(law)}",
    ]
    if entry.nested is not None:
        lines.append(f"The search starts from a fit of `{entry.nested.law}`, which it contains.")
    if entry.source:
        lines.append(f"Source: {entry.source}.")
    return "\n".join(lines) + "\n"


def _parameters(law: Law) -> str:
    return "Parameters: " + ", ".join(map(_parameter, law.parameters)) + "."


def _parameter(p: Parameter) -> str:
    if p.linear and not np.isfinite(p.high):
        return f"`{p.name}`{' (any sign)' if p.signed else ''}"
    high = "∞" if np.isinf(p.high) else f"{p.high:g}"
    return f"`{p.name}` {p.low:g} … {high}"


if __name__ == "__main__":
    print(page(), end="")
