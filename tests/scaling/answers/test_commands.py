from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import orjson
import pytest
from typer.testing import CliRunner, Result

from scaling import allocate, invert, leverage, predict, sources
from scaling.answers.arguments import limits_of, number, pick, places
from scaling.answers.asked import Limit
from scaling.errors import AnalysisError
from scaling.findings import Analysis, LawFit
from scaling.fits import Fit

Made = Callable[..., Fit]


@pytest.fixture
def fits(drawn: Fit, made: Made, monkeypatch: pytest.MonkeyPatch) -> list[LawFit]:
    """The fits of a spec without the spec."""
    assert drawn.draws is not None
    better = replace(drawn, draws=drawn.draws[::-1].copy())
    names = drawn.law.inputs
    score = made("top - A*x^-p", "x", {"top": 0.9, "A": 2.0, "p": 0.3}, x=[10.0, 1000.0])
    found = [
        LawFit("surface", "val_loss", names, {"rule": "mup"}, drawn),
        LawFit("surface", "val_loss", names, {"rule": "hyperp"}, better),
        LawFit("score", "accuracy", ("x",), {}, score),
    ]
    analysis = Analysis("sweep", "val_loss", "min", 0.95, {}, fits=found)
    monkeypatch.setattr(sources, "analysis_of", lambda *_: analysis)
    return found


def run(module: Any, *arguments: str) -> Result:
    return CliRunner().invoke(module.app, ["spec.yaml", *arguments])


def answer(module: Any, *arguments: str) -> dict[str, Any]:
    result = run(module, *arguments, "--json")
    assert result.exit_code == 0, result.output
    data: dict[str, Any] = orjson.loads(result.stdout)
    return data


HYPERP = ("--law", "surface", "--group", "rule=hyperp")


@pytest.mark.usefixtures("fits")
def test_allocate() -> None:
    data = answer(allocate, *HYPERP, "--budget", "1e22", "--budget", "5.76e23", "--limit", "tokens=1T")
    assert [a["budget"] for a in data["allocations"]] == [1e22, 5.76e23]
    assert data["group"] == {"rule": "hyperp"}
    assert data["allocations"][1]["inputs"]["tokens"]["role"] == "upper limit"
    assert data["allocations"][1]["inputs"]["tokens"]["value"] == 1e12
    life = answer(allocate, *HYPERP, "--budget", "1e22", "--cost", "6*n_params*tokens + 2*n_params*1e12")
    assert life["allocations"][0]["method"] == "search"
    shown = run(allocate, *HYPERP, "--budget", "1e22")
    assert "chinchilla at 1e22 FLOP" in shown.stdout
    assert "What being off costs" in shown.stdout


@pytest.mark.usefixtures("fits")
def test_invert() -> None:
    data = answer(invert, *HYPERP, "--target", "2.1", "--axis", "tokens", "--at", "n_params=70B")
    assert data["inversion"]["inputs"]["n_params"]["value"] == 7e10
    assert "takes at least" in run(invert, *HYPERP, "--target", "2.1").stdout
    unreachable = answer(invert, *HYPERP, "--target", "1.2")["inversion"]
    assert unreachable["unreachable"] == 1.0
    assert "value" not in unreachable


def test_predict(fits: list[LawFit]) -> None:
    data = answer(predict, *HYPERP, "--at", "tokens=1e12,2e12", "--at", "n_params=2**36")
    assert [p["at"] for p in data["predictions"]] == [
        {"n_params": 2.0**36, "tokens": 1e12},
        {"n_params": 2.0**36, "tokens": 2e12},
    ]
    direct = fits[1].fit.predict([[2.0**36], [1e12]])  # type: ignore[arg-type]
    assert data["predictions"][0]["value"] == direct.value[0]
    assert direct.lo is not None
    assert data["predictions"][0]["lo"] == direct.lo[0]
    shown = run(predict, *HYPERP, "--at", "tokens=1e12", "--at", "n_params=7e10")
    assert "Predicted val_loss" in shown.stdout
    assert "Interval: parameters; assumes the law holds." in shown.stdout


@pytest.mark.usefixtures("fits")
def test_leverage() -> None:
    data = answer(leverage, "--law", "surface", "--a", "rule=mup", "--b", "rule=hyperp", "--response", "2.5")
    assert (data["a"], data["b"]) == ("rule=mup", "rule=hyperp")
    assert data["curve"][0]["ratio"]["value"] == pytest.approx(1.0)
    assert "for the same val_loss" in run(leverage, "--a", "surface,rule=mup", "--b", "surface,rule=hyperp").stdout


@pytest.mark.usefixtures("fits")
@pytest.mark.parametrize(
    ("module", "arguments", "words"),
    [
        (allocate, ("--budget", "1e22"), "3 fits are there: surface of val_loss over n_params, tokens (rule mup); "),
        (allocate, ("--law", "surfac", "--budget", "1e22"), "no fit is named 'surfac'. Did you mean 'surface'?"),
        (allocate, ("--law", "surface", "--budget", "1e22"), "2 fits are there"),
        (allocate, (*HYPERP[:2], "--group", "rule=sp", "--budget", "1e22"), "--group rule=sp: no fit has it."),
        (allocate, (*HYPERP[:2], "--group", "rul=mup", "--budget", "1e22"), "no group 'rul'. Did you mean 'rule'?"),
        (allocate, (*HYPERP, "--budget", "lots"), "lots"),
        (allocate, (*HYPERP,), "give at least one --budget"),
        (allocate, (*HYPERP, "--budget", "1e22", "--limit", "tokens"), "--limit 'tokens': expected name=value"),
        (predict, (*HYPERP, "--at", "tokens=1e12"), "n_params is missing; give it with --at n_params=…"),
        (predict, (*HYPERP, "--at", "token=1"), "--at token: chinchilla has no such input. Did you mean 'tokens'?"),
        (invert, (*HYPERP,), "one of them, is needed"),
        (leverage, ("--law", "surface", "--a", "rule=mup"), "give --a and --b"),
    ],
)
def test_what_is_wrong_is_one_line(module: Any, arguments: tuple[str, ...], words: str) -> None:
    result = run(module, *arguments)
    assert result.exit_code == 2
    assert words in " ".join(result.stderr.split())
    assert "Traceback" not in result.output


def test_numbers_as_people_write_them() -> None:
    assert [number(t) for t in ("1e12", "70B", "2**20", "1.5T", "30k", ".5", "2_000_000")] == [
        1e12, 7e10, 2**20, 1.5e12, 3e4, 0.5, 2e6,
    ]  # fmt: skip
    with pytest.raises(AnalysisError, match="is no number"):
        number("true")
    assert places(["a=1,2", "b=3"]) == [{"a": 1.0, "b": 3.0}, {"a": 2.0, "b": 3.0}]
    assert limits_of(["t=1e12"], ["t=1e9", "n=5"], ["n=2"]) == {"t": Limit(1e9, 1e12), "n": Limit(5, None, 2)}


def test_a_maximised_metric_is_maximised(fits: list[LawFit], monkeypatch: pytest.MonkeyPatch) -> None:
    analysis = Analysis("sweep", "accuracy", "max", 0.95, {}, fits=fits)
    monkeypatch.setattr(sources, "analysis_of", lambda *_: analysis)
    data = answer(invert, "--law", "score", "--target", "0.7", "--axis", "x")
    assert data["inversion"]["value"] == pytest.approx(10 ** (1 / 0.3))
    assert pick(fits, "score", None).of == "accuracy"
    with pytest.raises(AnalysisError, match="have no fit"):
        pick([], None, None)
