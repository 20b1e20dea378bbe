"""Tables that exist already: what is read, what is said about it, and what is refused with which sentence."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import sqlalchemy as sa

from db import sanity
from db.store import RunRecord, Selection, Store
from db.tables import Table, TableError, read_table, source_of
from sweeps.errors import SpecError, SweeplawError
from sweeps.load import LoadedSpec, load

SPEC = """\
name: s
results:
  path: t.csv
axes: [n_params, tokens]
fit:
  of: loss
  laws:
    - {law: chinchilla, over: [n_params, tokens]}
"""
ROWS = """\
# measured in spring
n_params,tokens,loss,recipe
1e7,1e9,4.0,a
2e7,1e9,3.8,a
4e7,2e9,3.5,b
"""


class Folder:
    """A folder with a spec and its table."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def load(self, rows: str | bytes, spec: str = SPEC, *overrides: str) -> LoadedSpec:
        data = rows.encode() if isinstance(rows, str) else rows
        (self.path / "t.csv").write_bytes(data)
        (self.path / "s.yaml").write_text(spec)
        return load(self.path / "s.yaml", overrides)

    def read(self, rows: str | bytes, spec: str = SPEC, *overrides: str) -> Table:
        return read_table(self.load(rows, spec, *overrides))

    def refusal(self, rows: str | bytes, spec: str = SPEC, *overrides: str) -> str:
        """The sentence of the error, without the folder."""
        with pytest.raises(SweeplawError) as caught:
            self.read(rows, spec, *overrides)
        assert type(caught.value) in (TableError, SpecError)
        return str(caught.value).replace(f"{self.path}/", "")


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def with_results(more: str, spec: str = SPEC) -> str:
    return spec.replace("  path: t.csv\n", "  path: t.csv\n" + "".join(f"  {line}\n" for line in more.splitlines()))


# reading


def test_a_table_becomes_one_row_per_run(folder: Folder) -> None:
    table = folder.read(ROWS)
    assert table.frame.columns == ["run", "status", "n_params", "tokens", "loss", "recipe"]
    assert table.frame.rows() == [
        ("row 1", "done", 1e7, 1e9, 4.0, "a"),
        ("row 2", "done", 2e7, 1e9, 3.8, "a"),
        ("row 3", "done", 4e7, 2e9, 3.5, "b"),
    ]
    assert (table.rows, table.left_out, table.notes, table.counts) == (3, (), (), None)
    assert len(table.sha256) == 64


def test_a_parquet_file_gives_what_the_csv_file_gives(folder: Folder) -> None:
    csv = folder.read(ROWS)
    stream = io.BytesIO()
    pl.read_csv(io.StringIO(ROWS), comment_prefix="#").write_parquet(stream)
    parquet = folder.read(stream.getvalue())
    assert parquet.frame.equals(csv.frame)
    assert parquet.sha256 != csv.sha256


def test_blank_lines_comments_and_a_byte_order_mark_are_no_rows(folder: Folder) -> None:
    rows = ROWS.replace("\n2e7", "\n\n# later\n2e7") + "\n"
    assert folder.read(b"\xef\xbb\xbf" + rows.encode()).frame.equals(folder.read(ROWS).frame)


def test_tabs_and_spellings_of_numbers(folder: Folder) -> None:
    table = folder.read("n_params\ttokens\tloss\n10M\t1.2B\t2**2\n 2e7 \t3_000_000\t+3.5\n")
    assert table.frame.select("n_params", "tokens", "loss").rows() == [(1e7, 1.2e9, 4.0), (2e7, 3e6, 3.5)]


def test_names_units_and_derived_columns(folder: Folder) -> None:
    rows = "Model Size (B),FLOPs (1E21),loss\n1,0.06,3\n2,0.24,2.5\n"
    columns = "columns:\n  n_params: {column: Model Size (B), unit: 1e9}\n  flops: {column: FLOPs (1E21), unit: 1e21}"
    table = folder.read(rows, with_results(columns, SPEC + "derive: {tokens: flops / (6 * n_params)}\n"))
    assert table.frame["n_params"].to_list() == [1e9, 2e9]
    assert table.frame["tokens"].to_list() == pytest.approx([1e10, 2e10])


