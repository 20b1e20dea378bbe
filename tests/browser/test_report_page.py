"""The report in a real browser: what it draws, asks for, and does with hostile names."""

import json
import shutil
from pathlib import Path

import polars as pl
import pytest

from scaling.report import write_report
from sweeps.schema import Spec

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium on the PATH")

DATA = Path(__file__).parents[1] / "scaling" / "data"
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
         "--disable-component-update", "--disable-sync"]  # fmt: skip
HOSTILE = "</script><img src=x onerror=alert(1)>"
PHONE, DESK = {"width": 390, "height": 844}, {"width": 1280, "height": 900}


@pytest.fixture(scope="module")
def browser():
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


def write(folder, name="hyperp"):
    analysis = json.loads((DATA / "analysis.json").read_text().replace("hyperp", name))
    results = pl.read_csv(DATA / "results.csv").with_columns(pl.col("rule").str.replace("hyperp", name, literal=True))
    spec = Spec(name="hyperp_width", task="models.lm:train", question=f"Does {name} transfer?")
    facts = {"spec_text": name, "command": name, "infeasible": [({"rule": name}, name)], name: name}
    return write_report(analysis, spec, results, folder / "report.html", facts)


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    return write(tmp_path_factory.mktemp("plain"))


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    return write(tmp_path_factory.mktemp("hostile"), HOSTILE)


@pytest.fixture
def visit(browser):
    """Opens a file and records what it complains about, asks for and pops up."""
    contexts = []

    def opened(path, **options):
        context = browser.new_context(**{"viewport": DESK} | options)
        contexts.append(context)
        page = context.new_page()
        page.seen = {"console": [], "requests": [], "dialogs": []}
        page.on("console", lambda message: page.seen["console"].append(message.text))
        page.on("pageerror", lambda error: page.seen["console"].append(str(error)))
        page.on("request", lambda request: page.seen["requests"].append(request.url))
        page.on("dialog", lambda dialog: (page.seen["dialogs"].append(dialog.message), dialog.dismiss()))
        page.goto(path.as_uri())
        page.locator(".plot .main-svg").last.wait_for(state="attached")
        return page

    yield opened
    for context in contexts:
        context.close()


def until(page, script, value):
    """Waits for `script` to give `value` (the page's policy forbids Playwright's own polling)."""
    for _ in range(50):
        if page.evaluate(script) == value:
            return
        page.wait_for_timeout(50)
    assert page.evaluate(script) == value


PAPER = "document.querySelector('.plot').layout.paper_bgcolor"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_opens_silently_and_draws_every_trace(visit, plain, scheme):
    page = visit(plain, color_scheme=scheme)
    assert page.seen == {"console": [], "requests": [plain.as_uri()], "dialogs": []}
    held = page.evaluate("[...document.querySelectorAll('.plot')].map(p => p.data.length)")
    given = page.evaluate(
        "scheme => [...document.querySelectorAll('script[data-figure]')]"
        ".map(s => JSON.parse(s.textContent)[scheme].data.length)",
        scheme,
    )
    assert held == given
    assert len(held) == 4
    curves = page.locator("#figure-1 .scatterlayer path.js-line").count()
    assert curves >= 8  # two rules, four widths
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert background == {"light": "rgb(255, 255, 255)", "dark": "rgb(20, 23, 28)"}[scheme]


def test_a_change_of_scheme_is_followed(visit, plain):
    page = visit(plain, color_scheme="light")
    page.emulate_media(color_scheme="dark")
    until(page, PAPER, "#14171c")


@pytest.mark.parametrize("viewport", [PHONE, DESK])
def test_hostile_names_do_nothing_and_are_read_as_text(visit, hostile, viewport):
    page = visit(hostile, viewport=viewport)
    page.wait_for_timeout(300)
    assert page.seen == {"console": [], "requests": [hostile.as_uri()], "dialogs": []}
    assert page.locator("img").count() == 0
    assert HOSTILE in page.locator(".question").inner_text()
    titles = page.evaluate("[...document.querySelectorAll('.plot .annotation-text')].map(t => t.textContent)")
    assert any(title.startswith(HOSTILE) for title in titles)


def test_even_a_script_that_slipped_in_could_not_run(visit, plain, tmp_path):
    text = plain.read_text().replace("</header>", "<img src=x onerror='alert(1)'><script>alert(2)</script></header>")
    spoiled = tmp_path / "spoiled.html"
    spoiled.write_text(text)
    page = visit(spoiled)
    page.wait_for_timeout(200)
    assert page.seen["dialogs"] == []
    assert any("Content Security Policy" in line for line in page.seen["console"])


@pytest.mark.parametrize("width", [320, 390, 768])
@pytest.mark.parametrize("kind", ["plain", "hostile"])
def test_a_narrow_screen_never_scrolls_sideways(visit, request, kind, width):
    page = visit(request.getfixturevalue(kind), viewport={"width": width, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") == width
    figures = page.evaluate("[...document.querySelectorAll('.plot')].map(p => p.getBoundingClientRect().right)")
    assert max(figures) <= width


def test_panels_are_stacked_on_a_phone_and_side_by_side_on_a_desk(visit, plain):
    boxes = "document.querySelectorAll('.plot')[0].layout.xaxis2.domain[0]"
    assert visit(plain, viewport=DESK).evaluate(boxes) > 0.5
    assert visit(plain, viewport=PHONE).evaluate(boxes) == 0


def test_paper_is_white_and_holds_the_figures_whole(visit, plain, tmp_path):
    page = visit(plain, color_scheme="dark")
    page.emulate_media(media="print", color_scheme="dark")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.evaluate(PAPER) == "#ffffff"
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert page.evaluate("Math.max(...[...document.querySelectorAll('.main-svg')].map(s => s.clientWidth))") <= 690
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.evaluate(PAPER) == "#14171c"
    assert page.pdf(format="A4", path=tmp_path / "report.pdf")[:5] == b"%PDF-"


def test_the_tables_hold_the_numbers_without_javascript(browser, plain):
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(plain.as_uri())
    assert page.locator("table").count() >= 4
    assert page.locator("noscript").count() == 1
    context.close()
