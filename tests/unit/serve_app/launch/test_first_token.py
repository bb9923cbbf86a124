"""The first token, of a server that answers as vLLM does."""

import json
import shlex
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from controller.errors import BrimfulError
from serve_app.launch.first_token import first_token

TOKEN = b'data: {"choices": [{"text": "a"}]}\n\ndata: [DONE]\n\n'
FAILED = b'data: {"error": {"message": "no"}}\n\ndata: [DONE]\n\n'


class Server(ThreadingHTTPServer):
    """What it answers, by path."""

    answers: dict[str, tuple[int, bytes]]

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1"


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self._answer()

    def _answer(self) -> None:
        assert isinstance(self.server, Server)
        status, body = self.server.answers[self.path.removeprefix("/v1/")]
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""


@pytest.fixture
def server() -> Iterator[Server]:
    with Server(("127.0.0.1", 0), Handler) as made:
        made.answers = {"models": (200, b'{"data": [{"id": "m"}]}')}
        thread = threading.Thread(target=made.serve_forever)
        thread.start()
        yield made
        made.shutdown()
        thread.join()


def test_a_model_without_a_chat_template_completes(server: Server) -> None:
    server.answers |= {"chat/completions": (400, b"no template"), "completions": (200, TOKEN)}
    came = first_token(server.base_url)
    assert came is not None
    assert (came.model, came.path) == ("m", "completions")
    assert came.seconds > 0
    words = shlex.split(came.curl(server.base_url))
    assert words[:2] == ["curl", f"{server.base_url}/completions"]
    assert json.loads(words[-1])["model"] == "m"


def test_who_has_a_key_is_answered(server: Server) -> None:
    server.answers["models"] = (401, b"")
    assert first_token(server.base_url) is None


def test_what_was_answered_instead_is_told(server: Server) -> None:
    server.answers |= {"chat/completions": (400, b"no template"), "completions": (400, b"no text")}
    with pytest.raises(BrimfulError, match="m gave no token: 400: no text"):
        first_token(server.base_url)
    server.answers["chat/completions"] = server.answers["completions"] = (200, FAILED)
    with pytest.raises(BrimfulError, match="m gave no token: empty"):
        first_token(server.base_url)
