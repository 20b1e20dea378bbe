"""YAML that is wrong, dangerous or not there: each ends in one sentence with its place."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from sweeps.errors import SpecError
from sweeps.source import MAX_BYTES, read_file, read_text

LAUGHS = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{b}: &{b} [{', '.join([f'*{a}'] * 9)}]\n" for a, b in zip("abcdefgh", "bcdefghi", strict=True)
)

# text, line, column, a part of the sentence
WRONG = {
    "duplicate key": ("a: 1\nb: 2\na: 3\n", 3, 1, "a second key `a`; the first is on line 1"),
    "nested duplicate": ("a:\n  x: 1\n  x: 1\n", 3, 3, "a second key `x`"),
    "quoted duplicate": ("a: 1\n'a': 3\n", 2, 1, "a second key `a`"),
    "python tag": ("a: 1\nb: !!python/object/apply:os.system [echo]\n", 2, 4, "!!python/object/apply:os.system"),
    "harmless tag": ("a: !!int '3'\n", 1, 4, "`!!int` is refused"),
    "own tag": ("a: !mine 3\n", 1, 4, "`!mine` is refused"),
    "tag on a key": ("? !!str a\n: 3\n", 1, 3, "is refused"),
    "alias bomb": (LAUGHS, None, None, "once aliases are expanded"),
    "alias to itself": ("a: &a [*a]\n", None, None, ""),
    "unknown alias": ("a: *b\n", 1, 4, "has no anchor"),
    "merge key": ("a: &x {b: 1}\nc:\n  <<: *x\n", 3, 3, "merge keys"),
    "deep": ("a: " + "[" * 200 + "]" * 200, 1, None, "levels deep"),
    "tab": ("a:\n\tb: 1\n", 2, 1, "a tab; YAML is indented with spaces"),
    "empty": ("", 1, 1, "empty"),
    "comments only": ("# nothing\n", 1, 1, "empty"),
    "two documents": ("a: 1\n---\nb: 2\n", 2, 1, "a second document"),
    "control character": ("a: \x07\n", 1, 4, "U+0007"),
    "colon": ("a: b: c\n", 1, 5, "`:`"),
    "open quote": ("a: 'text\nb: 2\n", 1, 4, "this quote is never closed"),
    "open bracket": ("a: [1, 2\nb: 3\n", None, None, "not valid YAML"),
    "list as key": ("[1, 2]: 3\n", 1, 1, "a key must be text"),
    "number as key": ("a: 1\n3: 1\n", 2, 1, "the key `3` is not text"),
    "word as value": ("a: on\n", 1, 4, "`on` is a truth value"),
    "octal": ("a: 1\nb: [1, 012]\n", 2, 8, "`012`"),
    "sexagesimal": ("time: 12:00:00\n", 1, 7, "43200"),
    "at sign": ("a: @b\n", 1, 4, "put text with it in quotes"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_document_is_one_sentence_with_its_place(name: str) -> None:
    text, line, column, part = WRONG[name]
    began = time.perf_counter()
    with pytest.raises(SpecError) as error:
        read_text(text, "s.yaml")
    assert time.perf_counter() - began < 2
    assert part in error.value.problem
    assert str(error.value).startswith("s.yaml:")
    assert line in (None, error.value.line)
    assert column in (None, error.value.column)


def test_several_problems_are_told_at_once_in_order() -> None:
    with pytest.raises(SpecError) as error:
        read_text("a: 012\nb: on\nc: 1\nc: 2\n", "s.yaml")
    assert [line.split(" ")[0] for line in str(error.value).splitlines()] == [
        "s.yaml:1:4:", "s.yaml:2:4:", "s.yaml:4:1:"]  # fmt: skip


def test_aliases_are_copies() -> None:
    data = read_text("a: &x {b: [1]}\nc: *x\n", "s").data
    assert data["a"] == data["c"]
    assert data["a"] is not data["c"]
    assert data["a"]["b"] is not data["c"]["b"]


def test_every_value_has_its_place() -> None:
    places = read_text("a:\n  - x: 1\n    z: [2, 3]\n", "s").places
    assert places["a", 0, "z", 1].value == (3, 12)
    assert places["a", 0, "z"].key == (3, 5)
    assert places["a", 0].value == (2, 5)


def test_a_missing_file_names_the_nearest(tmp_path: Path) -> None:
    (tmp_path / "hyperp_width.yaml").write_text("a: 1")
    with pytest.raises(SpecError, match=r"no such file; did you mean .*hyperp_width\.yaml"):
        read_file(tmp_path / "hyperp_widht.yaml")
    with pytest.raises(SpecError, match="there is no folder"):
        read_file(tmp_path / "nowhere" / "x.yaml")


def test_a_folder_is_not_a_spec(tmp_path: Path) -> None:
    (tmp_path / "one.yaml").write_text("a: 1")
    with pytest.raises(SpecError, match=r"a folder, not a spec file; it holds one\.yaml"):
        read_file(tmp_path)


def test_other_encodings_are_refused_at_the_byte(tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    path.write_bytes("a: 1\nb: é".encode("latin-1"))
    with pytest.raises(SpecError, match="not UTF-8: byte 0xe9") as error:
        read_file(path)
    assert (error.value.line, error.value.column) == (2, 4)
    path.write_bytes("\ufeffa: é".encode())  # a byte order mark does no harm
    assert read_file(path).data == {"a": "é"}


def test_a_huge_file_is_not_parsed(tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    path.write_bytes(b"a" * (MAX_BYTES + 1))
    with pytest.raises(SpecError, match="too large"):
        read_file(path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_an_unreadable_file_says_so(tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    path.write_text("a: 1")
    path.chmod(0)
    with pytest.raises(SpecError, match="can't be read"):
        read_file(path)
