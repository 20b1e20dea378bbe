"""Any log, however damaged and however cut into instalments, means what a slow and obvious reader says."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from db.store import RunRecord, Selection, Store

NAMES = ("loss", "acc", "näme")
NUMBERS = itertools.count()


@dataclass
class Line:
    """Bytes of one line without its newline, and the events a reader should find in it."""

    data: bytes
    events: list[dict[str, Any]] = field(default_factory=list)
    bad: bool = False


def line_of(event: dict[str, Any]) -> Line:
    return Line(json.dumps(event, ensure_ascii=False).encode(), [event])


numbers = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False),
    st.integers(-(10**22), 10**22),
    st.sampled_from(["nan", "inf", "-inf"]),
)
times = st.floats(0, 2e9)
logs = st.builds(
    lambda t, step, m: {"e": "log", "t": t, "step": step, "m": m},
    times,
    st.integers(-2, 12),
    st.dictionaries(st.sampled_from(NAMES), numbers, min_size=1),
)
summary_values = st.one_of(st.booleans(), st.integers(-5, 2**70), st.floats(allow_nan=False, allow_infinity=False))
others = st.one_of(
    st.builds(lambda t, v: {"e": "summary", "t": t, "v": {"a": v}}, times, summary_values),
    st.builds(lambda t, s: {"e": "checkpoint", "t": t, "step": s, "bytes": 1}, times, st.integers(0, 12)),
    st.builds(lambda t: {"e": "novelty", "t": t, "step": 3}, times),
)
statuses = st.sampled_from(["done", "diverged", "failed", "interrupted"])
garbage = st.one_of(
    st.just(b"garbage"),
    st.just(b'{"e":"log","t":1,"step":"x","m":{}}'),
    st.just(b'{"no":1}'),
    st.just(b"\xff\xfe\x00"),
    st.just(b"[1,2]"),
    st.just(b"{" * 3000),
).map(lambda data: Line(data, bad=True))


@st.composite
def blocks(draw: st.DrawFn, attempt: int) -> list[Line]:
    """The lines of one attempt."""
    from_step = draw(st.one_of(st.none(), st.integers(-2, 12)))
    start = {"e": "start", "t": attempt * 1.5, "attempt": attempt, "from_step": from_step, "pid": 1}
    lines = [line_of(event) for event in [start, *draw(st.lists(st.one_of(logs, logs, others), max_size=8))]]
    if draw(st.booleans()):
        lines.append(line_of({"e": "end", "t": 9.0, "status": draw(statuses), "seconds": 1.0}))
    return lines


@st.composite
def whole_logs(draw: st.DrawFn) -> list[Line]:
    """A log of some attempts, in which blocks come again or in another order and lines are torn and garbled."""
    attempts = [draw(blocks(number)) for number in range(1, draw(st.integers(1, 4)) + 1)]
    if draw(st.booleans()):
        attempts = draw(st.permutations([*attempts, draw(st.sampled_from(attempts))]))
    lines = [line for block in attempts for line in block]
    for line in draw(st.lists(st.sampled_from(lines), max_size=4)):
        lines.insert(draw(st.integers(0, len(lines))), line)
    for position in draw(st.lists(st.integers(0, len(lines) - 1), max_size=3)):
        lines[position] = draw(torn(lines[position]))
    for line in draw(st.lists(garbage, max_size=3)):
        lines.insert(draw(st.integers(0, len(lines))), line)
    return lines


@st.composite
def torn(draw: st.DrawFn, line: Line) -> Line:
    """A writer was killed within a line, and the next one went on right behind it."""
    prefix = line_of(draw(logs)).data
    prefix = prefix[: draw(st.integers(1, len(prefix)))]
    whole = json.loads(prefix) if prefix.endswith(b"}}") else None
    return Line(prefix + line.data, [*([whole] if whole else []), *line.events], line.bad or not whole)


@dataclass
class Meaning:
    points: dict[tuple[str, int], tuple[float, float]]  # (name, step) -> time, value
    attempts: dict[int, str]  # number -> status
    summary: Any
    bad: int
    alien: int


def meaning(lines: list[Line]) -> Meaning:
    """Read everything, then decide what is in force: no state, no order of arrival but the lines' own."""
    rank = ["running", "interrupted", "failed", "diverged", "done"]
    began: dict[int, int | None] = {}
    status: dict[int, str] = {}
    logged, summaries, current, alien = [], [], 0, 0
    for order, event in enumerate(event for line in lines for event in line.events):
        kind = event["e"]
        if kind == "start":
            current = event["attempt"]
            began.setdefault(current, event["from_step"])
        if kind == "novelty":
            alien += 1
        else:
            status.setdefault(current, "running")
        if kind == "end" and rank.index(event["status"]) >= rank.index(status[current]):
            status[current] = event["status"]
        if kind == "summary":
            summaries.append((current, order, event["v"]["a"]))
        if kind == "log":
            logged += [(current, order, name, event["step"], event["t"], v) for name, v in event["m"].items()]
    points: dict[tuple[str, int], tuple[float, float]] = {}
    for attempt, _, name, step, time, value in sorted(logged, key=lambda item: item[:2]):
        later = [from_step for number, from_step in began.items() if number > attempt]
        if all(from_step is not None and step <= from_step for from_step in later):
            points[name, step] = (time, float(value))
    summary = max(summaries)[2] if summaries else None
    return Meaning(points, status, summary, sum(line.bad for line in lines), alien)


