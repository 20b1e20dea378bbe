"""YAML text to plain data, with the place of every key and value.

PyYAML scans and parses; what a scalar means, which features are allowed and how large a document may
grow is decided here. No tag is ever constructed.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from yaml.composer import Composer
from yaml.parser import Parser
from yaml.reader import Reader, ReaderError
from yaml.resolver import BaseResolver
from yaml.scanner import Scanner

from sweeps.errors import ScalarError, SpecError, shown
from sweeps.scalars import parse_key, parse_scalar

KeyPath = tuple[str | int, ...]

MAX_BYTES = 256 * 1024
MAX_DEPTH = 32
MAX_NODES = 20_000  # as written, and again after aliases are expanded
MAX_PROBLEMS = 20


@dataclass(frozen=True)
class Place:
    """Where a key (or list item) and its value start; lines and columns count from 1."""

    key: tuple[int, int]
    value: tuple[int, int]


@dataclass(frozen=True)
class Source:
    """A document as plain dicts, lists and scalars, and the place of each path in it."""

    name: str
    text: str
    data: Any
    places: dict[KeyPath, Place] = field(repr=False)

    def find(self, path: KeyPath) -> KeyPath:
        """The longest source path that `path` leads to, leaving out components the source doesn't have.

        So `axes.width.values.0` is found where the source has the short form `width: [16, 32]`, and a
        missing key is found at the section it is missing from.
        """
        here: KeyPath = ()
        for part in path:
            if (*here, part) in self.places:
                here = (*here, part)
        return here

    def error(self, path: KeyPath, problem: str, *, at_key: bool = False) -> SpecError:
        """A SpecError at the value of `path` (at its key, if asked)."""
        place = self.places.get(self.find(path), Place((1, 1), (1, 1)))
        line, column = place.key if at_key else place.value
        return SpecError(problem, file=self.name, line=line, column=column, key=dotted(path))


def dotted(path: KeyPath) -> str:
    """`("axes", "width", 0)` as `axes.width.0`."""
    return ".".join(map(str, path))


def read_file(path: Path) -> Source:
    """The document of a file. Raises SpecError: no such file, a directory, too large, not UTF-8, bad YAML."""
    name = str(path)
    try:
        with path.open("rb") as stream:
            raw = stream.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise SpecError(f"no such file{_similar_file(path)}", file=name) from None
    except IsADirectoryError:
        raise SpecError(f"a folder, not a spec file{_files_in(path)}", file=name) from None
    except OSError as error:
        raise SpecError(f"can't be read: {error.strerror or error}", file=name) from None
    if len(raw) > MAX_BYTES:
        raise SpecError(f"larger than {MAX_BYTES // 1024} KiB, too large for a spec", file=name)
    return read_text(_decode(raw, name), name)


def read_text(text: str, name: str) -> Source:
    """The document in `text`; `name` stands for the file in errors. Raises SpecError."""
    if len(text) > MAX_BYTES:
        raise SpecError(f"longer than {MAX_BYTES // 1024} KiB, too large for a spec", file=name)
    root = _compose(text, name)
    if root is None:
        raise SpecError("empty: a spec needs at least `name` and `task`", file=name, line=1, column=1)
    builder = _Builder(name)
    data = builder.build(root, (), 1, _at(root))
    if builder.problems:
        raise SpecError.join(builder.problems)
    return Source(name, text, data, builder.places)


def _decode(raw: bytes, name: str) -> str:
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = raw[: error.start]
        line = before.count(b"\n") + 1
        start = before.rfind(b"\n") + 1
        column = len(before[start:].decode("utf-8", "replace")) + 1
        raise SpecError(
            f"not UTF-8: byte 0x{raw[error.start]:02x}; save the file as UTF-8",
            file=name,
            line=line,
            column=column,
        ) from None


def _similar_file(path: Path) -> str:
    folder = path.parent
    names = [p.name for p in folder.glob("*.y*ml")] if folder.is_dir() else []
    if not folder.is_dir():
        return f" (there is no folder {folder} either)"
    found = difflib.get_close_matches(path.name, names, n=1, cutoff=0.5)
    found = found or [name for name in names if Path(name).stem == path.name]
    return f"; did you mean {folder / found[0]}?" if found else ""


def _files_in(path: Path) -> str:
    names = sorted(p.name for p in path.glob("*.y*ml"))[:5]
    return f"; it holds {', '.join(names)}" if names else ""


class _Tagged(yaml.MarkedYAMLError):
    """A tag in the document."""


class _TooLarge(yaml.MarkedYAMLError):
    """A document nested too deeply or with too many values."""


class _Composer(Reader, Scanner, Parser, Composer, BaseResolver):
    """PyYAML up to the node graph, without its scalar rules; refuses tags and depth as it goes."""

    def __init__(self, text: str) -> None:
        Reader.__init__(self, text)
        Scanner.__init__(self)
        Parser.__init__(self)
        Composer.__init__(self)
        BaseResolver.__init__(self)
        self.depth = self.nodes = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        event = self.peek_event()  # type: ignore[no-untyped-call]
        if getattr(event, "tag", None) is not None:
            raise _Tagged(None, None, event.tag, event.start_mark)
        self.depth += 1
        self.nodes += 1
        if self.depth > MAX_DEPTH:
            raise _TooLarge(None, None, f"nested more than {MAX_DEPTH} levels deep", event.start_mark)
        if self.nodes > MAX_NODES:
            raise _TooLarge(None, None, f"more than {MAX_NODES} values", event.start_mark)
        node: yaml.Node | None = super().compose_node(parent, index)
        self.depth -= 1
        return node


def _compose(text: str, name: str) -> yaml.Node | None:
    try:
        return _Composer(text).get_single_node()
    except ReaderError as error:
        before = text[: error.position]
        line, column = before.count("\n") + 1, error.position - before.rfind("\n")
        problem = f"the character U+{error.character:04X} is not allowed in YAML"
        raise SpecError(problem, file=name, line=line, column=column) from None
    except yaml.MarkedYAMLError as error:
        unclosed = "unexpected end of stream" in (error.problem or "")
        mark = (error.context_mark if unclosed else None) or error.problem_mark or error.context_mark
        line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
        problem = "this quote is never closed" if unclosed else _yaml_problem(error, text, line)
        raise SpecError(problem, file=name, line=line, column=column) from None


def _yaml_problem(error: yaml.MarkedYAMLError, text: str, line: int) -> str:
    """PyYAML's complaint as a sentence for the person who wrote the file."""
    if isinstance(error, _Tagged):
        tag = shown((error.problem or "").replace("tag:yaml.org,2002:", "!!"))
        return f"the tag `{tag}` is refused: a spec holds plain values, and nothing in it runs code"
    if isinstance(error, _TooLarge):
        return str(error.problem)
    problem = error.problem or str(error)
    lines = text.splitlines()
    written = lines[line - 1] if line <= len(lines) else ""
    if "\\t" in problem or "\t" in written[: len(written) - len(written.lstrip())]:
        return "a tab; YAML is indented with spaces"
    if problem == "but found another document":
        return "a second document starts here (`---`); a spec is one document"
    if problem.startswith("found undefined alias"):
        return f"the alias {problem.split()[-1]} has no anchor (`&name`) above; text with a `*` needs quotes"
    if problem == "mapping values are not allowed here":
        return "a `:` that can't start a value here: check the indentation, or put text with `: ` in quotes"
    if problem == "could not find expected ':'":
        return "expected `key: value` (a `:` is missing, or the indentation is off)"
    if problem.startswith("expected <block end>, but found"):
        return "the indentation doesn't match the lines above, or a quote or bracket ended early"
    if "cannot start any token" in problem:
        character = problem.removeprefix("found character ").split()[0]
        return f"the character {character} can't start a value; put text with it in quotes"
    context = f" {error.context}" if error.context else ""
    if error.context_mark and error.context_mark.line + 1 != line:
        context += f" that starts on line {error.context_mark.line + 1}"
    return f"not valid YAML: {problem}{context}"


