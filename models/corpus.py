"""Text for language models: documents, their split, their symbols."""

from __future__ import annotations

import functools
import gzip
import hashlib
import os
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

TOKENIZERS = ("chars", "bytes")
VALIDATION_SHARE = 0.05
RARE = 1e-5  # a character below this share of the training text becomes the "other" symbol
_GZIP_MAGIC = b"\x1f\x8b"
# Third-party code, tests, the editor, demos, generated tables and help texts are not the library's own text.
_STDLIB_LEFT_OUT = frozenset(
    {
        *("site-packages", "dist-packages", "test", "tests", "idle_test", "idlelib", "turtledemo"),
        *("encodings", "pydoc_data", "lib2to3", "__pycache__"),
    }
)

Tokens = NDArray[np.uint8] | NDArray[np.uint16]


class CorpusError(ValueError):
    """A corpus that is missing, empty, too small or not text."""


@dataclass(frozen=True)
class Document:
    name: str  # relative to the corpus, with forward slashes; decides the split
    data: bytes


@dataclass(frozen=True)
class Corpus:
    """An encoded corpus: each split is one array of symbol numbers, symbol 0 between documents.

    sha256: of all document names and bytes, both splits.
    symbols: the characters of symbols 1, 2, ... for `chars`; None for `bytes`.
    """

    name: str
    tokenizer: str
    sha256: str
    vocab_size: int
    symbols: str | None
    train: Tokens  # [n_train]
    validation: Tokens  # [n_validation]

    def decode(self, tokens: Tokens) -> str:
        """Text of the symbols; symbol 0 (document end, or a rare character) reads as U+FFFD."""
        if self.symbols is None:
            return tokens.astype(np.uint8).tobytes().decode(errors="replace")
        table = "\ufffd" + self.symbols
        return "".join(table[int(token)] for token in tokens)


def load(name: str, tokenizer: str = "chars") -> Corpus:
    """Read, split and encode a corpus; kept for the life of the process.

    name: `stdlib` (the sources of this interpreter's standard library), `topics` (the texts of Python's help()),
    or a path of a file (plain or gzip, so also .dict.dz) or folder of text files.
    Raises CorpusError for a corpus that is missing, empty or not text.
    """
    return _load(name, tokenizer)


def reload(name: str, tokenizer: str = "chars") -> Corpus:
    """As `load`, but looks at the files again: for a long-lived process whose corpus may have changed."""
    _load.cache_clear()
    return _load(name, tokenizer)


@functools.lru_cache(maxsize=4)
def _load(name: str, tokenizer: str) -> Corpus:
    if tokenizer not in TOKENIZERS:
        raise CorpusError(f"unknown tokenizer {tokenizer!r}; known: {', '.join(TOKENIZERS)}")
    documents = sorted(_documents(name), key=lambda document: document.name)
    if not any(document.data for document in documents):
        raise CorpusError(f"corpus {name!r} has no text")
    encode = _encode_bytes if tokenizer == "bytes" else _encode_chars
    symbols, vocab_size, train, validation = encode(name, *split(documents))
    return Corpus(name, tokenizer, fingerprint(documents), vocab_size, symbols, train, validation)


def fingerprint(documents: list[Document]) -> str:
    """sha256 over (length of name, name, length of data, data) of each document, in the given order."""
    digest = hashlib.sha256()
    for document in documents:
        for part in (document.name.encode(), document.data):
            digest.update(len(part).to_bytes(8, "big"))
            digest.update(part)
    return digest.hexdigest()


def split(documents: list[Document]) -> tuple[list[Document], list[Document]]:
    """Train and validation documents, by the hash of each name, so that adding a document moves no other.

    A single document is cut by position instead: its last 5 % are the validation text.
    """
    if len(documents) == 1:
        name, data = documents[0].name, documents[0].data
        cut = _text_boundary(data, int(len(data) * (1 - VALIDATION_SHARE)))
        return [Document(name, data[:cut])], [Document(name, data[cut:])]
    by_rank = sorted(documents, key=_rank)
    low = [document.name for document in by_rank if _rank(document) < VALIDATION_SHARE]
    held_out = set(low[: len(documents) - 1]) or {by_rank[0].name}  # each side gets at least one document
    train = [document for document in documents if document.name not in held_out]
    return train, [document for document in documents if document.name in held_out]