def test_diverged_missing_and_the_flag(folder: Folder) -> None:
    rows = "n_params,tokens,loss,diverged\n1e7,1e9,NaN,0\n1e7,2e9,inf,0\n1e7,3e9,,1\n1e7,4e9,,0\n1e7,5e9,3,\n"
    table = folder.read(rows)
    assert table.frame["status"].to_list() == ["diverged", "diverged", "diverged", "done", "done"]
    assert np.isnan(table.frame["loss"][0])
    assert table.frame["loss"][1] == np.inf
    assert table.frame["loss"].to_list()[2:] == [None, None, 3]


def test_what_is_derived_of_a_diverged_value_has_diverged(folder: Folder) -> None:
    rows = "n_params,tokens,nats\n1e7,1e9,NaN\n1e7,2e9,1\n1e7,4e9,\n"
    table = folder.read(rows, SPEC + "derive: {loss: nats / log(2), double: 2 * nats}\n")
    assert table.frame["status"].to_list() == ["diverged", "done", "done"]
    assert table.frame["double"].to_list() == [None, 2, None]


def test_a_status_of_ones_own_is_kept(folder: Folder) -> None:
    table = folder.read("n_params,tokens,loss,status\n1e7,1e9,3,done\n1e7,2e9,,failed\n")
    assert table.frame["status"].to_list() == ["done", "failed"]


def test_conditions_and_places_leave_rows_out_aloud(folder: Folder) -> None:
    rows = "n_params,tokens,loss,kind\n1e7,1e9,4,a\n2e7,1e9,3,b\n3e7,,3,a\n4e7,1e9,9,a\nx,1e9,1,total\n"
    spec = with_results("where: kind != 'total'", SPEC + "where: loss < 5\n")
    table = folder.read(rows, spec)
    assert table.frame["n_params"].to_list() == [1e7, 2e7]
    assert table.left_out == (("by `kind != 'total'`", 1), ("by `loss < 5`", 1), ("without tokens", 1))
    assert table.notes == (
        "2 of 5 rows of t.csv enter; left out: 1 by `kind != 'total'`, 1 by `loss < 5`, 1 without tokens.",
    )


def test_rows_before_the_end_of_the_schedule_are_left_out(folder: Folder) -> None:
    rows = "n_params,tokens,loss,step,steps\n1e7,1e9,4,5,10\n1e7,2e9,3,10,10\n"
    table = folder.read(rows, with_results("schedule: step == steps"))
    assert table.left_out == (("whose learning-rate schedule was not at its end", 1),)


def test_derived_values_of_incomplete_rows_are_missing(folder: Folder) -> None:
    rows = "n_params,tokens,loss,width\n1e7,1e9,4,2\n2e7,1e9,3,\n4e7,1e9,3,0\n"
    table = folder.read(rows, SPEC + "derive: {depth: 8 / width}\n")
    assert table.frame["depth"].to_list() == [4, None, None]


def test_repeated_rows_count_once_and_others_are_replicates(folder: Folder) -> None:
    rows = "n_params,tokens,loss\n1e7,1e9,4\n1e7,1e9,4\n1e7,1e9,4.1\n2e7,1e9,3\n"
    table = folder.read(rows)
    assert table.frame["loss"].to_list() == [4, 4.1, 3]
    assert table.notes[1:] == (
        "1 row of the same place and value as an earlier one, counted once: 2.",
        "1 place has several rows (2 in all), and no column of seeds is named: taken as replicates.",
    )


def test_named_runs_are_not_duplicates_of_each_other(folder: Folder) -> None:
    rows = "name,n_params,tokens,loss\nx,1e7,1e9,4\ny,1e7,1e9,4\n"
    table = folder.read(rows, with_results("run: name"))
    assert table.frame["run"].to_list() == ["x", "y"]


def test_a_column_of_seeds(folder: Folder) -> None:
    rows = "n_params,tokens,loss,seed\n1e7,1e9,4,0\n1e7,1e9,4.1,1\n"
    table = folder.read(rows, SPEC + "replicates: [seed]\n")
    assert table.notes == ()
    assert table.frame["seed"].to_list() == [0, 1]


# what n_params counts


