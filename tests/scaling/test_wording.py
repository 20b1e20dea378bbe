import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from scaling import wording


@pytest.mark.parametrize(
    ("value", "lo", "hi", "text"),
    [
        (0.03124, 0.02897, 0.03349, "0.0312 [0.0290, 0.0335]"),
        (14.76, 13.81, 15.79, "14.8 [13.8, 15.8]"),
        (1.893e9, 1.62e9, 2.21e9, "1.89e9 [1.62e9, 2.21e9]"),
        (123456.0, 118000.0, 131000.0, "123000 [118000, 131000]"),
        (3.5e-5, 2.9e-5, 4.2e-5, "3.5e-5 [2.9e-5, 4.2e-5]"),
        (2.5e-5, 9.7e-9, 0.158, "2.5e-5 [9.7e-9, 0.16]"),
        (0.12, 0.004, 0.242, "0.12 [0.00, 0.24]"),
        (0.001, -0.02, 0.03, "0.001 [-0.020, 0.030]"),
        (-0.151, -0.3, -0.02, "-0.15 [-0.30, -0.02]"),
        (2.0, 2.0, 2.0, "2.000 [2.000, 2.000]"),
        (5.0, None, 6.0, "5"),
        (5.0, 4.0, math.inf, "5"),
        (5.0, 4.0, math.nan, "5"),
        (None, 4.0, 6.0, "–"),
        (math.nan, 4.0, 6.0, "–"),
    ],
)
def test_an_interval_decides_the_digits(value, lo, hi, text):
    assert wording.interval(value, lo, hi) == text


@pytest.mark.parametrize(
    ("value", "spread", "text"),
    [
        (0.031249, 0.0022, "0.0312"),
        (1.5, 0.0354, "1.500"),  # two digits of the spread up to 35
        (1.5, 0.036, "1.50"),  # one from 36 on
        (0.0, None, "0"),
        (-0.0001, 0.1, "0.00"),  # no minus on a zero
        (2.1, None, "2.1"),
        (2.123456, None, "2.123"),
        (1e6, None, "1e6"),
        (999_999.0, None, "1000000"),
        (1.23456789, 1e-12, "1.234568"),
        (True, None, "–"),
    ],
)
def test_digits_of_a_number(value, spread, text):
    assert wording.number(value, spread) == text


def test_plus_minus_keeps_a_small_error():
    assert wording.plus_minus(2.25131, 0.0034) == "2.2513 ± 0.0034"
    assert wording.plus_minus(2.25131, None) == "2.251"
    assert wording.plus_minus(1.5e9, 2e7) == "1.500e9 ± 0.020e9"


magnitude = st.floats(min_value=1e-12, max_value=1e12)


@given(value=magnitude, share=st.floats(1e-3, 2), negative=st.booleans())
@example(value=0.999999, share=0.1, negative=False)
def test_rounding_hides_less_than_the_uncertainty(value, share, negative):
    value = -value if negative else value
    spread = abs(value) * share
    assert abs(float(wording.number(value, spread)) - value) <= 0.15 * spread


@given(value=magnitude, down=st.floats(1.0001, 100), up=st.floats(1.0001, 100))
def test_a_printed_interval_keeps_its_order_and_its_place(value, down, up):
    lo, hi = value / down, value * up
    middle, bounds = wording.interval(value, lo, hi).split(" [")
    low, high = map(float, bounds.rstrip("]").split(", "))
    assert low <= float(middle) <= high
    room = max(0.15 * (hi - lo), 0.05 * hi)
    assert abs(low - lo) <= room
    assert abs(high - hi) <= room


@given(st.text())
def test_text_from_outside_cannot_steer_a_terminal(text):
    cleaned = wording.clean(text)
    assert cleaned.isprintable()
    assert len(cleaned) == len(text)


def test_clean_keeps_words_and_drops_escapes():
    assert wording.clean("α_loss [b] <i>") == "α_loss [b] <i>"
    assert wording.clean("a\x1b[31m\nb\u202ec") == "a�[31m b�c"


