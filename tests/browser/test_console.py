"""The console in a real browser: what a user sees, by mouse, keyboard and phone."""

import asyncio
import time
from collections.abc import Iterator

import pytest

from controller.fleet.actor import BatchController
from serve_app.console.app import console_app
from serve_app.console.watch import Watch
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
    with served(console_app(watch), route_prefix="/console") as url:
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


def test_on_a_phone_nothing_is_wider_than_the_screen(page: Page) -> None:
    page.looks(390, 844)
    page.until(
        "Math.max(...[...document.querySelectorAll('canvas')].map((c) => c.clientWidth)) < 390"
    )
    assert page.run("document.documentElement.scrollWidth") == 390
    assert page.run("document.querySelector('#replicas .scroll').scrollWidth") <= 370
