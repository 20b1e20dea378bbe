import math
import subprocess
import sys
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaling.rules import AXES, GROUPS, RULES, rule

TRAINED = ("hidden", "embedding", "head", "vector")


def test_standard_moves_nothing_with_scale() -> None:
    shape, base = {"width": 512, "depth": 24, "tokens": 1e9, "batch_tokens": 1e6}, dict.fromkeys(AXES, 2)
    for group in TRAINED:
        assert RULES["standard"].values(group, "lr", 0.003, shape, base) == 0.003
    for group in ("hidden", "embedding", "head"):
        assert RULES["standard"].values(group, "init_std", None, shape, base) == 0.02


@pytest.mark.parametrize(
    ("hyperparameter", "group", "at_four_times_the_width"),
    # arXiv 2203.03466, Table 8, Adam: 4 times the fan_in.
    [
        ("lr", "hidden", 1 / 4),
        ("lr", "embedding", 1.0),
        ("lr", "head", 1.0),
        ("lr", "vector", 1.0),
        ("init_std", "hidden", 0.02 / 2),
        ("init_std", "embedding", 0.02),
        ("init_std", "head", 0.02),
        ("multiplier", "head", 1 / 4),
    ],
)
def test_mup_is_table_8(hyperparameter: str, group: str, at_four_times_the_width: float) -> None:
    base_value = 1.0 if hyperparameter == "lr" else None
    value = RULES["mup"].values(group, hyperparameter, base_value, {"width": 64}, {"width": 16})
    assert value == pytest.approx(at_four_times_the_width, rel=1e-15)


def test_mup_at_its_base_is_standard() -> None:
    shape = {"width": 16, "depth": 2}
    for hyperparameter, group in RULES["standard"].entries:
        if hyperparameter != "lr":
            values = [RULES[n].values(group, hyperparameter, None, shape, {"width": 16}) for n in ("mup", "standard")]
            assert values[0] == values[1]


def test_hyperp_learning_rate_ignores_width() -> None:
    for group in TRAINED:
        assert RULES["hyperp"].values(group, "lr", 0.02, {"width": 4096}, {"width": 16}) == 0.02


@pytest.mark.parametrize(
    ("depth", "tokens", "factor"),
    # Published run list of arXiv 2603.28743: base depth 8, 10.4e9 tokens, batch 2^21 throughout.
    [
        (8, 10400000000, 1.0),
        (12, 28488664987, 0.591439),
        (16, 61876070528, 0.399621),
        (20, 115591939546, 0.292647),
        (24, 194665994962, 0.226109),
    ],
)
def test_hyperp_learning_rate_of_the_published_runs(depth: int, tokens: int, factor: float) -> None:
    shape = {"width": 128 * depth, "depth": depth, "tokens": tokens, "batch_tokens": 2**21}
    base = {"width": 1024, "depth": 8, "tokens": 10.4e9, "batch_tokens": 2**21}
    for group in TRAINED:
        value = RULES["hyperp"].values(group, "lr", 0.02, shape, base)
        assert value == pytest.approx(0.02 * factor, rel=2e-5)  # the list has six digits of a rounded horizon


def test_hyperp_batch_is_a_square_root() -> None:
    value = RULES["hyperp"].values("head", "lr", 0.01, {"batch_tokens": 4096}, {"batch_tokens": 1024})
    assert value == pytest.approx(0.02)


def test_the_two_hyperp_presets_differ_only_in_the_horizon_of_other_groups() -> None:
    code, table = RULES["hyperp"], RULES["hyperp_table"]
    for hyperparameter, group in code.entries:
        for axis in AXES:
            same = code.exponent(hyperparameter, group, axis) == table.exponent(hyperparameter, group, axis)
            assert same is not (hyperparameter == "lr" and axis == "tokens" and group != "hidden")
    assert table.exponent("lr", "hidden", "tokens") == Fraction(-32, 100)