@pytest.mark.parametrize(
    ("group", "text"),
    [
        ({}, "all runs"),
        ({"rule": "hyperp"}, "hyperp"),
        ({"rule": "hyperp", "depth": 4}, "hyperp, depth 4"),
        ({"tie": True, "x": None}, "tie true, x none"),
        ({"rule": "muon", "optimizer": "muon"}, "rule muon, optimizer muon"),
    ],
)
def test_labels_of_groups(group, text):
    assert wording.label(group) == text


def transfer(rule, drift, lo=None, hi=None, **more):
    head = {"tune": "lr", "axis": "width", "group": {"rule": rule}, "from": 16, "to": 128, "drift": drift}
    return head | ({"lo": lo, "hi": hi} if lo else {}) | more


def analysis(**parts):
    return {"schema": 1, "sweep": "s", "of": "val_loss", "goal": "min", "level": 0.95, "runs": {"done": 1}} | parts


@pytest.mark.parametrize(
    ("item", "text"),
    [
        (transfer("a", 0.5, 0.4, 0.625), "falls 2.0-fold [1.6, 2.5]"),
        (transfer("a", 2.0, 1.6, 2.5), "rises 2.0-fold [1.6, 2.5]"),
        (transfer("a", 0.97, 0.9, 1.06), "stays within its interval (factor 0.97 [0.90, 1.06])"),
        (transfer("a", 0.25, why=["one seed"]), "falls 4.0-fold (no interval: one seed)"),
        (transfer("a", None, why=["no optimum"]), "has no measured drift (no optimum)"),
    ],
)
def test_a_drift_in_words(item, text):
    assert wording.moved(item) == text


def test_the_answer_says_drift_cost_and_share():
    data = analysis(
        transfer=[
            transfer("hyperp", 0.67, 0.62, 0.73, cost=0.011, cost_lo=0.006, cost_hi=0.017),
            transfer("standard", 0.068, 0.063, 0.072, cost=0.41, cost_lo=0.37, cost_hi=0.46),
        ],
        comparisons=[{
            "tune": "lr", "axis": "width", "a": {"rule": "hyperp"}, "b": {"rule": "standard"}, "from": 16, "to": 128,
            "ratio": {"value": 0.149, "lo": 0.117, "hi": 0.178},
        }],
    )  # fmt: skip
    first, share, cost = wording.answer(data)
    assert first == (
        "From width 16 to 128 the best lr falls 1.49-fold [1.37, 1.61] under hyperp "
        "and 14.7-fold [13.9, 15.9] under standard."
    )
    assert share == "On a logarithmic scale hyperp drifts 0.149 [0.117, 0.178] times as far as standard."
    assert cost == (
        "Keeping the lr that is best at width 16 costs 0.011 [0.006, 0.017] nats under hyperp "
        "and 0.41 [0.37, 0.46] nats under standard at width 128."
    )


def test_a_comparison_the_other_way_round_is_inverted():
    data = analysis(
        transfer=[transfer("a", 0.9, 0.8, 0.95), transfer("b", 0.5, 0.4, 0.6)],
        comparisons=[{
            "tune": "lr", "axis": "width", "a": {"rule": "b"}, "b": {"rule": "a"}, "from": 16, "to": 128,
            "ratio": {"value": 5.0, "lo": 4.0, "hi": 10.0},
        }],
    )  # fmt: skip
    assert "a drifts 0.20 [0.10, 0.25] times as far as b" in wording.answer(data)[1]


def test_many_alternatives_are_not_all_recited():
    data = analysis(transfer=[transfer(f"r{i}", 0.9**i, cost=0.1 * i) for i in range(1, 9)])
    first, _, cost = wording.answer(data)
    assert "r1" in first
    assert "r8" in first
    assert "r4" not in first
    assert "the least and the most of 8" in first
    assert "r4" not in cost


def prediction(**more):
    head = {"fit": "f", "law": "power", "at": {"width": 512}, "group": {}, "of": "val_loss", "held_out": True}
    return head | {"value": 2.0, "lo": 1.9, "hi": 2.1} | more


