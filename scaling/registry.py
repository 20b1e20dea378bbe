"""The registered laws: formulas over named inputs, and what is known of their parameters beforehand.

A linear parameter without an entry is positive; its range comes from the data.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

Inputs = tuple[str, ...]


@dataclass(frozen=True)
class Shape:
    """Range of a parameter, where a scan of it starts, and its unit (see `scaling.laws.Parameter`).

    `positive` parameters are solved for in their logarithm.
    """

    low: float = 0.0
    high: float = float("inf")
    start: tuple[float, float] = (0.0, 1.0)
    positive: bool = False
    unit: str = ""


@dataclass(frozen=True)
class Nested:
    """A simpler law inside another: pairs (parameter here, parameter there) of those they share."""

    law: str
    shared: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Entry:
    """A registered law: formula, its own names of the inputs, shapes, source. `over` makes a law of any inputs."""

    formula: str
    inputs: Inputs
    shapes: dict[str, Shape] = field(default_factory=dict)
    source: str = ""
    nested: Nested | None = None
    over: Callable[[Inputs], tuple[str, dict[str, Shape]]] | None = None


def _exponent(low: float = 1e-3, high: float = 3.0, start: tuple[float, float] = (0.02, 2.0), unit: str = "") -> Shape:
    return Shape(low, high, start, unit=unit)


def _scale(unit: str, low: float = 1e-6, high: float = 1e6, start: tuple[float, float] = (0.02, 50.0)) -> Shape:
    """A place on an input, in multiples of its geometric mean."""
    return Shape(low, high, start, positive=True, unit=unit)


FREE = Shape(low=float("-inf"))
POWER = _exponent(-5, 5, (-3, 3))
ALPHA = _exponent(1e-3, 2, (0.02, 1.5))
REPEATS = Shape(0.05, 1e4, (0.1, 1e3), positive=True)
DECAY = Shape(1e-4, 0.999, (1e-3, 0.9), positive=True)


def _power_multi(inputs: Inputs) -> tuple[str, dict[str, Shape]]:
    powers = "*".join(f"{x}^p_{x}" for x in inputs)
    return f"c*{powers}", {f"p_{x}": POWER for x in inputs}


def _architecture(inputs: Inputs) -> tuple[str, dict[str, Shape]]:
    terms = " + ".join(f"A_{x}*{x}^-gamma_{x}" for x in inputs)
    return f"E + {terms}", {f"gamma_{x}": ALPHA for x in inputs}


def _bnsl(breaks: int) -> Entry:
    """a + b x^-c0 prod_i (1 + (x/d_i)^(1/f_i))^(-c_i f_i), each factor as exp of a softplus."""
    factors = "".join(f"*exp(-c{i}*f{i}*softplus(log(x/d{i})/f{i}))" for i in range(1, breaks + 1))
    shapes = {"b": Shape(positive=True, unit="x^c0"), "c0": _exponent(-3, 3, (-0.5, 1.5))}
    for i in range(1, breaks + 1):
        shapes |= {
            f"c{i}": _exponent(-20, 20, (-2, 8)),
            f"d{i}": _scale("x", start=(0.05, 100.0)),
            f"f{i}": Shape(0.01, 2, (0.03, 1.0), positive=True),
        }
    kept = ("a", "b", "c0", *(f"{s}{i}" for i in range(1, breaks) for s in "cdf"))
    nested = Nested("power_offset", (("a", "E"), ("b", "A"), ("c0", "alpha")))
    if breaks > 1:
        nested = Nested("bnsl" if breaks == 2 else f"bnsl{breaks - 1}", tuple((k, k) for k in kept))
    source = "Caballero et al. 2023 (arXiv 2210.14891), equation 1"
    return Entry(f"a + b*x^-c0{factors}", ("x",), shapes, source, nested)


# The compute-optimal size of the unique data: N_opt(U)^alpha = alpha A / (beta B) U^beta.
_FITTING = "min(n_params, (alpha*A/(beta*B)*unique_tokens^beta)^(1/alpha))"


def _repeated(data: str, size: str) -> Entry:
    """Chinchilla over effective data and effective parameters.

    `data` and `size` say what UNIQUE, seen TIMES over, is worth; repetition of data is its epochs, that of
    parameters their excess over the compute-optimal size of the unique data.
    """
    tokens = data.replace("UNIQUE", "unique_tokens").replace("TIMES", "tokens/unique_tokens")
    parameters = size.replace("UNIQUE", f"({_FITTING})").replace("TIMES", f"n_params/({_FITTING})")
    return Entry(
        f"E + A*({parameters})^-alpha + B*({tokens})^-beta",
        ("n_params", "tokens", "unique_tokens"),
        {
            "A": Shape(1e-9, 1e9, (0.05, 20), positive=True, unit="n_params^alpha"),
            "B": Shape(1e-9, 1e9, (0.05, 20), positive=True, unit="tokens^beta"),
            "alpha": ALPHA, "beta": ALPHA, "R_D": REPEATS, "R_N": REPEATS, "delta_D": DECAY, "delta_N": DECAY,
        },
    )  # fmt: skip


# Bits per use of N Gaussian channels: a signal-to-noise ratio that saturates in the inputs k_e and the width k_c of
# each neuron, and neurons that repeat each other with correlation rho.
_SNR = "s_max*k_e^alpha_e/(k_e^alpha_e + kappa_e^alpha_e)*k_c^alpha_c/(k_c^alpha_c + kappa_c^alpha_c)"
_BITS = f"(N/(1 + rho*(N - 1))*0.5*log2(1 + {_SNR}))"
_CHANNELS = {
    "rho": Shape(1e-7, 1.0, (1e-5, 0.3), positive=True),
    "s_max": Shape(1e-2, 1e5, (0.3, 300), positive=True),
    "kappa_e": Shape(1e-4, 1e4, (0.05, 20), positive=True, unit="k_e"),
    "kappa_c": Shape(1e-4, 1e4, (0.05, 20), positive=True, unit="k_c"),
    "alpha_e": Shape(0.2, 4, (0.4, 2.5), positive=True),
    "alpha_c": Shape(0.2, 4, (0.4, 2.5), positive=True),
}
_CHANNELS_SOURCE = (
    "Shannon capacity of N equicorrelated channels with a Hill-type signal-to-noise ratio; redundancy as in "
    "Moreno-Bote et al. 2014"
)

_SATURATED = "(1/(1/(experts - 1 + 1/(1/E_start - 1/E_max)) + 1/E_max))"

REGISTRY: dict[str, Entry] = {
    "power": Entry("A*x^-alpha", ("x",), {"alpha": POWER}),
    "power_offset": Entry("E + A*x^-alpha", ("x",), {"alpha": _exponent(start=(0.02, 2.5))}, "Henighan et al. 2020"),
    "power_shift": Entry(
        "E + A*(x + s)^-alpha",
        ("x",),
        {
            "alpha": _exponent(),
            "s": Shape(1e-6, 1e3, (1e-3, 5.0), positive=True, unit="x"),
            "A": Shape(positive=True, unit="x^alpha"),
        },
        "Zhai et al. 2022 (arXiv 2106.04560)",
    ),
    "power_multi": Entry("", (), over=_power_multi),
    "chinchilla": Entry(
        "E + A*n_params^-alpha + B*tokens^-beta",
        ("n_params", "tokens"),
        {"alpha": ALPHA, "beta": ALPHA},
        "Hoffmann et al. 2022 (arXiv 2203.15556), equation 10",
    ),
    "chinchilla_tied": Entry(
        "E + A*n_params^(-2*eta) + B*tokens^(-2*eta)",
        ("n_params", "tokens"),
        {"eta": _exponent(1e-3, 1, (0.01, 0.75))},
        "Gadre et al. 2024 (arXiv 2403.08540), equation 4",
    ),
    "kaplan_joint": Entry(
        "((N_c/n_params)^(alpha_N/alpha_D) + D_c/tokens)^alpha_D",
        ("n_params", "tokens"),
        {
            "alpha_N": _exponent(1e-3, 2, (0.02, 0.6)),
            "alpha_D": _exponent(1e-3, 2, (0.02, 0.6)),
            "N_c": _scale("n_params", 1e-12, 1e24, (1.0, 1e12)),
            "D_c": _scale("tokens", 1e-12, 1e24, (1.0, 1e12)),
        },
        "Kaplan et al. 2020 (arXiv 2001.08361), equation 1.5",
    ),
    "coupled": Entry(
        "E + (A*n_params^-alpha + B*tokens^-beta)^k",
        ("n_params", "tokens"),
        {
            "alpha": ALPHA,
            "beta": ALPHA,
            "k": Shape(0.05, 3, (0.2, 2.0), positive=True),
            "A": Shape(1e-9, 1e9, (1e-2, 1e2), positive=True, unit="n_params^alpha"),
            "B": Shape(1e-9, 1e9, (1e-2, 1e2), positive=True, unit="tokens^beta"),
        },
    ),
    "farseer": Entry(
        "exp(a3*n_params^gamma + b3) + exp(a2*n_params^beta + b2)*tokens^(-exp(a1*n_params^alpha + b1))",
        ("n_params", "tokens"),
        {
            **{f"a{i}": Shape(-200, 200, (-5, 5), unit=f"n_params^(-{e})") for i, e in ((1, "alpha"), (2, "beta"))},
            "a3": Shape(-200, 200, (-5, 5), unit="n_params^(-gamma)"),
            **{f"b{i}": Shape(-200, 200, (-5, 5)) for i in (1, 2, 3)},
            **{k: _exponent(-1, 1, (-0.4, 0.4)) for k in ("alpha", "beta", "gamma")},
        },
        "Li et al. 2025 (arXiv 2506.10972)",
    ),
    "data_constrained": replace(
        _repeated("UNIQUE*(1 - R_D*expm1(-(TIMES - 1)/R_D))", "UNIQUE*(1 - R_N*expm1(-(TIMES - 1)/R_N))"),
        source="Muennighoff et al. 2023 (arXiv 2305.16264), equations 5 and 6",
    ),
    "geometric_repeat": replace(
        _repeated("UNIQUE*-expm1(TIMES*log1p(-delta_D))/delta_D", "UNIQUE*-expm1(TIMES*log1p(-delta_N))/delta_N"),
        source="Muennighoff et al. 2023 (arXiv 2305.16264), appendix: a repetition is worth 1 - delta of the last",
    ),
    "architecture": Entry("", (), source="McLeish et al. 2025 (arXiv 2502.06857)", over=_architecture),
    "routed": Entry(
        f"10^(a*log10(n_params) + b*log10({_SATURATED}) + c*log10(n_params)*log10({_SATURATED}) + d)",
        ("n_params", "experts"),
        {
            **dict.fromkeys("abcd", Shape(-100, 100, (-1, 1))),
            "E_start": Shape(1.0, 50, (1.05, 10), positive=True),
            "E_max": Shape(51, 1e6, (60, 5e3), positive=True),
        },
        "Clark et al. 2022 (arXiv 2202.01169), equation 5, in decimal logarithms",
    ),
    "bnsl": _bnsl(1),
    "bnsl2": _bnsl(2),
    "sigmoid": Entry(
        "floor + (top - floor)/(1 + (x_mid/x)^k)",
        ("x",),
        {"x_mid": _scale("x", start=(1e-3, 1e3)), "k": Shape(0.05, 10, (0.1, 5), positive=True)},
        "Khatri et al. 2025, with a floor at chance",
    ),
    "log_sigmoid": Entry(
        "1 + a*softplus(k*(loss - x0))",
        ("loss",),
        {"a": FREE, "k": Shape(1e-3, 100, (0.1, 20), positive=True), "x0": Shape(0, 20, (0.1, 6))},
        "Bhagia et al. 2024 (arXiv 2412.04403), step 2",
    ),
    "exp_error": Entry(
        "eps - k*exp(-gamma*loss)",
        ("loss",),
        {"gamma": Shape(1e-3, 50, (0.05, 10), positive=True, unit="1/loss"), "k": Shape(positive=True)},
        "Gadre et al. 2024 (arXiv 2403.08540), equation 5",
    ),
    "saturating": Entry(
        "top*x^k/(x^k + x_half^k)",
        ("x",),
        {"x_half": _scale("x", start=(1e-2, 1e2)), "k": Shape(0.05, 10, (0.2, 4), positive=True)},
        "Hill 1910",
    ),
    "optimum_quadratic": Entry(
        "L0*exp(h/2*log(x/x0)^2)",
        ("x",),
        {
            "h": Shape(1e-12, 1e4, (1e-4, 3.0), positive=True),
            "x0": Shape(1e-6, 1e6, (0.2, 5.0), positive=True, unit="x"),
        },
    ),
    "optimum_cubic": Entry(
        "L0*exp(h/2*log(x/x0)^2 + c*log(x/x0)^3)",
        ("x",),
        {
            "h": Shape(1e-12, 1e4, (1e-4, 3.0), positive=True),
            "x0": Shape(1e-6, 1e6, (0.2, 5.0), positive=True, unit="x"),
            "c": Shape(-1e3, 1e3, (-0.3, 0.3)),
        },
    ),
    "info_channels": Entry(
        f"E + A*{_BITS}^-gamma",
        ("N", "k_e", "k_c"),
        {**_CHANNELS, "A": Shape(positive=True), "gamma": _exponent(0.05, 3, (0.2, 2))},
        f"{_CHANNELS_SOURCE}; freeze gamma at 1 below three budgets: it trades off with the unit of information",
    ),
    "info_channels_error": Entry(
        f"e_inf + (e_0 - e_inf)*exp(-{_BITS}/I_0)",
        ("N", "k_e", "k_c"),
        {**_CHANNELS, "e_inf": Shape(), "e_0": Shape(), "I_0": Shape(1e-3, 1e5, (0.3, 300), positive=True)},
        f"{_CHANNELS_SOURCE}; e_0 is the error of chance",
    ),
    "regret": Entry("c*T^p*log(T)^q", ("T",), {"p": POWER, "q": _exponent(-3, 3, (-1, 1))}),
    "gaussian_max": Entry("mu + sigma*normal_max(n)", ("n",), {"mu": FREE}, "expected largest of n normal draws"),
    "exponential_max": Entry("mu + sigma*harmonic(n)", ("n",), {"mu": FREE}, "Rényi 1953"),
    "gpd_max": Entry(
        "mu + sigma*expm1(log_rising(n, xi))/xi",
        ("n",),
        {"mu": FREE, "xi": Shape(-3, 0.95, (-0.8, 0.8))},
        "expected largest of n draws of a generalised Pareto tail",
    ),
}
