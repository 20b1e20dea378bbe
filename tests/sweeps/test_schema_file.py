"""The shipped JSON schema: current, and of one mind with the classes that validate."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import sweeps
from sweeps import json_schema
from sweeps.errors import SpecError
from sweeps.load import loads
from sweeps.source import read_file, read_text

FOLDER = Path(sweeps.__file__).parent
SHIPPED = sorted(FOLDER.glob("*.yaml"))

EXAMPLE = """
name: hyperp_width
question: Does one base learning rate hold across width?
task: models.lm:train
base:
  data: {corpus: stdlib}
  model: {depth: 4, head_dim: 32}
  optim: {momentum: 0.95}
axes:
  width: {path: model.width, values: [64, 128, 256, 512]}
compare:
  rule: {path: parametrization, values: [hyperp, mup, standard]}
tune:
  lr: {path: optim.lr, log2: [-10, -2, 1]}
replicates:
  seed: 3
derive:
  tokens: {path: tokens, expr: "20 * n_params"}
where: "flops < 1e15"
fit:
  of: val_loss
  laws:
    - {law: power_offset, over: width}
    - {law: power, of: lr.optimum, over: width}
  hold_out: {width: 512}
predict:
  - {width: 4096}
launcher: {kind: local}
"""

SHORT = """
name: s
task: m:f
axes: {width: [16, 32], depth: [1, 2]}
compare: {rule: {a: {p: 1}, b: {p: 2}}, kind: [x, y1]}
tune:
replicates: {seed: [0, 5]}
derive: {d: "2 * width"}
solve: {tokens: "flops == 1e15"}
zip: [width, depth]
predict: {width: 64}
fit:
launcher:
"""

WRONG = [
    ("axes: {width", "axis: {width"),
    ("values: [64", "valeus: [64"),
    ("seed: 3", "seed: [a]"),
    ("seed: 3", "seed: 0"),
    ("kind: local", "kind: slrum"),
    ("kind: local", "workers: 0"),
    ("law: power_offset, over", "law: power_offset, ovr"),
    ("log2: [-10, -2, 1]", "log2: ten"),
    ("task: models.lm:train", "task: models"),
    ("name: hyperp_width", "nam: hyperp_width"),
    ("  width: {path", "  1width: {path"),
    ("path: model.width", "path: model..width"),
    ("of: val_loss", "of: val_loss\n  level: 2"),
]


@pytest.fixture(scope="module")
def validator() -> Any:
    schema = json.loads(json_schema.PATH.read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def test_the_file_is_current() -> None:
    assert json_schema.PATH.read_text(encoding="utf-8") == json_schema.text(), "run python -m sweeps.json_schema"


def test_there_are_shipped_specs() -> None:
    assert {"hyperp_width.yaml", "smoke.yaml"} <= {path.name for path in SHIPPED}


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.name)
def test_shipped_specs_are_accepted_and_have_the_editor_line(path: Path, validator: Any) -> None:
    validator.validate(read_file(path).data)
    assert path.read_text().splitlines()[0] == f"# yaml-language-server: $schema={json_schema.PATH.name}"


@pytest.mark.parametrize("text", [EXAMPLE, SHORT], ids=["long", "short"])
def test_the_classes_and_the_schema_accept(text: str, validator: Any) -> None:
    validator.validate(read_text(text, "s").data)
    loads(text)


@pytest.mark.parametrize(("right", "wrong"), WRONG)
def test_the_classes_and_the_schema_refuse(right: str, wrong: str, validator: Any) -> None:
    text = EXAMPLE.replace(right, wrong) if right in EXAMPLE else EXAMPLE.replace("axes:\n  width", "axis:\n  width")
    assert text != EXAMPLE
    assert not validator.is_valid(read_text(text, "s").data)
    with pytest.raises(SpecError):
        loads(text)


def test_every_key_of_the_schema_is_described(validator: Any) -> None:
    properties = validator.schema["properties"]
    assert [key for key, value in properties.items() if not value.get("description")] == []


def test_bounds_and_kinds_for_completion(validator: Any) -> None:
    launcher = validator.schema["$defs"]["LocalLauncher"]["properties"]
    assert launcher["kind"]["const"] == "local"
    assert ">>>" not in json_schema.text()
