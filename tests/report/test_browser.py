"""Reports in a browser: phone and desktop, light and dark, with and without scripts; skips where there is none."""

import numpy as np
import pytest

import forestmix as fmx
from forestmix.data import load_table
from forestmix.paper import Settings, run_experiments
from forestmix.report import write_report, write_saved
from support.chromium import browser, chromium

pytestmark = pytest.mark.skipif(chromium() is None, reason="needs Chromium: apt-get install chromium")
NASTY = "<img src=x onerror=\"document.title='run'\">" + "long" * 20


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")
    W = np.random.default_rng(0).standard_normal((60, 8))
    model = fmx.DEF(fmx.Layer(fmx.Bernoulli(), W))
    fit = fmx.regress("visits ~ age + C(ward) + (1 | subject)", load_table("clinic"), family="poisson")
    (folder / "demo").mkdir()
    return {
        "result": write_saved(folder / "result.html", fmx.infer(model, model.sample(0).x), [NASTY] * 8),
        "fit": write_saved(folder / "fit.html", fit),
        "demo": write_report(folder / "demo", run_experiments(Settings(repeats=1, images=1, iterations=5))),
    }


@pytest.fixture(scope="module")
def page():
    with browser() as page:
        yield page


@pytest.mark.parametrize("name", ["result", "fit", "demo"])
@pytest.mark.parametrize("width", [390, 1200])
def test_nothing_scrolls_sideways_and_nothing_leaves_the_page(pages, page, name, width):
    colours = set()
    for dark in (False, True):
        page.open(pages[name], width, dark)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert page.evaluate("document.title") != "run"
        assert page.evaluate("[...document.images].every(one => one.complete && one.naturalWidth > 100)")
        colours.add(page.evaluate("getComputedStyle(document.body).backgroundColor"))
        assert page.problems() == []
    assert len(colours) == 2
    hint = "getComputedStyle(part, '::before').content.includes('Swipe')"
    wide = f"[...document.querySelectorAll('.wide')].every(part => (part.scrollWidth > part.clientWidth) <= ({hint}))"
    assert width > 800 or page.evaluate(wide)


def test_a_table_is_sorted_by_a_click_and_by_the_keyboard(pages, page):
    page.open(pages["fit"])
    means = "[...document.querySelectorAll('#summary tbody tr')].map(row => Number(row.cells[1].textContent))"
    before = page.evaluate(means)
    page.evaluate("document.querySelectorAll('#summary th button')[1].click()")
    assert page.evaluate(means) == sorted(before) != before
    assert page.evaluate("document.querySelectorAll('#summary th')[1].getAttribute('aria-sort')") == "ascending"
    page.evaluate("document.querySelectorAll('#summary th button')[1].focus()")
    for kind in ("keyDown", "keyUp"):
        key = {"key": "Enter", "code": "Enter", "windowsVirtualKeyCode": 13, "text": "\r"}
        page.call("Input.dispatchKeyEvent", type=kind, **(key if kind == "keyDown" else {**key, "text": ""}))
    assert page.evaluate(means) == sorted(before, reverse=True)


def test_all_is_there_without_scripts(pages, page):
    page.open(pages["fit"], scripts=False)
    page.call("Emulation.setScriptExecutionDisabled", value=False)
    assert page.evaluate("document.querySelectorAll('#summary tbody tr').length") == 6
    assert page.evaluate("document.querySelectorAll('th button').length") == 0
    assert page.evaluate("document.querySelectorAll('#summary thead th')[1].textContent") == "mean"
