"""The console in a real browser: what a user sees, by mouse, keyboard and phone."""

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from controller.fleet.actor import BatchController
from replicas.door.key_source import KeySource
from replicas.door.settings import KeysFrom
from serve_app.console.app import console_app
from serve_app.console.watch import Watch
from tests.browser.batch import Batch
from tests.browser.chromium import Page, chromium
from tests.browser.stack import GROUPS, HOSTILE, Fleet, served

pytestmark = pytest.mark.browser

PLOTS = 6  # of one replica
TAB, ENTER = ("Tab", 9), ("Enter", 13, "\r")
KEY = "sk-alice-0123456789"
FIRST_LIGHT = "performance.getEntriesByName('plot').length"


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """A console that has watched a fleet for a minute."""
    fleet, now_s = Fleet(BatchController()), [time.time() - 60]
    watch = Watch(fleet.read, lambda: now_s[0])
    for _ in range(60):
        asyncio.run(watch.look())
        now_s[0] += 1
    watch = watched_on(watch, fleet)
    with served(console_app(watch, ask_timeline=Batch().ask), route_prefix="/console") as url:
        yield url


def watched_on(before: Watch, fleet: Fleet) -> Watch:
    """A watch by the real clock that goes on from what another has seen."""
    watch = Watch(fleet.read)
    watch.view = before.view
    return watch


@pytest.fixture(scope="module")
def browser() -> Iterator[Page]:
    with chromium() as page:
        yield page


@pytest.fixture
def page(browser: Page, url: str) -> Page:
    """The console, opened on a screen of its own size, with all that it plots."""
    browser.events.clear()
    browser.looks(1280, 900)
    browser.open("about:blank")
    browser.open(url)
    browser.until(f"document.title === 'Brimful' && {FIRST_LIGHT} >= {PLOTS}")
    return browser


def text(page: Page, selector: str) -> str:
    return page.run(f"document.querySelector({selector!r}).innerText")


def count(page: Page, selector: str) -> int:
    return page.run(f"document.querySelectorAll({selector!r}).length")


def test_the_fleet_is_there_at_once_and_goes_on(page: Page) -> None:
    assert count(page, "#models article") == len(GROUPS)
    assert count(page, "#rows tr") == 4
    assert count(page, "#plots canvas") == PLOTS
    assert "It runs at most" in text(page, "#why")
    assert "cap " in text(page, "#log")
    seen = text(page, "#about")
    page.until(f"document.getElementById('about').innerText !== {seen!r}")
    assert page.errors() == []


def test_nothing_is_fetched_but_the_page_and_its_data(page: Page, url: str) -> None:
    sent = [
        e["params"]["request"]["url"]
        for e in page.events
        if e.get("method") == "Network.requestWillBeSent"
    ]
    assert sent
    assert {one.partition("?")[0] for one in sent} <= {
        "about:blank",
        "data:,",
        url,
        f"{url}/",
        f"{url}/api/fleet",
        f"{url}/api/series",
        f"{url}/api/timeline",
    }


def test_a_name_that_is_markup_stays_text(page: Page) -> None:
    assert HOSTILE in text(page, "#models")
    assert HOSTILE in text(page, "#rows")
    assert count(page, "img") == 0
    assert page.run("document.title") == "Brimful"


def test_an_emulated_accelerator_is_marked(page: Page) -> None:
    badges = page.run("[...document.querySelectorAll('.badge')].map((one) => one.innerText)")
    assert badges == ["emulated accelerator"]
    assert text(page, "#rows").count("(emulated)") == 1


def test_a_replica_is_chosen_by_the_keyboard_alone(page: Page) -> None:
    page.run("document.querySelector('#replicas .scroll').focus()")
    page.press(*TAB)
    page.press(*TAB)
    chosen = page.run("document.activeElement.innerText")
    page.press(*ENTER)
    page.until(f"document.getElementById('detail-title').innerText.includes({chosen!r})")
    assert page.run("document.querySelector('tr[aria-current]').innerText").startswith(chosen)
    # The page is drawn anew every second; who reads it by keyboard keeps the place.
    seen = text(page, "#about")
    page.until(f"document.getElementById('about').innerText !== {seen!r}")
    assert page.run("document.activeElement.innerText") == chosen


