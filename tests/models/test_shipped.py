import copy
import itertools
from pathlib import Path
from typing import Any

import pytest
import yaml

import sweeps
from models import lm
from sweeps.schema import Spec

SPECS = sorted(Path(sweeps.__file__).parent.glob("*.yaml"))


def put(config: dict[str, Any], path: str, value: Any) -> None:
    *sections, key = path.split(".")
    for section in sections:
        config = config.setdefault(section, {})
    config[key] = value


def corners(spec: Spec) -> list[dict[str, Any]]:
    """The smallest and the largest width under each rule, at a middling rate."""
    widths = spec.axes["width"].values or []
    choices = spec.compare["rule"].values
    rules = list(choices.values()) if isinstance(choices, dict) else [{"parametrization": rule} for rule in choices]
    found = []
    for width, bundle in itertools.product((widths[0], widths[-1]), rules):
        config = copy.deepcopy(spec.base)
        for path, value in {**bundle, "model.width": width, "optim.lr": 2.0**-6}.items():
            put(config, path, value)
        found.append(config)
    return found


@pytest.mark.parametrize("path", SPECS, ids=[path.stem for path in SPECS])
def test_the_cells_of_a_shipped_spec_resolve(path: Path) -> None:
    text = path.read_text()
    assert text.startswith("# yaml-language-server: $schema=spec.schema.json\n")
    spec = Spec.model_validate(yaml.safe_load(text))
    assert spec.task == "models.lm:train"
    for config in corners(spec):
        resolved = lm.resolve(config)
        assert resolved["resolved"]["groups"]["hidden"]["lr"] == 2.0**-6  # neither rule moves it with width
        cost = lm.estimate(config)
        assert cost.flops is not None
        assert cost.flops < 1e12


def test_both_specs_are_there() -> None:
    assert {"hyperp_width", "smoke"} <= {path.stem for path in SPECS}
