"""Every kind of mistake ends in `file:line:column: key: sentence`, and overrides mean what they say."""

from __future__ import annotations

from pathlib import Path

import pytest

from sweeps.errors import SpecError
from sweeps.expand import expand
from sweeps.load import load, loads

from .conftest import Load

# The texts follow `name: s` and `task: m:f`, so their first line is line 3.
# text, line, column, key, what the sentence must hold
WRONG = {
    "section typo": ("axis: {w: [1]}", 3, 1, "axis", ["unknown key", "did you mean `axes`"]),
    "key typo": ("axes: {w: {valeus: [1]}}", 3, 12, "axes.w.valeus", ["did you mean `values`"]),
    "fit typo": ("fit: {hold_ot: {w: 1}}", 3, 7, "fit.hold_ot", ["did you mean `hold_out`"]),
    "law typo": ("fit:\n  laws:\n    - {law: p, over: flops}\n    - {law: p, ovr: flops}", 6, 7, "fit.laws.1.over", [
        "missing", "did you mean `over`"]),
    "launcher typo": ("launcher: {treads: 1}", 3, 12, "launcher.treads", ["did you mean `threads`"]),
    "wrong section": ("axes: 5", 3, 7, "axes", ["expected a mapping", "5"]),
    "wrong entry": ("axes:\n  w: 5", 4, 6, "axes.w", ["expected an axis such as", "5"]),
    "wrong kind": ("launcher: {kind: slrm}", 3, 18, "launcher.kind", ["'local'", "slrm"]),
    "wrong type": ("fit: {level: high}", 3, 14, "fit.level", ["a number", "high"]),
    "out of bounds": ("fit: {level: 2}", 3, 14, "fit.level", ["below 1", "2"]),
    "not whole": ("launcher: {workers: 1.5}", 3, 21, "launcher.workers", ["'auto'", "1.5"]),
    "empty axis": ("axes:\n  w: []", 4, 6, "axes.w.values", ["at least one value"]),
    "no values": ("axes:\n  w: {path: m.w}", 4, 6, "axes.w", ["exactly one of `values`, `log2`, `log10` and `expr`"]),
    "two ways": ("axes:\n  w: {values: [1], log2: [1, 2]}", 4, 6, "axes.w", ["`values` and `log2`"]),
    "text on an axis": ("axes:\n  w: [1, abc]", 4, 10, "axes.w.values.1", ["expected a number", "abc", "compare"]),
    "null on an axis": ("axes:\n  w: [1, null]", 4, 10, "axes.w.values.1", ["expected a number", "null"]),
    "list on an axis": ("axes:\n  w: [[1], [2]]", 4, 7, "axes.w.values.0", ["expected a number", "a list"]),
    "twice": ("tune:\n  lr: [0.1, 1e-1]", 4, 13, "tune.lr.values.1", ["0.1 is there twice"]),
    "backwards": ("tune:\n  lr: {log2: [2, -2]}", 4, 14, "tune.lr.log2", ["low <= high"]),
    "step too big": ("tune:\n  lr: {log2: [0, 1, 2]}", 4, 14, "tune.lr.log2", ["don't reach"]),
    "one bound": ("tune:\n  lr: {log2: [0]}", 4, 14, "tune.lr.log2", ["[low, high]"]),
    "replicates": ("replicates: {seed: x}", 3, 20, "replicates.seed", ["a count of at least 1", "x"]),
    "no replicates": ("replicates: {seed: 0}", 3, 20, "replicates.seed.values", ["at least 1"]),
    "bad name": ("axes: {my-width: [1]}", 3, 8, "axes.my-width", ["letters, digits and `_`"]),
    "bad path": ("axes: {w: {path: a..b, values: [1]}}", 3, 18, "axes.w.path", ["a dotted path such as model.width"]),
    "name taken": ("axes: {w: [1]}\ntune: {w: [2]}", 4, 11, "tune.w", ["taken by `axes.w`"]),
    "reserved": ("axes: {max: [1]}", 3, 13, "axes.max", ["reserved"]),
    "unknown in zip": ("axes: {width: [1], d: [1]}\nzip: [width, dd]", 4, None, "zip.0.1", ["did you mean `d`"]),
    "zip lengths": ("axes: {w: [1], d: [1, 2]}\nzip: [w, d]", 4, None, "zip.0", ["`w` has 1, `d` has 2"]),
    "zip with expr": ("axes: {w: [1], d: {expr: w}}\nzip: [w, d]", 4, None, "zip.0.1", ["tied already"]),
    "same place": ("axes: {w: {path: m.w, values: [1]}, v: {path: m.w, values: [1]}}", 3, None, "axes.v.path", [
        "sets `m.w`, which `axes.w` sets too"]),
    "place inside": ("base: {m: 5}\naxes: {w: {path: m.w, values: [1]}}", 4, 18, "axes.w.path", ["`m`", "number 5"]),
    "place above": ("base: {m: {w: 5}}\naxes: {m: [1]}", 4, 11, "axes.m.path", ["is a mapping in base", "m.w"]),
    "dotted base": ("base: {optim.lr: 1}", 3, 18, "base.optim.lr", ["without dots", "optim: {lr"]),
    "bad expression": ("axes: {w: [1]}\nwhere: 'w <'", 4, 8, "where.0", ["`w <`", "can't be read"]),
    "second condition": ("axes: {w: [1]}\nwhere:\n  - w > 0\n  - wd > 0", 6, 5, "where.1", ["did you mean `w`"]),
    "unknown in derive": ("axes: {width: [1]}\nderive: {d: 2 * widht}", 4, 13, "derive.d.expr", [
        "unknown name `widht`", "did you mean `width`"]),
    "axis from a fact": ("axes: {w: [1], d: {expr: n_params}}", 3, 26, "axes.d.expr", ["can't depend on `n_params`"]),
    "circle": ("axes: {w: [1]}\nderive: {a: b, b: a}", 4, 13, "derive.a", ["a -> b -> a"]),
    "no equation": ("solve: {t: flops}", 3, 12, "solve.t.equation", ["must be an equation"]),
    "low above high": ("solve: {t: {equation: flops == 1, low: 5, high: 2}}", 3, 49, "solve.t.high", ["low"]),
    "law over nothing": ("axes: {width: [1]}\nfit:\n  laws:\n    - {law: p, over: flops}\n    - {law: p,\n"
                         "       over: widht}", 8, 14, "fit.laws.1.over", ["`widht`", "did you mean `width`"]),
    "law over tuned": ("tune: {lr: [1]}\nfit: {laws: [{law: p, over: lr}]}", 4, 29, "fit.laws.0.over", ["is tuned"]),
    "optimum of nothing": ("tune: {lr: [1]}\nfit: {laws: [{law: p, over: flops, of: l.optimum}]}", 4, 40,
                           "fit.laws.0.of", ["no tuned `l`"]),
    "held out nowhere": ("axes: {w: [1, 2]}\nfit: {hold_out: {w: [1, 3]}}", 4, 25, "fit.hold_out.w.1", [
        "3 is not on the axis `w`, which has 1, 2"]),
    "holds nothing out": ("axes: {w: [1, 2]}\nfit: {hold_out: {}}", 4, 17, "fit.hold_out", ["an axis and its value"]),
    "predict typo": ("axes: {width: [1]}\npredict:\n  - {width: 4}\n  - {widht: 3}", 6, 13, "predict.1.widht", [
        "did you mean `width`"]),
    "predict text": ("axes: {w: [1]}\npredict: {w: wide}", 4, 14, "predict.0.w", ["expected a number", "wide"]),
    "predict label": ("compare: {r: [a, b]}\npredict: {r: c}", 4, 14, "predict.0.r", ["which has a, b"]),
    "resolver": ("base:\n  a: ${oc.env:HOME}", 4, 6, "base.a", ["may not read the environment"]),
    "reference to nothing": ("base: {width: 1, b: '${widht}'}", 3, 21, "base.b", ["did you mean `width`"]),
    "reference outside base": ("axes: {w: [1]}\nwhere: '${w} > 1'", 4, 8, "where", ["in base only"]),
    "bundle text": ("compare:\n  r: {a: {x.1y: 2}}", 4, None, "compare.r.values.a", ["dotted path"]),
    "bundle twice": ("compare:\n  r: {a: {o.lr: 2, o: {lr: 3}}}", 4, None, "compare.r.values.a", ["twice"]),
    "empty bundle": ("compare:\n  r: {a: {}}", 4, None, "compare.r.values.a", ["sets nothing"]),
    "too many cells": ("axes: {a: {log2: [0, 999]}, b: {log2: [0, 999]}}", 3, None, "axes", ["1000000 cells"]),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_a_mistake_is_told_with_its_place(name: str, spec: Load) -> None:
    text, line, column, key, parts = WRONG[name]
    with pytest.raises(SpecError) as error:
        spec(text)
    said = str(error.value)
    assert all(part in said for part in parts), said
    assert error.value.line == line, said
    assert error.value.key == key, said
    assert column in (None, error.value.column), said
    assert f"s.yaml:{line}:{error.value.column}: {key}: " in said


@pytest.mark.parametrize(
    ("head", "parts"),
    [
        ("task: m:f", ["name", "missing"]),
        ("name: s", ["task", "missing"]),
        ("name: a b\ntask: m:f", ["name", "a b", "letters, digits"]),
        ("name: s\ntask: m.f", ["task", "module:function", "m.f"]),
        ("name: 5\ntask: m:f", ["name", "text", "5"]),
        ("- a\n- b", ["a mapping", "a list"]),
        ("just text", ["a mapping", "just text"]),
    ],
)
def test_the_head_of_a_spec(head: str, parts: list[str]) -> None:
    with pytest.raises(SpecError) as error:
        loads(head, name="s.yaml")
    assert all(part in str(error.value) for part in parts), str(error.value)


def test_several_mistakes_are_told_at_once(spec: Load) -> None:
    with pytest.raises(SpecError) as error:
        spec("axis: {w: [1]}\nfit: {level: 2}\nlauncher:\n  threads: 0")
    lines = str(error.value).splitlines()
    assert [line.split(": ")[1] for line in lines] == ["axis", "fit.level", "launcher.threads"]
    assert [e.key for e in error.value.others] == ["fit.level", "launcher.threads"]


def test_sections_may_be_empty(spec: Load) -> None:
    loaded = spec("base:\naxes: {w: [1]}\ncompare:\ntune:\nreplicates:\nwhere:\nfit:\npredict:\nlauncher:")
    assert loaded.spec.fit is None
    assert loaded.spec.launcher.kind == "local"
    assert [cell.coords for cell in expand(loaded).cells] == [{"w": 1}]


def test_an_error_at_a_key_has_its_place(spec: Load) -> None:
    loaded = spec("axes: {w: [1]}\nfit:\n  laws:\n    - {law: powr, over: w}")
    error = loaded.error("fit.laws.0.law", "no such law")
    assert str(error).endswith("s.yaml:6:13: fit.laws.0.law: no such law")
    assert loaded.text.startswith("name: s")


OVERRIDABLE = """
base: {model: {depth: 2}, steps: 5}
axes: {width: {path: model.width, log2: [4, 6]}}
compare:
  rule:
    hyperp: {parametrization: hyperp}
    mup: {parametrization: mup, optim.eps: 1e-8}
    standard: {parametrization: standard}
tune: {lr: [0.1, 0.2]}
replicates: {seed: 3}
fit: {laws: [{law: power, over: width}], hold_out: {width: 64}}
predict: [{width: 128}]
"""

# override, the name of a coordinate, and the values that it then has
OVERRIDES = [
    ("axes.width.values=[16, 64]", "width", [16, 64]),
    ("axes.width.log2=[5,6]", "width", [32, 64]),
    ("axes.width={path: model.width, values: [64]}", "width", [64]),
    ("axes.width=[64]", "width", [64]),
    ("compare.rule=[mup]", "rule", ["mup"]),
    ("compare.rule.values=[standard, hyperp]", "rule", ["standard", "hyperp"]),
    ("compare.rule={a: {x: 1}}", "rule", ["a"]),
    ("~compare.rule.mup", "rule", ["hyperp", "standard"]),
    ("+compare.rule.sgd={optim.name: sgd}", "rule", ["hyperp", "mup", "standard", "sgd"]),
    ("replicates.seed=1", "seed", [0]),
    ("replicates.seed=[7, 8]", "seed", [7, 8]),
    ("tune.lr=[1e-3]", "lr", [0.001]),
    ("tune.lr.values=[3]", "lr", [3]),
    ("+axes.depth=[1, 2]", "depth", [1, 2]),
    ("tune={}", "lr", [None]),
    ("tune=null", "lr", [None]),
    ("~tune.lr", "lr", [None]),
    ("where=width < 40", "width", [16, 32]),
]  # fmt: skip


@pytest.mark.parametrize(("override", "name", "values"), OVERRIDES)
def test_an_override_changes_an_axis(override: str, name: str, values: list[object], spec: Load) -> None:
    cells = expand(spec(OVERRIDABLE, override, *(["fit=null"] if "width" in override else []))).cells
    assert list(dict.fromkeys(cell.coords.get(name) for cell in cells)) == values


def test_overrides_of_base_and_lists(spec: Load) -> None:
    loaded = spec(OVERRIDABLE, "base.model.depth=4", "base.seconds=0.5", "predict.0.width=96", "fit.laws.0.over=flops")
    config = expand(loaded).cells[0].config
    assert (config["model"]["depth"], config["seconds"], config["steps"]) == (4, 0.5, 5)
    assert loaded.spec.predict == [{"width": 96}]
    assert loaded.spec.fit is not None
    assert loaded.spec.fit.laws[0].over == "flops"
    assert loaded.overrides[0] == "base.model.depth=4"
    assert "depth: 2" in loaded.text


def test_selected_bundles_keep_their_settings(spec: Load) -> None:
    cells = expand(spec(OVERRIDABLE, "compare.rule=[mup]")).cells
    assert {(c.config["parametrization"], c.config["optim"]["eps"]) for c in cells} == {("mup", 1e-8)}


WRONG_OVERRIDES = [
    ("axes", "expected `key=value`"), ("=3", "expected `key=value`"), ("axes.width=", "no value"),
    ("axis.width=[1]", "did you mean `axes`"), ("axes.widht=[1]", "did you mean `width`"),
    ("axes.width.valeus=[1]", "did you mean `values`"), ("base.step=3", "did you mean `steps`"),
    ("base.model.depth.x=1", "nothing can be set inside"), ("predict.3.width=1", "a list of 1"),
    ("compare.rule=[hyprp]", "did you mean `hyperp`"), ("replicates.seed=on", "truth value"),
    ("axes.width=[1", "not valid YAML"), ("axes.width=[]", "at least one value"), ("steps=3", "base.steps"),
    ("base.a=${oc.env:HOME}", "may not read the environment"), ("base.a=!!python/name:os.system", "refused"),
    ("launcher.threads=0", "at least 1"), ("axes.width.values=5", "a list"), ("name=a b", "letters, digits"),
    ("~axes.depth", "no `depth`"), ("fit.laws.0.over=widht", "did you mean `width`"),
]  # fmt: skip


@pytest.mark.parametrize(("override", "part"), WRONG_OVERRIDES)
def test_a_wrong_override_is_named(override: str, part: str, spec: Load) -> None:
    with pytest.raises(SpecError) as error:
        spec(OVERRIDABLE, override)
    assert part in str(error.value)
    assert override in str(error.value)
    assert error.value.line is None


def test_a_mistake_in_the_file_is_not_blamed_on_an_override(spec: Load) -> None:
    with pytest.raises(SpecError) as error:
        spec("axes: {w: [1]}\nbase: {a: '${'}", "axes.w=[2]")
    assert error.value.line == 4
    assert "without a `}`" in str(error.value)


def test_nothing_secret_gets_in(spec: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_TOKEN", "hunter2")
    for text in ("${oc.env:SECRET_TOKEN}", "${env:SECRET_TOKEN}", "x${oc.env:SECRET_TOKEN,1}", "${oc.decode:${b}}"):
        for section in (
            f"base: {{a: '{text}', b: 1}}",
            f"compare: {{r: {{a: {{x: '{text}'}}}}}}",
            f"question: '{text}'",
        ):
            with pytest.raises(SpecError) as error:
                spec(section, "+base.z=1")
            assert "hunter2" not in str(error.value)
    config = (
        expand(spec("base: {a: $SECRET_TOKEN, b: '{SECRET_TOKEN}', c: '\\${oc.env:SECRET_TOKEN}'}")).cells[0].config
    )
    assert config == {"a": "$SECRET_TOKEN", "b": "{SECRET_TOKEN}", "c": "${oc.env:SECRET_TOKEN}"}


def test_a_missing_file(tmp_path: Path) -> None:
    (tmp_path / "width.yaml").write_text("name: s\ntask: m:f\n")
    with pytest.raises(SpecError, match="did you mean"):
        load(tmp_path / "widht.yaml")
