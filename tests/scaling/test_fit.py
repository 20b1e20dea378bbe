"""The public way in: a law, a table, column names."""

import numpy as np
import polars as pl
import pytest
from scipy.stats import linregress

from scaling.errors import AnalysisError
from scaling.fit import fit

WIDTHS = 2.0 ** np.arange(4, 12)
FRAME = pl.DataFrame({
    "width": WIDTHS,
    "val_loss": 3.0 * WIDTHS**-0.3 * np.exp(0.02 * np.random.default_rng(0).standard_normal(8)),
    "word": ["a"] * 8,
    "run": ["x", "x", "y", "y", "z", "z", "w", "w"],
})  # fmt: skip


def test_a_named_law_over_a_column() -> None:
    found = fit("power", FRAME, over="width", draws=100)
    slope = linregress(np.log(WIDTHS), np.log(FRAME["val_loss"].to_numpy())).slope
    assert found.params["alpha"].value == pytest.approx(-slope, abs=0.02)
    assert found.params["alpha"].lo is not None


def test_a_formula_finds_its_inputs_among_the_columns() -> None:
    found = fit("A*width^-b", FRAME, draws=0)
    assert found.law.inputs == ("width",)
    assert set(found.params) == {"A", "b"}


def test_inputs_of_a_named_law_are_its_own_names() -> None:
    n, d = np.meshgrid(10.0 ** np.arange(7, 11), 10.0 ** np.arange(8, 12))
    table = pl.DataFrame({"n_params": n.ravel(), "tokens": d.ravel()}).with_columns(
        val_loss=1.7 + 400 * pl.col("n_params") ** -0.34 + 900 * pl.col("tokens") ** -0.28
    )
    found = fit("chinchilla", table, draws=0)
    assert found.params["beta"].value == pytest.approx(0.28, rel=1e-6)


def test_clusters_are_drawn_whole() -> None:
    rows = pl.concat([FRAME.with_columns(pl.lit(i).alias("seed")) for i in range(3)])
    alone = fit("power", rows, over="width").params["alpha"]
    whole = fit("power", rows, over="width", cluster="width").params["alpha"]
    # three copies of a row are one observation: the interval must not shrink for them
    assert whole.hi - whole.lo > 1.4 * (alone.hi - alone.lo)
    few = fit("power", FRAME, over="width", cluster="run")
    assert few.params["alpha"].lo is None
    assert "4" in " ".join(few.why)


@pytest.mark.parametrize(
    ("call", "part"),
    [
        (lambda: fit("power", FRAME, over="widht"), "no column 'widht'. Did you mean 'width'?"),
        (lambda: fit("power", FRAME, of="loss", over="width"), "no column 'loss'. Did you mean 'val_loss'?"),
        (lambda: fit("power", FRAME, over="word"), "row 1: word = 'a' is not a number."),
        (lambda: fit("powr", FRAME, over="width"), "law 'powr' is not known. Did you mean 'power'"),
        (lambda: fit("power", FRAME), "law 'power': say what it is over, such as over='width'."),
        (lambda: fit("a + b*depth", FRAME), "none of its names (a, b, depth) is a column"),
        (lambda: fit("power", FRAME.clear(), over="width"), "no row has numbers for val_loss, width; the table has 0"),
        (lambda: fit("power", FRAME, over="width", start={"A": 1.0}), "alpha is missing; a start names every free"),
        (lambda: fit("power", FRAME, over="width", freeze={"beta": 1.0}), "law 'power' has no parameter 'beta'."),
    ],
)
def test_what_is_wrong_is_said(call, part: str) -> None:
    with pytest.raises(
        AnalysisError, match=part.replace("(", r"\(").replace(")", r"\)").replace("?", r"\?").replace("*", r"\*")
    ):
        call()


def test_rows_without_a_number_are_left_out() -> None:
    holed = FRAME.with_columns(
        pl.when(pl.col("width") == 64).then(None).otherwise(pl.col("val_loss")).alias("val_loss")
    )
    assert len(fit("power", holed, over="width", draws=0).rows) == 7


def test_numbers_in_words_are_read() -> None:
    assert len(fit("power", FRAME.with_columns(pl.col("width").cast(pl.String)), over="width", draws=0).rows) == 8