COUNTED = "n_params,tokens,loss,how\n1e7,1e9,4,kaplan\n2e7,1e9,3.8,kaplan\n4e7,1e9,3.7,whole\n"
COUNTS = "counts: {column: how, values: {kaplan: no_embedding, whole: all}}"


def test_counts_are_told(folder: Folder) -> None:
    assert folder.read(ROWS, with_results("counts: all")).counts == "all"
    one = with_results(COUNTS, SPEC + "where: how == 'kaplan'\n")
    assert folder.read(COUNTED, one).counts == "no_embedding"
    compared = with_results(COUNTS, SPEC + "compare: [how]\n")
    assert folder.read(COUNTED, compared).counts is None
    chosen = with_results(COUNTS).replace("tokens]}", "tokens], where: how == 'kaplan'}")
    assert folder.read(COUNTED, chosen).counts is None


# refusals

REFUSED = {
    "no rows": (
        "n_params,tokens,loss\n", SPEC,
        "t.csv: no rows below the titles.",
    ),
    "an empty file": (
        "", SPEC,
        "s.yaml:3:9: results.path: t.csv: empty: expected a line of column titles, then rows",
    ),
    "a title twice": (
        "loss,loss\n1,2\n", SPEC,
        "s.yaml:3:9: results.path: t.csv: two columns are called `loss`",
    ),
    "semicolons": (
        "a;b\n1;2\n", SPEC,
        "s.yaml:3:9: results.path: t.csv: columns are separated by `;`; expected commas or tabs",
    ),
    "a long row": (
        "# c\nn_params,loss\n1,2\n\n1,2,3\n", SPEC,
        "s.yaml:3:9: results.path: t.csv: line 5 has 3 cells where the header has 2",
    ),
    "an open quote": (
        'n_params,loss\n1,2\n"1,2\n', SPEC,
        "s.yaml:3:9: results.path: t.csv: line 3: a quote is never closed",
    ),
    "another encoding": (
        "n_params,loss\n1,2\né,2\n".encode("latin-1"), SPEC,
        "s.yaml:3:9: results.path: t.csv: line 3 is not UTF-8 (byte 0xe9); save the table as CSV in UTF-8, or as "
        "Parquet",
    ),
    "a broken Parquet file": (
        b"PAR1 and no more", SPEC,
        "s.yaml:3:9: results.path: t.csv: not a whole Parquet file; it may have been cut short",
    ),
    "an unknown column": (
        ROWS, SPEC.replace("of: loss", "of: los"),
        "s.yaml:6:7: fit.of: no column `los` in t.csv; did you mean `loss`?",
    ),
    "an unknown title": (
        ROWS, with_results("columns: {size: Parameters}"),
        "s.yaml:4:19: results.columns.size: no column `Parameters` in t.csv; there are `n_params`, `tokens`, `loss`, "
        "`recipe`",
    ),
    "a title that is no name": (
        "n_params,Tokens (seen),loss\n1e7,1e9,3\n", SPEC,
        "s.yaml:4:7: axes.tokens: no column `tokens` in t.csv; there are `n_params`, `loss`",
    ),
    "an unknown name in a condition": (
        ROWS, SPEC + "where: recipee == 'a'\n",
        "s.yaml:9:8: where.0: no column `recipee` in t.csv; did you mean `recipe`?",
    ),
    "an unknown column in a law's condition": (
        ROWS, SPEC.replace("tokens]}", "tokens], where: flops > 1}"),
        "s.yaml:8:58: fit.laws.0.where: no column `flops` in t.csv; did you mean `loss`?",
    ),
    "a derived name too early": (
        ROWS, with_results("where: size > 1", SPEC + "derive: {size: 2 * n_params}\n"),
        "s.yaml:4:10: results.where.0: `size` is derived, and comes later: put the condition under `where`",
    ),
    "a word in a number column": (
        "n_params,tokens,loss\n1e7,1e9,4\n2e7,1e9,four\n3e7,1e9,x\n", SPEC,
        "t.csv: row 2: loss = 'four' is not a number (and 1 more of that column).",
    ),
    "a word in a named run": (
        "run,n_params,tokens,loss\na1,1e7,1e9,4\na2,2e7,1e9,1,5\n".replace("1,5", '"1,5"'), SPEC,
        "t.csv: row 2 (run a2): loss = '1,5' is not a number.",
    ),
    "a word for nothing": (
        "n_params,tokens,loss\n1e7,1e9,NA\n", SPEC,
        "t.csv: row 1: loss = 'NA' is not a number; if it means a missing number, write results.missing: [NA].",
    ),
    "a bad flag": (
        "n_params,tokens,loss,diverged\n1e7,1e9,3,maybe\n", SPEC,
        "t.csv: diverged = 'maybe': expected true or false, or 1 or 0.",
    ),
    "no row left": (
        ROWS, SPEC + "where: loss < 1\n",
        "t.csv: none of its 3 rows is left: 3 by `loss < 1`.",
    ),
    "a condition that is none": (
        ROWS, SPEC + "where: loss + 1\n",
        "s.yaml:9:8: where.0: `loss + 1` must give true or false, but gives 5.0",
    ),
    "arithmetic with words": (
        ROWS, SPEC + "derive: {d: 2 * recipe}\n",
        "s.yaml:9:13: derive.d.expr: row 1: `2 * recipe`: `*` needs numbers, not the text 'a'",
    ),
    "units in a title": (
        "n_params,tokens_b,loss\n1e7,2,4\n1e7,128,3\n", with_results("columns: {tokens: tokens_b}"),
        "s.yaml:4:21: results.columns.tokens: column tokens_b: 2 … 128. If these are billions, write "
        "tokens: {column: tokens_b, unit: 1e9} under results.columns; if not, unit: 1",
    ),
    "units in parentheses": (
        "n_params,tokens,FLOPs (1E21),loss\n1e7,1e9,0.5,4\n",
        with_results("columns: {flops: FLOPs (1E21)}"),
        "s.yaml:4:20: results.columns.flops: column FLOPs (1E21): 0.5. If these are units of 1e21, write "
        "flops: {column: FLOPs (1E21), unit: 1e21} under results.columns; if not, unit: 1",
    ),
    "units wrong by 1e9": (
        "n_params,tokens,loss\n1e7,2,4\n1e7,128,3\n", SPEC,
        "t.csv: column tokens: 2 … 128, where 1e4 … 1e17 is usual. If these are billions, write unit: 1e9.",
    ),
    "a unit too many": (
        "n_params,tokens,loss\n1e7,1e9,4\n", with_results("columns: {tokens: {unit: 1e12}}"),
        "t.csv: column tokens: 1e+21, where 1e4 … 1e17 is usual.",
    ),
    "checkpoints": (
        "name,n_params,tokens,loss\na,1e7,1e9,4\na,1e7,2e9,3\nb,2e7,1e9,4\n", with_results("run: name"),
        "s.yaml:7:3: fit: 3 rows belong to 2 runs (column name), 1 of them at several places: rows of one run are not "
        "independent, so write `cluster: name`",
    ),
    "checkpoints of a column called run": (
        "run,n_params,tokens,loss\na,1e7,1e9,4\na,1e7,2e9,3\n", SPEC,
        "s.yaml:6:3: fit: 2 rows belong to 1 run (column run), 1 of them at several places: rows of one run are not "
        "independent, so write `cluster: run_name`, with `columns: {run_name: run}` and `run: run_name` under results",
    ),
    "mixed counts": (
        COUNTED, with_results(COUNTS),
        "s.yaml:9:7: fit.laws.0: n_params counts different things in one fit: 2 rows of no_embedding and 1 row of "
        "all; choose with `where`, or compare them",
    ),
    "a count without a meaning": (
        COUNTED, with_results("counts: {column: how}"),
        "s.yaml:4:11: results.counts: `kaplan` in column how is none of `all`, `no_embedding`, `matrices_and_head`; "
        "say what it means, such as values: {kaplan: all}",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_can_not_be_read_is_one_sentence(case: str, folder: Folder) -> None:
    rows, spec, said = REFUSED[case]
    assert folder.refusal(rows, spec) == said


def test_a_missing_file_names_the_one_beside_it(folder: Folder) -> None:
    folder.load(ROWS)
    (folder.path / "table.csv").write_text(ROWS)
    assert folder.refusal(ROWS, SPEC.replace("t.csv", "tabel.csv")) == (
        "s.yaml:3:9: results.path: there is no file tabel.csv; did you mean table.csv?"
    )
    assert folder.refusal(ROWS, SPEC.replace("t.csv", "no/t.csv")).endswith("no/t.csv (nor a folder no)")


def test_a_word_that_stands_for_nothing(folder: Folder) -> None:
    table = folder.read("n_params,tokens,loss\n1e7,1e9,NA\n2e7,1e9,3\n", with_results("missing: NA"))
    assert table.frame["loss"].to_list() == [None, 3]


def test_rows_that_are_not_read_may_hold_anything(folder: Folder) -> None:
    rows = ROWS + "all,all,mean 3.7,z\n"
    assert len(folder.read(rows, with_results("where: recipe != 'z'")).frame) == 3


def test_a_little_outside_the_usual_range_is_a_note(folder: Folder) -> None:
    table = folder.read("n_params,tokens,loss\n200,1e9,4\n1e7,1e9,3\n")
    assert table.notes == ("column n_params: 200 … 1e+07, where 1e3 … 1e15 is usual.",)


def test_a_typed_path_counts_from_here(folder: Folder, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "mine.csv").write_text(ROWS)
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert folder.read("", SPEC, "results.path=mine.csv").rows == 3


@pytest.mark.parametrize(
    ("title", "unit"),
    [("tokens_b", 1e9), ("Model Size (B)", 1e9), ("data (T)", 1e12), ("size_millions", 1e6), ("FLOPs (1E21)", 1e21),
     ("flops_1e18", 1e18), ("loss", None), ("bpb", None), ("tab", None), ("ARC (25)", None)],
)  # fmt: skip
def test_units_in_titles(title: str, unit: float | None) -> None:
    assert sanity.unit_of_title(title) == unit


# a query on a store


@pytest.fixture
def store(tmp_path: Path) -> Path:
    file = tmp_path / "store.db"
    runs = [RunRecord(f"r{i}", 1, "m:f", {}, 1e7 * (i + 1), 1e17, 1e9, None) for i in range(3)]
    with Store.open(f"sqlite:///{file}") as opened:
        opened.register("mine", "text", None, "m:f", runs, [Selection(run.id, {}, {}) for run in runs], [])
    return file


def query_spec(query: str) -> str:
    return SPEC.replace("  path: t.csv\n", f'  store: sqlite:///store.db\n  query: "{query}"\n')


def test_a_query_on_a_store_is_a_table(folder: Folder, store: Path) -> None:
    before = store.read_bytes()
    table = folder.read("", query_spec("SELECT n_params, tokens, 3.0 AS loss FROM runs ORDER BY id;"))
    assert table.frame["n_params"].to_list() == [1e7, 2e7, 3e7]
    assert store.read_bytes() == before
    assert source_of(folder.load("", query_spec("SELECT 1"))) == "results: a query on sqlite:///store.db"


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("DELETE FROM runs", "expected a SELECT, found `DELETE`"),
        ("SELECT 1; DELETE FROM runs", "expected one SELECT, found a `;` inside the query"),
        ("PRAGMA query_only=OFF", "expected a SELECT, found `PRAGMA`"),
        ("SELECT 1 AS a, 2 AS a", "two columns of the query are called `a`"),
    ],
)
def test_a_query_is_one_select(query: str, said: str, folder: Folder, store: Path) -> None:
    before = store.read_bytes()
    assert folder.refusal("", query_spec(query)).endswith(f"results.query: {said}")
    assert store.read_bytes() == before


def test_a_select_that_writes_is_refused_by_the_database(folder: Folder, store: Path) -> None:
    from db.errors import StoreError

    query = "WITH gone AS (SELECT key FROM runs) DELETE FROM runs WHERE key IN (SELECT key FROM gone)"
    with pytest.raises(StoreError, match="read-only"):
        folder.read("", query_spec(query))
    engine = sa.create_engine(f"sqlite:///{store}")
    with engine.connect() as connection:
        assert connection.execute(sa.text("SELECT count(*) FROM runs")).scalar() == 3
    engine.dispose()


def test_a_store_that_is_not_there_is_not_made(folder: Folder) -> None:
    assert "there is no such file" in folder.refusal("", query_spec("SELECT 1"))
    assert not (folder.path / "store.db").exists()