def check(store: Store, run: str, expected: Meaning, bad: int, alien: int) -> None:
    found = {(name, step): (time, value) for _, name, step, time, value in store.metrics([run]).iter_rows()}
    assert found.keys() == expected.points.keys()
    for place, (time, value) in expected.points.items():
        assert found[place][0] == time
        assert found[place][1] == value or (math.isnan(value) and math.isnan(found[place][1]))
    store.register(run, "t", None, "t", [], [_cell(run)], [])
    attempts = store.attempts(run)
    assert dict(zip(attempts["attempt"], attempts["status"], strict=True)) == expected.attempts
    latest = max(expected.attempts, default=0)
    assert store.statuses([run])[run].status == expected.attempts.get(latest, "queued")
    texts = store.summaries([run])["text"].to_list()
    assert [json.loads(text) for text in texts] == ([] if expected.summary is None else [expected.summary])
    counted = store.runs(run).select("bad_lines", "alien_lines").row(0)
    assert counted == (bad, alien) == (expected.bad, expected.alien)


def _cell(run: str) -> Selection:
    return Selection(run, {"i": 1}, {})


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def shared(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """One store for all examples; each example has a run of its own."""
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path_factory.mktemp('store')}/s.db"
    else:
        url = request.getfixturevalue("lasting_postgres_url")
    with Store.open(url) as store:
        yield store


@given(lines=whole_logs(), data=st.data())
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
def test_instalments_mean_the_same_as_the_whole(
    shared: Store, tmp_path_factory: pytest.TempPathFactory, lines: list[Line], data: st.DataObject
) -> None:
    folder = tmp_path_factory.getbasetemp() / "runs"
    log = b"".join(line.data + b"\n" for line in lines)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(log)), max_size=5)))
    expected = meaning(lines)
    for pieces in ([], cuts):
        run = f"run-{next(NUMBERS)}"
        shared.register("all", "t", None, "t", [RunRecord(run, 1, "t", {})], [], [])
        (folder / run).mkdir(parents=True)
        bad = alien = 0
        for begin, stop in itertools.pairwise([0, *pieces, len(log)]):
            with (folder / run / "events.jsonl").open("ab") as file:
                file.write(log[begin:stop])
            report = shared.ingest(folder, [run])
            bad, alien = bad + report.bad_lines, alien + report.alien_lines
            assert report.replaced == report.unreadable == report.unregistered == []
        check(shared, run, expected, bad, alien)
