import gzip
import hashlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from models import corpus
from models.corpus import CorpusError, Document


def folder(root: Path, texts: dict[str, str]) -> str:
    for name, text in texts.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return str(root)


def test_the_standard_library_is_there_and_split_by_document() -> None:
    data = corpus.load("stdlib")
    assert 5e6 < len(data.train) < 12e6
    assert 0.01 < len(data.validation) / len(data.train) < 0.1
    assert data.train.dtype == np.uint8
    assert data.train.max() < data.vocab_size == len(data.symbols or "") + 1
    text = data.decode(data.train)
    assert "class JSONEncoder(object):" in text or "class JSONEncoder(object):" in data.decode(data.validation)
    assert "idlelib.editor" not in text  # the editor's own sources are left out


def test_topics_bytes_are_the_texts() -> None:
    from pydoc_data.topics import topics

    data = corpus.load("topics", "bytes")
    parts = data.decode(data.train).split("\0") + data.decode(data.validation).split("\0")
    assert sorted(parts) == sorted(topics.values())
    assert data.vocab_size == 256


def test_a_folder_round_trips_and_rare_characters_become_other(tmp_path: Path) -> None:
    data = corpus.load(folder(tmp_path, {"a.txt": "aabbaaa" * 9, "sub/b.txt": "abba" * 9, "c.txt": "bab?" * 3}))
    texts = data.decode(data.train).split("\ufffd") + data.decode(data.validation).split("\ufffd")
    assert "aabbaaa" * 9 in texts
    assert "abba" * 9 in texts
    assert len(data.train) > 0 < len(data.validation)


def test_sha256_is_of_names_and_contents_alone(tmp_path: Path) -> None:
    texts = {"a.txt": "aaaa", "b.txt": "bbbbb"}
    one, two = corpus.load(folder(tmp_path / "x", texts)), corpus.load(folder(tmp_path / "y", texts))
    contents = (b"a.txt", b"aaaa", b"b.txt", b"bbbbb")
    parts = [part for content in contents for part in (len(content).to_bytes(8, "big"), content)]
    assert one.sha256 == two.sha256 == hashlib.sha256(b"".join(parts)).hexdigest()
    assert corpus.load(folder(tmp_path / "z", {"a.txt": "aaaa", "c.txt": "bbbbb"})).sha256 != one.sha256


def test_hidden_and_binary_files_of_a_folder_are_not_text(tmp_path: Path) -> None:
    name = folder(tmp_path, {"a.txt": "aaaa", "b.txt": "bbbb", ".hidden": "cccc", ".git/x": "dddd"})
    plain = corpus.load(name).sha256
    (tmp_path / "image").write_bytes(b"\xff\xfe\x00")
    assert corpus.reload(name).sha256 == plain


def test_a_file_is_cut_by_position(tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    path.write_text("ab" * 500)
    data = corpus.load(str(path), "bytes")
    assert (len(data.train), len(data.validation)) == (950, 50)
    assert data.decode(np.concatenate((data.train, data.validation))) == "ab" * 500


def test_a_packed_dictionary_reads_as_its_text(tmp_path: Path) -> None:
    (tmp_path / "plain.txt").write_text("word: meaning\n" * 50)
    (tmp_path / "words.dict.dz").write_bytes(gzip.compress(b"word: meaning\n" * 50))
    packed, plain = corpus.load(str(tmp_path / "words.dict.dz")), corpus.load(str(tmp_path / "plain.txt"))
    assert packed.sha256 == plain.sha256
    assert np.array_equal(packed.train, plain.train)


def test_the_cut_is_between_characters() -> None:
    data = "é".encode() * 101
    train, validation = corpus.split([Document("", data)])
    assert train[0].data.decode() + validation[0].data.decode() == "é" * 101


def test_many_symbols_need_two_bytes(tmp_path: Path) -> None:
    text = "".join(chr(0x4E00 + i) * 3 for i in range(400))
    (tmp_path / "han.txt").write_text(text * 20)
    data = corpus.load(str(tmp_path / "han.txt"))
    assert data.train.dtype == np.uint16
    assert data.vocab_size == 401


names = st.lists(st.text(min_size=1, max_size=8), min_size=2, max_size=40, unique=True)


@given(names=names)
def test_every_document_is_on_one_side_and_both_sides_have_some(names: list[str]) -> None:
    documents = [Document(name, name.encode()) for name in names]
    train, validation = corpus.split(documents)
    assert train
    assert validation
    assert sorted(d.name for d in train + validation) == sorted(names)


@given(names=names, extra=st.text(min_size=1, max_size=8))
def test_a_new_document_moves_no_other(names: list[str], extra: str) -> None:
    filler = [f"filler {i}" for i in range(200)]  # enough that no side is filled by force
    documents = [Document(name, b"x") for name in dict.fromkeys(filler + names)]
    before = {d.name for d in corpus.split(documents)[1]}
    after = {d.name for d in corpus.split([*documents, Document(extra, b"x")])[1]}
    assert after - {extra} == before - {extra}


@pytest.mark.parametrize(
    ("content", "tokenizer", "text"),
    [
        (None, "chars", "is no file or folder here"),
        (b"", "chars", "has no text"),
        (b"a", "chars", "too small"),
        (b"\xff\xfe" * 100, "chars", "not UTF-8 text.*tokenizer: bytes"),
        (b"\x1f\x8b broken", "chars", "can't be read"),
        (b"fine" * 9, "words", "unknown tokenizer 'words'; known: chars, bytes"),
    ],
)
def test_errors_say_what_is_wrong(tmp_path: Path, content: bytes | None, tokenizer: str, text: str) -> None:
    path = tmp_path / "corpus.txt"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(CorpusError, match=text):
        corpus.load(str(path), tokenizer)


def test_an_empty_folder_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="has no text"):
        corpus.load(str(tmp_path))
