import io
import json
import re
from pathlib import Path

import pytest
from rich.cells import cell_len
from rich.console import Console

from scaling import console, wording
from sweeps.schema import Spec

SAMPLE = json.loads((Path(__file__).parent / "data" / "analysis.json").read_text())
SPEC = Spec(name="hyperp_width", task="models.lm:train", question="Does one base learning rate hold across width?")
BRACKETS = re.compile(r"\[[^\[\]]*\]")


def shown(data, width=100, spec=SPEC, **options):
    terminal = Console(width=width, file=io.StringIO(), **options)
    for part in console.summary(data, spec):
        terminal.print(part)
    return terminal.file.getvalue()


def words(text):
    return " ".join(text.split())


@pytest.mark.parametrize("width", [60, 80, 100, 120, 200])
def test_every_width_shows_every_number_and_overflows_nowhere(width):
    text = shown(SAMPLE, width)
    assert max(map(cell_len, text.splitlines())) <= width
    flat = words(text)
    for sentence in wording.answer(SAMPLE):
        assert sentence in flat
    for table in wording.tables(SAMPLE):
        for row in table.rows:
            for cell in row:
                for line in cell.split("\n"):
                    assert line in flat
        for note in table.notes:
            assert words(note) in flat
    assert "…" not in text


def test_the_question_comes_before_the_answer_and_the_answer_before_the_tables():
    text = shown(SAMPLE)
    places = [text.index(part) for part in (SPEC.question, "the best lr falls", "\nTransfer\n", "\nPredictions\n")]
    assert places == sorted(places)


def test_an_interval_that_is_absent_is_a_reason_and_not_brackets():
    data = json.loads(json.dumps(SAMPLE)) | {"comparisons": []}
    for part in ("optima", "predictions"):
        for item in data[part]:
            item.pop("lo", None)
            item.pop("hi", None)
    for item in data["transfer"]:
        for key in ("lo", "hi", "cost_lo", "cost_hi", "exponent"):
            item.pop(key, None)
        item["why"] = ["3 runs and no replicates"]
    for fit in data["fits"]:
        for param in fit["params"].values():
            param.pop("lo", None)
            param.pop("hi", None)
        fit["why"] = []
    text = shown(data)
    assert BRACKETS.findall(text) == []
    assert "3 runs and no replicates" in text


def test_names_are_neither_markup_nor_escapes():
    name = "[bold red]x[/]\x1b[31m"
    data = json.loads(json.dumps(SAMPLE).replace("hyperp", json.dumps(name)[1:-1])) | {
        "notes": ["[link=http://x]y[/link]"]
    }
    text = shown(data, 200, force_terminal=True, color_system="truecolor")
    assert "[bold red]x[/]�[31m" in text
    assert "\x1b[31m" not in text
    assert "[link=http://x]y[/link]" in text


def test_an_analysis_without_results_says_so():
    text = shown(
        {"schema": 1, "sweep": "s", "of": "loss", "goal": "min", "level": 0.95, "runs": {"done": 0}}, spec=None
    )
    assert "No runs." in text
    assert "These runs do not answer the question yet." in text


def test_an_analysis_object_is_taken_by_its_json():
    class Analysis:
        def to_json(self):
            return SAMPLE

    assert shown(Analysis()) == shown(SAMPLE)