@pytest.mark.parametrize(
    ("observed", "sentence"),
    [
        ([2.05], "The held-out value lies inside the predicted 95% interval."),
        ([2.5], "The held-out value lies outside the predicted 95% interval."),
        ([2.05, 2.5], "1 of 2 held-out values lies inside the predicted 95% interval."),
        ([2.05, 1.95, 2.5], "2 of 3 held-out values lie inside the predicted 95% interval."),
    ],
)
def test_held_out_values_are_scored(observed, sentence):
    assert wording.answer(analysis(predictions=[prediction(observed=o) for o in observed])) == [sentence]


def test_a_prediction_without_interval_has_no_score():
    bare = prediction(observed=2.05)
    del bare["lo"], bare["hi"]
    assert wording.hit(bare) is None
    (table,) = wording.tables(analysis(predictions=[bare]))
    assert table.rows[0][table.columns.index("predicted")] == "2"
    assert table.rows[0][table.columns.index("score")] == "no interval"


def test_no_finding_is_said_with_its_reason():
    fit = {"name": "f", "law": "power", "of": "val_loss", "over": "width", "group": {}, "status": "refused"}
    data = analysis(fits=[fit | {"why": ["2 points"]}])
    assert wording.answer(data) == ["These runs do not answer the question yet: 2 points."]


def optimum(width, **more):
    return {"tune": "lr", "group": {"rule": "a"}, "at": {"width": width}, "status": "ok", "why": []} | more


def test_an_edge_or_refused_optimum_prints_its_reason_in_place_of_numbers():
    rows = [
        optimum(8, value=0.03, lo=0.028, hi=0.033, loss=2.0, loss_stderr=0.01, n_points=5),
        optimum(16, status="edge", why=["the smallest lr is best"]),
        optimum(32, status="refused", why=["2 points", "no replicates"]),
    ]
    (table,) = wording.tables(analysis(optima=rows))
    best, note = (table.columns.index(name) for name in ("best lr", "note"))
    assert [row[best] for row in table.rows] == ["0.0300 [0.0280, 0.0330]", "at the edge", "–"]
    assert [row[note] for row in table.rows] == ["", "1", "2, 3"]
    assert table.notes == ("Edge: the smallest lr is best", "Refused: 2 points", "no replicates")


def test_a_remark_of_many_rows_is_printed_once():
    rows = [optimum(w, value=0.03, why=["no replicates"]) for w in (8, 16, 32)]
    (table,) = wording.tables(analysis(optima=rows))
    assert table.notes == ("no replicates",)
    assert [row[-1] for row in table.rows] == ["1", "1", "1"]


def test_columns_without_content_are_dropped():
    (table,) = wording.tables(analysis(cells=[{"group": {}, "at": {"width": 8}, "mean": 2.0, "stderr": 0.01, "n": 3}]))
    assert table.columns == ("width", "val_loss", "runs")
    assert table.rows == (("8", "2.000 ± 0.010", "3"),)


def test_another_schema_is_refused():
    with pytest.raises(ValueError, match="schema 2, expected 1"):
        wording.as_json({"schema": 2})


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, None])
def test_what_is_no_number_is_never_printed_as_one(value):
    assert wording.number(value) == "–"


def test_an_interval_that_assumes_the_law_says_so():
    prediction = {"fit": "f", "law": "power", "at": {"width": 96}, "group": {}, "of": "val_loss", "value": 1.8,
                  "lo": 1.7, "hi": 1.9, "held_out": False}  # fmt: skip
    assuming = {"of": "val_loss", "predictions": [{**prediction, "basis": "parameters; assumes the law holds"}]}
    tested = {"of": "val_loss", "predictions": [{**prediction, "basis": "parameters + law error from rolling origin"}]}
    said = {name: " ".join(wording.answer(a)) for name, a in (("assuming", assuming), ("tested", tested))}
    assert "if the law holds that far" in said["assuming"]
    assert "if the law holds that far" not in said["tested"]
    captions = {n: wording.tables(a)[-1].caption for n, a in (("assuming", assuming), ("tested", tested))}
    assert "assume that the law holds" in captions["assuming"]
    assert "assume that the law holds" not in captions["tested"]