def test_a_model_has_plots_of_its_own(page: Page) -> None:
    page.run("document.querySelectorAll('#models a')[1].click()")
    page.until("document.getElementById('detail-title').innerText.startsWith('All replicas of')")
    page.until("document.querySelectorAll('#plots canvas').length === 3")
    titles = page.run("[...document.querySelectorAll('figcaption b')].map((one) => one.innerText)")
    assert titles == ["Requests per second", "Replicas", "Inside the SLA"]
    assert page.errors() == []


def test_a_plot_has_each_second_once(page: Page) -> None:
    page.run("for (let i = 0; i < 5; i += 1) dispatchEvent(new Event('hashchange'))")
    seen = text(page, "#about")
    page.until(f"document.getElementById('about').innerText !== {seen!r}")
    times = page.run("plots[0].plot.data[0]")
    assert len(times) >= 30
    assert sorted(set(times)) == times


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_is_as_light_or_dark_as_the_system(page: Page, scheme: str) -> None:
    page.looks(1280, 900, scheme)
    brightness = "getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)[0]"
    page.until(f"({brightness} > 128) === {str(scheme == 'light').lower()}")
    page.until(f"document.querySelectorAll('#plots canvas').length === {PLOTS}")


def test_on_a_phone_nothing_is_wider_than_the_screen(page: Page) -> None:
    page.looks(390, 844)
    page.until(
        "Math.max(...[...document.querySelectorAll('canvas')].map((c) => c.clientWidth)) < 390"
    )
    assert page.run("document.documentElement.scrollWidth") == 390
    assert page.run("document.querySelector('#replicas .scroll').scrollWidth") <= 370


def timelines_asked(page: Page) -> int:
    page.run("0")
    return sum(
        "/api/timeline" in e["params"]["request"]["url"]
        for e in page.events
        if e.get("method") == "Network.requestWillBeSent"
    )


def test_the_batch_is_shown_and_asked_for_only_while_it_is_open(page: Page) -> None:
    assert timelines_asked(page) == 0
    page.run("document.querySelector('#batch summary').focus()")
    page.press(*ENTER)
    page.until("performance.getEntriesByName('batch').length > 1")
    assert "decode" in text(page, "#batch-said")
    assert page.run("document.getElementById('batch-bars').height") > 100
    classes = "[...document.querySelectorAll('#batch-legend span')].map((one) => one.innerText)"
    assert set(page.run(classes)) == {"gold", "silver", "batch"}
    page.run("document.getElementById('batch').open = false")
    seen, asked = text(page, "#about"), timelines_asked(page)
    page.until(f"document.getElementById('about').innerText !== {seen!r}")
    assert timelines_asked(page) - asked <= 1  # one that was on its way
    assert page.errors() == []


def test_the_batch_fits_a_phone(page: Page) -> None:
    page.looks(390, 844)
    page.run("document.getElementById('batch').open = true")
    page.until("performance.getEntriesByName('batch').length > 0")
    assert page.run("document.getElementById('batch-bars').clientWidth") < 390
    assert page.run("document.documentElement.scrollWidth") == 390


def test_with_keys_a_user_signs_in_and_stays_so(browser: Page, tmp_path: Path) -> None:
    (tmp_path / "keys").write_text(f"alice {KEY}")
    keys = KeySource(KeysFrom(file=str(tmp_path / "keys")))
    browser.events.clear()
    with served(console_app(Watch(Fleet(BatchController()).read), keys), "/console") as url:
        browser.open(url)
        browser.until("document.title === 'Brimful: sign in'")
        browser.until("document.activeElement.id === 'key'")
        browser.call("Input.insertText", text=KEY)
        browser.press(*ENTER)
        browser.until("document.querySelectorAll('#rows tr').length === 4")
        assert browser.run("document.cookie") == ""  # no script sees it
        (tmp_path / "keys").write_text("bob sk-bob-0123456789")
        browser.until("document.title === 'Brimful: sign in'")


def test_where_the_console_is_gone_that_is_said(browser: Page) -> None:
    fleet = Fleet(BatchController())
    with served(console_app(Watch(fleet.read))) as url:
        browser.open(url)
        browser.until("document.querySelectorAll('#rows tr').length === 4")
    browser.until("document.getElementById('problem').innerText.includes('does not answer')")
