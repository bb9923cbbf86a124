"""A headless Chromium, driven by its DevTools protocol over a WebSocket."""

import itertools
import json
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from websockets.sync.client import ClientConnection, connect

NAMES = ("chromium", "chromium-browser", "google-chrome")
LISTENS = re.compile(r"DevTools listening on (ws://\S+)")
TRIES = 300  # every 0.1 s


def executable() -> str | None:
    """The browser of this machine; None if there is none."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Page:
    """One tab."""

    def __init__(self, connection: ClientConnection, session: str) -> None:
        self._connection, self._session = connection, session
        self._ids = itertools.count(1000)
        self.events: list[dict[str, Any]] = []  # what the page said by itself: requests, errors

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """One command of the protocol; its result."""
        number = next(self._ids)
        asked = {"id": number, "method": method, "params": params, "sessionId": self._session}
        self._connection.send(json.dumps(asked))
        while True:
            said = json.loads(self._connection.recv(timeout=60))
            if said.get("id") == number:
                assert "error" not in said, said
                return said["result"]
            self.events.append(said)

    def run(self, script: str) -> Any:
        """The value of a JavaScript expression."""
        answer = self.call(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def until(self, script: str) -> Any:
        """The expression's value, once it is true."""
        for _ in range(TRIES):
            if value := self.run(script):
                return value
            time.sleep(0.1)
        raise AssertionError(
            f"never saw: {script}; the page is:\n{self.run('document.body.innerText')}"
        )

    def open(self, url: str) -> None:
        self.call("Page.navigate", url=url)

    def press(self, key: str, code: int, text: str = "") -> None:
        """Press and release a key of the keyboard."""
        known = {"key": key, "code": key, "windowsVirtualKeyCode": code}
        self.call("Input.dispatchKeyEvent", type="keyDown", text=text, **known)
        self.call("Input.dispatchKeyEvent", type="keyUp", **known)

    def looks(self, width: int, height: int, scheme: str = "light", scale: float = 1) -> None:
        """The window's size, and what the user's system prefers."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=scale,
            mobile=width < 640,
        )
        preferred = [{"name": "prefers-color-scheme", "value": scheme}]
        self.call("Emulation.setEmulatedMedia", features=preferred)

    def errors(self) -> list[str]:
        """Exceptions of scripts, and what the console of the browser complains of."""
        self.run("0")  # takes in what came meanwhile
        found = []
        for event in self.events:
            params = event.get("params", {})
            if event.get("method") == "Runtime.exceptionThrown":
                found.append(str(params["exceptionDetails"]))
            if event.get("method") == "Log.entryAdded" and params["entry"]["level"] == "error":
                found.append(params["entry"]["text"])
        return found


@contextmanager
def chromium() -> Iterator[Page]:
    """A browser with one empty tab, that ends with the context."""
    path = executable()
    assert path is not None
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        command = [path, "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run"]
        command += ["--disable-dev-shm-usage", "--disable-background-networking"]
        command += ["--remote-debugging-port=0", f"--user-data-dir={profile}", "about:blank"]
        process = subprocess.Popen(
            command, stderr=subprocess.PIPE, text=True, stdout=subprocess.DEVNULL
        )
        try:
            # A page with much output and no reader would leave pings unanswered.
            known = {"max_size": None, "compression": None, "ping_interval": None}
            with connect(_address(process), **known) as connection:
                yield _tab(connection)
        finally:
            process.terminate()
            process.wait(30)
            assert process.stderr is not None
            process.stderr.close()


def _address(process: subprocess.Popen[str]) -> str:
    assert process.stderr is not None
    for line in process.stderr:
        if found := LISTENS.search(line):
            return found[1]
    raise AssertionError("Chromium ended before it listened")


def _tab(connection: ClientConnection) -> Page:
    def ask(method: str, **params: Any) -> dict[str, Any]:
        connection.send(json.dumps({"id": 1, "method": method, "params": params}))
        while True:
            said = json.loads(connection.recv(timeout=60))
            if said.get("id") == 1:
                return said["result"]

    target = ask("Target.createTarget", url="about:blank")["targetId"]
    session = ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
    page = Page(connection, session)
    for domain in ("Page", "Runtime", "Network", "Log"):
        page.call(f"{domain}.enable")
    return page
