import json
import re
from datetime import UTC, datetime
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import polars as pl
import pytest

from scaling import report, wording
from sweeps.schema import Spec

DATA = Path(__file__).parent / "data"
SAMPLE = json.loads((DATA / "analysis.json").read_text())
RESULTS = pl.read_csv(DATA / "results.csv")
SPEC = Spec(name="hyperp_width", task="models.lm:train", question="Does one base learning rate hold across width?")
FACTS = {
    "spec_text": (DATA / "spec.yaml").read_text(),
    "spec_path": "sweeps/hyperp_width.yaml",
    "command": "python -m launchers.sweep sweeps/hyperp_width.yaml",
    "store": "sqlite:///sweeplaw.db",
    "code": {"commit": "0123abcd", "dirty": True},
    "packages": {"torch": "2.13.0", "numpy": "2.4.1"},
    "infeasible": [({"width": 256, "lr": 0.5}, "flops < 1e15 does not hold")],
    "date": datetime(2026, 12, 1, 10, 30, tzinfo=UTC),
    "corpus": "stdlib 12ab",
}
VOID = {"meta", "link", "br", "hr", "img", "input"}


class Page(HTMLParser):
    """The parsed file: every element with its attributes and text, and whether all were closed."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.open, self.balanced = [], [], True
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        element = {"tag": tag, "attrs": dict(attrs), "text": ""}
        self.elements.append(element)
        if tag not in VOID:
            self.open.append(element)

    def handle_endtag(self, tag):
        self.balanced &= bool(self.open) and self.open.pop()["tag"] == tag

    def handle_data(self, data):
        for element in self.open:
            element["text"] += data

    def all(self, tag):
        return [e for e in self.elements if e["tag"] == tag]

    def texts(self, tag):
        return [" ".join(e["text"].split()) for e in self.all(tag)]


@pytest.fixture(scope="module")
def html():
    return report.render(SAMPLE, SPEC, RESULTS, FACTS)


@pytest.fixture(scope="module")
def page(html):
    return Page(html)


def test_the_file_is_well_formed_and_asks_for_nothing(html, page):
    assert page.balanced
    assert not page.open
    asking = [e for e in page.elements if {"src", "href", "srcset", "action", "data"} & set(e["attrs"])]
    assert asking == []
    own = html[: html.index("/**\n* plotly.js")]
    assert "http" not in own.replace('http-equiv="Content-Security-Policy"', "")
    assert html.count("* plotly.js v") == 1


def test_the_answer_stands_first_in_the_same_words_as_in_the_terminal(page):
    section = next(e for e in page.all("section") if e["attrs"].get("class") == "answer")
    assert section is page.all("section")[0]
    lines = [line.replace("\u00a0", " ") for line in section["text"].split("\n") if line.strip()]
    assert lines == wording.answer(SAMPLE)


def test_tables_hold_the_numbers_of_the_analysis(page):
    captions = page.texts("caption")
    for table in wording.tables(SAMPLE):
        assert any(caption.startswith(table.title) for caption in captions)
    cells = {text.replace("\u00a0", " ") for text in page.texts("td")}
    for optimum in SAMPLE["optima"]:
        assert wording.interval(optimum["value"], optimum["lo"], optimum["hi"]) in cells
    for prediction in SAMPLE["predictions"]:
        assert wording.forecast(prediction) in cells


def test_headings_descend_in_order_and_tables_are_labelled(page):
    levels = [int(e["tag"][1]) for e in page.elements if re.fullmatch(r"h[1-6]", e["tag"])]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(b <= a + 1 for a, b in pairwise(levels))
    assert len(page.all("caption")) == len(page.all("table"))
    assert all(e["attrs"].get("scope") == "col" for e in page.all("th"))


def test_figures_are_data_in_four_variants(page):
    sources = [json.loads(e["text"]) for e in page.all("script") if e["attrs"].get("type") == "application/json"]
    assert len(sources) == 4
    for source in sources:
        assert set(source) == {"light", "light_narrow", "dark", "dark_narrow"}
        assert all(v["data"] and v["layout"]["height"] for v in source.values())


def test_provenance_names_everything_that_made_the_numbers(page):
    terms = dict(zip(page.texts("dt"), page.texts("dd"), strict=True))
    assert terms == {
        "Task": "models.lm:train",
        "Spec": "sweeps/hyperp_width.yaml",
        "Code": "commit 0123abcd with uncommitted changes",
        "Packages": "torch 2.13.0, numpy 2.4.1",
        "Store": "sqlite:///sweeplaw.db",
        "Date": "2026-12-01 10:30 UTC",
        "Corpus": "stdlib 12ab",
    }
    code = [e["text"] for e in page.all("code")]
    assert code == [FACTS["command"], FACTS["spec_text"]]


def test_cells_that_were_not_run_are_listed_with_their_reason(page):
    rows = [text for text in page.texts("tr") if "does not hold" in text]
    assert rows == ["1flops < 1e15 does not hold2560.5"]


def test_hostile_names_stay_text():
    hostile = "</script><img src=x onerror=alert(1)>{{ 7 * 7 }}"
    data = json.loads(json.dumps(SAMPLE).replace("hyperp", hostile)) | {"notes": [hostile]}
    rows = RESULTS.with_columns(pl.col("rule").str.replace("hyperp", hostile, literal=True))
    facts = dict.fromkeys(("spec_text", "spec_path", "command", "store", hostile), hostile)
    facts["infeasible"] = [({hostile: hostile}, hostile)]
    spec = Spec(name="x", task="a:b", question=hostile)
    safe = Page(report.render(SAMPLE, SPEC, RESULTS, FACTS))
    page = Page(report.render(data, spec, rows, facts))
    assert page.balanced
    assert page.all("img") == []
    assert len(page.all("script")) == len(safe.all("script"))
    assert hostile in page.texts("li")
    assert not [e for e in page.elements if any(name.startswith("on") for name in e["attrs"])]


def test_only_the_scripts_of_the_file_may_run(page):
    policy = next(e["attrs"]["content"] for e in page.all("meta") if "http-equiv" in e["attrs"])
    hashes = re.findall(r"'(sha256-[^']+)'", policy)
    run = [e for e in page.all("script") if "type" not in e["attrs"]]
    assert len(hashes) == len(run) == 2
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy.split("style-src")[0]


def test_without_facts_or_results_there_is_still_a_report():
    empty = {"schema": 1, "sweep": "s", "of": "loss", "goal": "min", "level": 0.95, "runs": {"done": 0}}
    page = Page(report.render(empty, Spec(name="s", task="a:b"), pl.DataFrame(), {}))
    assert page.balanced
    assert page.all("table") == []
    assert page.texts("p")[1] == "These runs do not answer the question yet."


def test_a_report_is_written_whole_or_not_at_all(tmp_path, monkeypatch):
    path = tmp_path / "new" / "report.html"
    assert report.write_report(SAMPLE, SPEC, RESULTS, path, FACTS) == path
    first = path.read_bytes()
    assert first.rstrip().endswith(b"</html>")

    def broken(*_):
        raise OSError("no space left")

    monkeypatch.setattr(Path, "replace", broken)
    with pytest.raises(OSError, match="no space left"):
        report.write_report(SAMPLE, SPEC, RESULTS, path, FACTS)
    assert path.read_bytes() == first
    assert [p.name for p in path.parent.iterdir()] == ["report.html"]


def test_a_report_is_a_function_of_its_inputs(html):
    assert report.render(SAMPLE, SPEC, RESULTS, FACTS) == html


def test_infeasible_cells_are_one_row_for_each_reason():
    pairs = [({"width": w, "lr": 0.5}, "too dear") for w in range(100)] + [({"width": 7, "lr": 0.25}, "too odd")]
    text = report.render(SAMPLE, SPEC, RESULTS, {**FACTS, "infeasible": pairs})
    assert "101 infeasible cells" in text
    assert text.count("too dear") == text.count("too odd") == 1
    assert "0, 1, 2, 3, 4, 5, … (100)" in text
