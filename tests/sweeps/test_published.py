"""The specs of published tables: they load, editors accept them, and every table is told of with its licence."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import sweeps
from db.tables import read_table
from sweeps import json_schema
from sweeps.load import load
from sweeps.source import read_file

FOLDER = Path(sweeps.__file__).parent / "published"
SPECS = sorted(FOLDER.glob("*.yaml"))
TABLES = sorted((FOLDER / "data").glob("*.csv"))
README = (FOLDER / "data" / "README.md").read_text(encoding="utf-8")
# Their tables may not be shipped, or are too large to be.
ELSEWHERE = ("learning_curves_vision", "steplaw")
LISTED = {
    cells[0]: cells for cells in (re.findall(r"\| ?([^|]*?) ?(?=\|)", line) for line in README.splitlines()) if cells
}


@pytest.fixture(scope="module")
def validator() -> Any:
    return jsonschema.Draft202012Validator(json.loads(json_schema.PATH.read_text(encoding="utf-8")))


@pytest.mark.parametrize("path", SPECS, ids=lambda path: path.stem)
def test_a_spec_loads_and_editors_accept_it(path: Path, validator: Any) -> None:
    loaded = load(path)
    validator.validate(read_file(path).data)
    assert loaded.spec.name == path.stem
    assert loaded.spec.question
    assert path.read_text().splitlines()[0] == f"# yaml-language-server: $schema=../{json_schema.PATH.name}"


@pytest.mark.parametrize("path", [p for p in SPECS if p.stem not in ELSEWHERE], ids=lambda path: path.stem)
def test_a_table_has_what_its_spec_asks(path: Path) -> None:
    table = read_table(load(path))
    assert len(table.frame) > 0
    assert table.rows == int(LISTED[Path(table.origin).name][2])


def test_one_spec_takes_several_tables() -> None:
    found = read_table(load(FOLDER / "gadre_c4.yaml", [f"results.path={FOLDER / 'data' / 'gadre_rpj.csv'}"]))
    assert len(found.frame) == 35


@pytest.mark.parametrize("path", TABLES, ids=lambda path: path.stem)
def test_a_table_is_listed_with_origin_and_licence(path: Path) -> None:
    _, spec, _, digest, origin, licence, *_ = LISTED[path.name]
    assert hashlib.sha256(path.read_bytes()).hexdigest().startswith(digest)
    assert len(digest) == 16
    assert origin
    assert licence.split()[0] in ("MIT", "Apache-2.0", "CC")
    assert spec == "–" or (FOLDER / f"{spec}.yaml").is_file()


def test_no_table_is_listed_that_is_not_there() -> None:
    names = {name for name in LISTED if name.endswith(".csv")}
    assert names == {path.name for path in TABLES}


def test_mit_asks_for_its_whole_notice() -> None:
    assert "The above copyright notice and this permission notice shall be included" in README
    marks = set(re.findall(r"MIT[^|]*\((\d)\)", README.partition("## Published")[0]))
    assert marks == {"1", "2", "3", "5", "6"}
    for mark in marks:
        assert re.search(rf"^\({mark}\) Copyright \(c\) ", README, re.MULTILINE)