def _rank(document: Document) -> float:
    return int.from_bytes(hashlib.sha256(document.name.encode()).digest()[:8], "big") / 2**64


def _text_boundary(data: bytes, cut: int) -> int:
    while 0 < cut < len(data) and data[cut] & 0xC0 == 0x80:  # inside a UTF-8 character
        cut -= 1
    return cut


def _documents(name: str) -> Iterator[Document]:
    if name == "stdlib":
        return _stdlib()
    if name == "topics":
        return _topics()
    path = Path(name).expanduser()
    if path.is_dir():
        return _folder(path)
    if not path.is_file():
        raise CorpusError(f"corpus {name!r} is no file or folder here; named ones are 'stdlib' and 'topics'")
    return iter([Document("", _read(path))])


def _topics() -> Iterator[Document]:
    from pydoc_data.topics import topics

    return (Document(topic, text.encode()) for topic, text in topics.items())


def _stdlib() -> Iterator[Document]:
    root = Path(sysconfig.get_path("stdlib"))
    if not (root / "os.py").is_file():
        raise CorpusError(f"corpus 'stdlib': no sources of the standard library in {str(root)!r}; give a path instead")
    for path in _walk(root, _STDLIB_LEFT_OUT):
        if path.suffix == ".py" and (data := _text_or_none(path)) is not None:
            yield Document(path.relative_to(root).as_posix(), data)


def _folder(root: Path) -> Iterator[Document]:
    for path in _walk(root, frozenset({"__pycache__"})):
        if (data := _text_or_none(path)) is not None:
            yield Document(path.relative_to(root).as_posix(), data)


def _walk(root: Path, left_out: frozenset[str]) -> Iterator[Path]:
    for folder, folders, files in os.walk(root):
        folders[:] = sorted(f for f in folders if f not in left_out and not f.startswith((".", "config-")))
        yield from (Path(folder, file) for file in sorted(files) if not file.startswith("."))


def _text_or_none(path: Path) -> bytes | None:
    data = _read(path)
    try:
        data.decode()
    except UnicodeDecodeError:
        return None
    return None if b"\0" in data else data


def _read(path: Path) -> bytes:
    try:
        data = path.read_bytes()
        return gzip.decompress(data) if data.startswith(_GZIP_MAGIC) else data
    except (OSError, EOFError) as error:
        raise CorpusError(f"corpus file {str(path)!r} can't be read: {error}") from error


def _encode_bytes(_name: str, train: list[Document], validation: list[Document]) -> tuple[None, int, Tokens, Tokens]:
    def encode(documents: list[Document]) -> Tokens:
        return np.frombuffer(b"\0".join(document.data for document in documents), np.uint8)

    return None, 256, encode(train), encode(validation)


def _encode_chars(name: str, train: list[Document], validation: list[Document]) -> tuple[str, int, Tokens, Tokens]:
    code_points = _code_points(name, train)
    counts = np.bincount(code_points, minlength=1)
    counts[0] = 0  # the mark between documents is symbol 0
    kept = np.flatnonzero(counts >= max(2, RARE * len(code_points)))
    if len(kept) == 0:
        raise CorpusError(f"corpus {name!r} is too small: no character occurs twice in its training text")
    table: Tokens = np.zeros(0x110000, np.uint8) if len(kept) < 2**8 else np.zeros(0x110000, np.uint16)
    table[kept] = np.arange(1, len(kept) + 1)
    symbols = "".join(map(chr, kept))
    return symbols, len(kept) + 1, table[code_points], table[_code_points(name, validation)]


def _code_points(name: str, documents: list[Document]) -> NDArray[np.uint32]:
    try:
        text = "\0".join(document.data.decode() for document in documents)
    except UnicodeDecodeError as error:
        raise CorpusError(f"corpus {name!r} is not UTF-8 text ({error}); use tokenizer: bytes") from error
    return np.frombuffer(text.encode("utf-32-le"), np.uint32)