def _at(node: yaml.Node) -> tuple[int, int]:
    mark = node.start_mark
    return (mark.line + 1, mark.column + 1)


class _Builder:
    """Node graph to plain data. Aliases become separate copies, so no two places share a container."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.places: dict[KeyPath, Place] = {}
        self.problems: list[SpecError] = []
        self.nodes = 0

    def problem(self, at: tuple[int, int], path: KeyPath, text: str) -> None:
        self.problems.append(
            SpecError(text, file=self.name, line=at[0], column=at[1], key=dotted(path)),
        )
        if len(self.problems) >= MAX_PROBLEMS:
            raise SpecError.join(self.problems)

    def build(self, node: yaml.Node, path: KeyPath, depth: int, key_at: tuple[int, int]) -> Any:
        self.nodes += 1
        if self.nodes > MAX_NODES:
            self.fatal(node, path, f"more than {MAX_NODES} values once aliases are expanded")
        if depth > MAX_DEPTH:
            self.fatal(node, path, f"nested more than {MAX_DEPTH} levels deep once aliases are expanded")
        self.places[path] = Place(key_at, _at(node))
        if isinstance(node, yaml.ScalarNode):
            return self.scalar(node, path)
        if isinstance(node, yaml.SequenceNode):
            return [self.build(item, (*path, index), depth + 1, _at(item)) for index, item in enumerate(node.value)]
        return {
            key: self.build(value, (*path, key), depth + 1, _at(key_node))
            for key, key_node, value in self.pairs(node, path)
        }

    def fatal(self, node: yaml.Node, path: KeyPath, text: str) -> None:
        line, column = _at(node)
        raise SpecError(text, file=self.name, line=line, column=column, key=dotted(path))

    def scalar(self, node: yaml.ScalarNode, path: KeyPath) -> Any:
        if node.style is not None:
            return node.value
        try:
            return parse_scalar(node.value)
        except ScalarError as error:
            self.problem(_at(node), path, str(error))
            return None

    def pairs(self, node: yaml.Node, path: KeyPath) -> Iterator[tuple[str, yaml.Node, yaml.Node]]:
        first: dict[str, int] = {}
        for key_node, value in node.value:
            key = self.key(key_node, path)
            if key is None:
                continue
            if key in first:
                self.problem(
                    _at(key_node), (*path, key), f"a second key `{shown(key)}`; the first is on line {first[key]}"
                )
                continue
            first[key] = _at(key_node)[0]
            yield key, key_node, value

    def key(self, node: yaml.Node, path: KeyPath) -> str | None:
        if not isinstance(node, yaml.ScalarNode):
            self.problem(_at(node), path, "a key must be text, not a list or a mapping")
            return None
        if node.style is not None:
            return str(node.value)
        if node.value == "<<":
            self.problem(_at(node), path, "merge keys (`<<`) are not supported: repeat the keys, or alias whole values")
            return None
        try:
            value = parse_key(node.value)
        except ScalarError as error:
            self.problem(_at(node), path, str(error))
            return None
        if not isinstance(value, str):
            self.problem(
                _at(node),
                path,
                f"the key `{shown(node.value)}` is not text: put it in quotes if it is meant as a name",
            )
            return None
        return value
