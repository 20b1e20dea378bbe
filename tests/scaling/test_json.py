"""The documented JSON: every key that is printed is described."""

import re
from pathlib import Path

import pytest

from scaling.sources import analysis_of

ROOT = Path(__file__).parents[2]
WORDS = set(re.findall(r"`(\w+)`", (ROOT / "docs" / "json.md").read_text(encoding="utf-8")))


@pytest.mark.parametrize("name", ["olmo_ladder", "synthetic_isoflop", "datablations"])
def test_every_key_is_described(name: str) -> None:
    more = ["+fit.isoflop={}"] if name == "synthetic_isoflop" else []
    only = ["near the published values"] if name == "datablations" else []
    data = analysis_of(
        ROOT / "sweeps" / "published" / f"{name}.yaml", ["fit.bootstrap=100", *more], only=only
    ).to_json()
    assert data["schema"] == 1
    assert data.keys() <= WORDS
    for fit in data["fits"]:
        assert fit.keys() <= WORDS
        assert fit["diagnostics"].keys() | fit["rows"].keys() | fit["objective"].keys() <= WORDS | {"delta"}
    for prediction in data["predictions"]:
        assert prediction.keys() <= WORDS


def test_what_is_not_known_is_absent() -> None:
    path = ROOT / "sweeps" / "published" / "synthetic_designs.yaml"
    fits = analysis_of(path, ["fit.bootstrap=100"]).to_json()["fits"]
    refused = [f for f in fits if f["status"] == "refused"]
    assert refused
    for fit in refused:
        assert fit["params"] == {}
        assert "value" not in fit["objective"]
        assert "condition" not in fit["diagnostics"]