def test_hyperp_radii_match_the_paper() -> None:
    # Kaiming-uniform [2048, 1024]: radius sqrt(2048 / 3) = 26.13 at width 1024.
    std = RULES["hyperp"].values("hidden", "init_std", None, {"width": 1024}, {})
    assert std * math.sqrt(2048 * 1024) == pytest.approx(26.13, abs=0.005)


@pytest.mark.parametrize("width", [16, 64, 1024])
def test_hyperp_head_bounds_the_logits_alike_at_every_width(width: int) -> None:
    # |logit| <= |row| |x| with |x| = sqrt(width) after normalisation; a std of 0.02 would give 0.02 width.
    std = RULES["hyperp"].values("head", "init_std", None, {"width": width}, {"width": 16})
    row = std * math.sqrt(width)
    assert row == pytest.approx(1.0)


def test_residual_multiplier() -> None:
    for each in RULES.values():
        assert each.values("residual", "multiplier", None, {"depth": 8}, {}) == pytest.approx(1 / 4)


def test_axes_that_the_base_does_not_name_are_left_alone() -> None:
    shape = {"width": 64, "depth": 32, "tokens": 1e9, "batch_tokens": 1e5}
    assert RULES["hyperp"].values("hidden", "lr", 0.1, shape, {"width": 16}) == 0.1
    assert RULES["hyperp"].values("hidden", "lr", 0.1, shape, {"depth": 8}) == pytest.approx(0.05)


sizes = st.floats(1, 1e12)


@given(
    name=st.sampled_from(sorted(RULES)),
    group=st.sampled_from(TRAINED),
    shapes=st.tuples(*[st.fixed_dictionaries(dict.fromkeys(AXES, sizes))] * 3),
)
def test_a_rule_composes(name: str, group: str, shapes: tuple[dict[str, float], ...]) -> None:
    small, middle, large = shapes
    step = RULES[name].values(group, "lr", 1.0, middle, small)
    assert RULES[name].values(group, "lr", step, large, middle) == pytest.approx(
        RULES[name].values(group, "lr", 1.0, large, small), rel=1e-9
    )
    assert RULES[name].values(group, "lr", 1.0, small, small) == 1.0


def test_describe_is_a_rectangle_of_text() -> None:
    for each in RULES.values():
        rows = each.describe()
        assert {len(row) for row in rows} == {len(rows[0])}
        assert len(rows) == len(each.entries) + 1
    rows = RULES["mup"].describe()
    assert ("lr", "hidden", "adamw", "tuned", "-1", "0", "0", "0") in rows
    assert ("multiplier", "residual", "-", "0.707107 at shape 1", "0", "-1/2", "0", "0") in rows


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("hiden", "lr", 1.0, {}, {}), "unknown parameter group 'hiden'"),
        (("hidden", "learning_rate", 1.0, {}, {}), "unknown hyperparameter 'learning_rate'"),
        (("hidden", "lr", 1.0, {"widht": 1}, {"widht": 1}), "unknown axis 'widht'"),
        (("hidden", "lr", 1.0, {"depth": 1}, {"width": 1}), "has no 'width'"),
        (("hidden", "lr", 1.0, {"width": 0}, {"width": 1}), "needs a size above 0"),
        (("hidden", "lr", None, {"width": 2}, {"width": 1}), "give a base value"),
    ],
)
def test_errors_name_the_offender(arguments: tuple[object, ...], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        RULES["mup"].values(*arguments)  # type: ignore[arg-type]


def test_unknown_rule_gets_the_nearest_name() -> None:
    with pytest.raises(ValueError, match="'hyprep': did you mean 'hyperp'"):
        rule("hyprep")


def test_groups_are_known_to_every_rule() -> None:
    for each in RULES.values():
        assert {group for _, group in each.entries} <= set(GROUPS)
        assert set(each.optimizers) == set(TRAINED)


def test_import_is_light() -> None:
    heavy = "torch", "numpy", "scipy", "sympy", "plotly", "polars"
    code = f"import sys, scaling.rules; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
