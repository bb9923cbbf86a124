"""The first token of a model, asked for over HTTP as a client does."""

import json
import time
from dataclasses import dataclass
from typing import Any

import requests

from controller.errors import BrimfulError

MESSAGE = "Say hello."
# A model without a chat template takes only the second one.
ASKED: dict[str, dict[str, Any]] = {
    "chat/completions": {"messages": [{"role": "user", "content": MESSAGE}]},
    "completions": {"prompt": MESSAGE},
}
TIMEOUT_S = 600.0
TRIES_S = 60.0
LATER = (404, 500, 502, 503)  # HAProxy does not know it yet, or reloads its routes


@dataclass(frozen=True, slots=True)
class FirstToken:
    """A model that answered.

    Args:
        model: as clients name it.
        path: of ``ASKED``, the one that it answered.
        seconds: from the request to the first token.
    """

    model: str
    path: str
    seconds: float

    def curl(self, base_url: str) -> str:
        """The same request as a shell command, with a longer answer."""
        body = json.dumps({"model": self.model, **ASKED[self.path], "max_tokens": 32})
        return f"curl {base_url}/{self.path} -H 'content-type: application/json' -d '{body}'"


def first_token(base_url: str) -> FirstToken | None:
    """Ask for one; None: the server needs a key.

    Raises:
        BrimfulError: no token came.
    """
    try:
        return _asked(base_url)
    except requests.RequestException as error:
        raise BrimfulError(f"{base_url} gave no token: {error}") from None


def _asked(base_url: str) -> FirstToken | None:
    listed = requests.get(f"{base_url}/models", timeout=TRIES_S)
    if listed.status_code == 401:
        return None
    model = str(listed.json()["data"][0]["id"])
    until_s, refused = time.monotonic() + TRIES_S, ""
    while time.monotonic() < until_s:
        for path, body in ASKED.items():
            began_s = time.monotonic()
            asked = {"model": model, **body, "max_tokens": 1}
            answer = requests.post(f"{base_url}/{path}", json=asked, timeout=TIMEOUT_S)
            if answer.ok:
                return FirstToken(model, path, time.monotonic() - began_s)
            refused = f"{answer.status_code}: {answer.text[:300]}"
        if answer.status_code not in LATER:
            break
        time.sleep(1)
    raise BrimfulError(f"{base_url}: {model} gave no token: {refused}")
