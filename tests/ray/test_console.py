"""The console behind HAProxy, beside the application that it shows."""

from typing import Any

import pytest
import requests

from tests.ray.conftest import PORT, base_url
from tests.ray.control import replicas, until
from tests.ray.emulated import KEY

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("emulated")]

URL = f"http://127.0.0.1:{PORT}/console"


def get(path: str, key: str = KEY, **query: str) -> requests.Response:
    headers = {"authorization": f"Bearer {key}"} if key else {}
    return requests.get(URL + path, params=query, headers=headers, timeout=30)


def signed_in() -> requests.Session:
    """A browser that has signed in."""
    browser = requests.Session()
    answer = browser.post(f"{URL}/sign-in", data={"key": KEY}, timeout=30)
    assert (answer.status_code, answer.url) == (200, f"{URL}/")
    return browser


def complete() -> requests.Response:
    ask = {"model": "tiny-emulated", "prompt": "a river", "max_tokens": 4, "ignore_eos": True}
    return requests.post(f"{base_url('emulated')}/completions", json=ask, timeout=60)


def fleet() -> dict[str, Any]:
    answer = get("/api/fleet")
    return answer.json() if answer.ok else {}


def known_to_ray_serve() -> bool:
    models = fleet().get("models", [])
    return any(model["wanted"] and model["replicas"] for model in models if is_emulated(model))


def is_emulated(model: dict[str, Any]) -> bool:
    """Whether it is the application of this module: others run beside it."""
    return bool(model["application"] == "emulated")


async def test_it_shows_what_the_controller_and_ray_serve_know() -> None:
    await until("the replica, and whose it is", known_to_ray_serve)
    shown = fleet()
    (model,) = filter(is_emulated, shown["models"])
    (name,) = replicas("emulated")
    assert model["model"] == "tiny-emulated"
    assert (model["emulated"], model["replicas"], model["wanted"]) == (True, 1, 1)
    (row,) = (one for one in shown["replicas"] if one["replica"] == name)
    assert (row["control"], shown["error"]) == ("on", None)
    known = get("/api/series", group=row["group"], replica=row["replica"]).json()
    assert known["facts"][0].startswith("It runs at most")
    assert known["series"]["unix_s"]


async def test_the_page_is_reached_with_a_slash_and_without_and_without_a_key_only_to_sign_in():
    await until("the console's route", lambda: bool(fleet()))
    pages = [get(end) for end in ("", "/")]
    assert [page.status_code for page in pages] == [200, 200]
    assert pages[0].text == pages[1].text
    assert "default-src 'none'" in pages[0].headers["content-security-policy"]
    page = get("", key="")
    assert (page.status_code, "<form" in page.text) == (401, True)
    assert get("/api/fleet", key="").status_code == 401
    with signed_in() as browser:
        assert browser.get(f"{URL}/api/fleet", timeout=30).json()["models"]


async def test_who_held_which_slot_is_asked_of_the_replica_itself() -> None:
    await until("the replica, and whose it is", known_to_ray_serve)
    (name,) = replicas("emulated")
    assert get("/api/timeline", replica="nobody").status_code == 404
    assert get("/api/timeline", replica=name).json()["bars"] == []  # it records from now on
    answer = complete()
    assert answer.ok

    def bars() -> list[list[Any]]:
        return get("/api/timeline", replica=name).json()["bars"]

    await until("the request's bars", lambda: bool(bars()))
    known = get("/api/timeline", replica=name).json()
    told = [known["states"][state] for _, _, state, *_ in known["bars"]]
    assert told[-2:] == ["prefill", "decode"]
    assert answer.json()["id"] not in str(known)
