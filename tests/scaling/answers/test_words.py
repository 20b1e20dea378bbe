from __future__ import annotations

from collections.abc import Callable

import numpy as np
from rich.console import Console

from scaling.answers.allocate import allocate
from scaling.answers.asked import Limit
from scaling.answers.console import show
from scaling.answers.invert import invert
from scaling.answers.leverage import leverage
from scaling.answers.words import (
    allocation_sentences,
    allocation_sheets,
    inversion_sentences,
    leverage_sentences,
    leverage_sheets,
    shown,
    unit_of,
)
from scaling.fits import Fit
from scaling.intervals import Interval

Made = Callable[..., Fit]


def test_numbers_with_open_ends() -> None:
    assert shown(None) == "–"
    assert shown(Interval(1.5)) == "1.5"
    assert shown(Interval(2e10, 1e10, None)) == "2e10 [1e10, –]"
    assert shown(Interval(0.5, 0.4, 0.6)) == "0.50 [0.40, 0.60]"


def test_units() -> None:
    assert unit_of("6*n_params*tokens") == "FLOP"
    assert unit_of("flops") == "FLOP"
    assert unit_of("tokens") == "tokens"


def test_an_allocation_in_sentences(hoffmann: Fit) -> None:
    said = allocation_sentences(allocate(hoffmann, 1e22), "val_loss")
    assert said[0].startswith("chinchilla at 1e22 FLOP: n_params ")
    assert "tokens per n_params." in said[0]
    assert said[1].startswith("Predicted val_loss: 2.")
    assert said[2].startswith("Being off by 2 at this budget costs, of the response: n_params half 0.")
    limited = allocation_sentences(allocate(hoffmann, 1e22, limits={"tokens": Limit(high=1e10)}))
    assert "tokens 1e10 (limit)" in limited[0]


def test_a_refusal_in_sentences(made: Made) -> None:
    fit = made("chinchilla", ("n_params", "tokens"), {"E": 1.7, "A": 400.0, "B": 0.0, "alpha": 0.3, "beta": 0.3})
    said = allocation_sentences(allocate(fit, 1e22))
    assert said[0] == "chinchilla at 1e22 FLOP: no allocation."
    assert "towards 0" in said[1]


def test_an_inversion_in_sentences(hoffmann: Fit, made: Made) -> None:
    said = inversion_sentences(invert(hoffmann, 2.1, "tokens", at={"n_params": 7e10}), "val_loss")
    assert said[0].startswith("val_loss 2.1 takes at least ")
    assert said[0].endswith(" tokens, with n_params 7e10.")
    assert inversion_sentences(invert(hoffmann, 1.0), "val_loss")[0] == "val_loss 1: no FLOP is given."
    worse = made("E + A*x^p", "x", {"E": 1.0, "A": 0.01, "p": 0.5}, x=np.array([1.0, 100.0]))
    assert inversion_sentences(invert(worse, 1.3, "x"), "loss")[0] == "loss 1.3 holds up to 900 x."


def test_leverage_names_its_direction(made: Made) -> None:
    x = np.geomspace(1e18, 1e21, 6)
    a = made("power_offset", "flops", {"E": 1.4, "A": 100.0, "alpha": 0.1}, x=x)
    b = made("power_offset", "flops", {"E": 1.4, "A": 100.0 * 1.58**-0.1, "alpha": 0.1}, x=x)
    forth, back = leverage(a, b, names=("muon", "hyperp")), leverage(b, a, names=("hyperp", "muon"))
    assert any("hyperp needs 1.58 times less FLOP than muon for the same val_loss" in s
               for s in leverage_sentences(forth, "val_loss"))  # fmt: skip
    assert any("muon needs 1.58 times more FLOP than hyperp for the same val_loss" in s
               for s in leverage_sentences(back, "val_loss"))  # fmt: skip
    titles = [s.title for s in leverage_sheets(forth)]
    assert titles == [
        "muon against hyperp, by their laws",
        "measured muon against the law of hyperp",
        "the law of muon against measured hyperp",
    ]
    assert len(leverage_sheets(forth)[0].rows) == 9


def test_names_from_outside_are_printed_as_text(made: Made) -> None:
    fit = made("E + A*x^-p", "x", {"E": 1.0, "A": 3.0, "p": 0.5}, x=np.array([1.0, 100.0]))
    found = leverage(fit, fit, names=("[red]a[/red]", "b\x1b[2J"))
    console = Console(width=100, record=True, force_terminal=False)
    show(leverage_sentences(found), leverage_sheets(found), console)
    text = console.export_text()
    assert "[red]a[/red]" in text
    assert "\x1b" not in text


def test_tables_fit_a_narrow_terminal(drawn: Fit) -> None:
    found = allocate(drawn, 1e23)
    console = Console(width=72, record=True)
    show(allocation_sentences(found), allocation_sheets(found), console)
    lines = console.export_text().splitlines()
    assert max(map(len, lines)) <= 72
    assert any("What being off costs" in line for line in lines)
