"""Ray Serve's REST interface, as ``brimful apply`` reads it: from answers that it gave."""

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import ray
import yaml

from controller.errors import BrimfulError
from serve_app.apply.cluster import Cluster
from serve_app.cli import main
from tests.serve_configs import config, put

MODEL = "BrimfulServer:m"
SLA = ("args", "llm_configs", 0, "batching", "sla", "itl_ms")
Serve = Callable[..., tuple[str, list[Any]]]


def running(status: str = "RUNNING", state: str = "RUNNING") -> dict[str, Any]:
    """One application as the interface has it."""
    deployment = {
        "status": "HEALTHY",
        "message": "",
        "target_num_replicas": 1,
        "replicas": [{"state": state}],
    }
    return {
        "status": status,
        "message": "no module",
        "deployed_app_config": config()["applications"][0],
        "deployments": {MODEL: deployment},
    }


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Iterator[Serve]:
    """A dashboard that answers so; its address, and what was sent to it."""
    monkeypatch.setattr("serve_app.apply.cluster.POLL_S", 0.02)
    servers = []

    def start(
        application: dict[str, Any], *, group: str = "", refuses: str = "", fails_at: int = 0
    ) -> tuple[str, list[Any]]:
        sent: list[Any] = []
        nodes = [{"labels": {"ray.io/node-group": group} if group else {}}]
        answers = {
            "/api/ray/version": {"version": "4", "ray_version": ray.__version__},
            "/api/version": {"version": "4", "ray_version": ray.__version__},
            "/api/serve/applications/": {"applications": {"llm": application}},
            "/api/v0/nodes": {"data": {"result": {"result": nodes}}},
        }

        class Dashboard(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._answer(200, json.dumps(answers.get(self.path.partition("?")[0], {})))

            def do_PUT(self) -> None:
                sent.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                if len(sent) == fails_at:
                    application["status"] = "DEPLOY_FAILED"
                self._answer(400 if refuses else 200, refuses)

            def _answer(self, status: int, body: str) -> None:
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body.encode())

            def log_message(self, *_: Any) -> None:
                return

        server = ThreadingHTTPServer(("127.0.0.1", 0), Dashboard)
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        servers.append(server)
        return f"http://127.0.0.1:{server.server_port}", sent

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


Apply = Callable[..., tuple[int, str, str, list[Any]]]


@pytest.fixture
def apply(serve: Serve, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Apply:
    """``brimful apply`` of a change to a running application: status, out, err, what was sent."""

    def apply(
        path: Any = SLA, value: Any = 80, *flags: str, application: Any = None, **kind: Any
    ) -> tuple[int, str, str, list[Any]]:
        address, sent = serve(application or running(), **kind)
        status = main(["apply", changed(tmp_path, path, value), "--address", address, *flags])
        return status, *capsys.readouterr(), sent

    return apply


def changed(tmp_path: Path, path: tuple[str | int, ...] = SLA, value: Any = 80) -> str:
    """The path of a file with a change."""
    file = tmp_path / "changed.yaml"
    wanted = put(config()["applications"][0], path, value)
    file.write_text(yaml.safe_dump({"applications": [wanted]}))
    return str(file)


def test_an_sla_is_sent_beside_the_args_that_run(apply: Apply) -> None:
    status, _, _, sent = apply()
    assert status == 0
    (one,) = sent[0]["applications"]
    assert one["args"] == config()["applications"][0]["args"]
    assert one["deployments"][0]["user_config"]["batching"]["sla"]["itl_ms"] == 80


def test_the_users_proxy_is_not_asked_for_the_dashboard(apply: Apply, dead_proxy: None) -> None:
    status, _, _, sent = apply()
    assert (status, len(sent)) == (0, 1)


def test_on_a_cluster_of_kuberays_nothing_is_sent(apply: Apply) -> None:
    status, out, _, sent = apply(group="headgroup")
    assert (status, sent) == (0, [])
    assert "serveConfigV2: |" in out


def test_a_rayservice_as_the_file_gets_its_block(
    serve: Serve, tmp_path: Path, service: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    address, sent = serve(running())
    wanted = Path(changed(tmp_path)).read_text()
    file = tmp_path / "service.yaml"
    file.write_text(yaml.safe_dump(put(service, ("spec", "serveConfigV2"), wanted)))
    assert main(["apply", str(file), "--address", address]) == 0
    assert "itl_ms: 80" in capsys.readouterr().out
    assert sent == []


LLM = ("args", "llm_configs", 0)
SIZE = (*LLM, "engine_kwargs", "max_num_seqs")


@pytest.mark.parametrize("flags", [("--dry-run",), ()])
def test_what_takes_new_replicas_is_not_sent_unasked(apply: Apply, flags: Any) -> None:
    status, out, err, sent = apply(SIZE, 128, *flags)
    assert (status, sent) == (0 if flags else 2, [])
    assert "max_num_seqs: 64 -> 128" in out
    assert ("num_replicas: 2" in err) == (not flags)


@pytest.mark.parametrize(
    ("path", "value", "flags", "says"),
    [
        *[
            (path, value, [], "Deploy the new one first")
            for path, value in (
                ((*LLM, "model_loading_config", "model_id"), "n"),
                ((*LLM, "emulate"), {"profile": "h100-llama-8b-vllm"}),
                (("import_path",), "ray.serve.llm:build_openai_app"),
            )
        ],
        # What cannot be compared.
        (("args",), [1], [], "applications[0].args"),
        ((*LLM, "engine_kwargs"), 3, [], "llm_configs[0].engine_kwargs"),
        (("deployments",), [None], [], "applications[0].deployments[0]"),
        (("deployments",), 3, [], "applications[0].deployments"),
        (LLM, "entry.yaml", [], "write the entry inline"),
        ((*LLM, "batching"), 3, [], "llm_configs[0].batching"),
    ],
    ids=str,
)
def test_what_cannot_be_done_is_named(
    apply: Apply, path: Any, value: Any, flags: Any, says: str
) -> None:
    status, _, err, sent = apply(path, value, *flags)
    assert (status, sent) == (2, [])
    assert says in err


def test_what_serve_refuses_or_cannot_bring_up_is_told(serve: Serve, tmp_path: Path) -> None:
    address, _ = serve(running(), refuses="no such option")
    with pytest.raises(BrimfulError, match=r"Ray Serve refused it: .*no such option"):
        Cluster(address).put({"applications": []})
    failed, _ = serve(running(status="DEPLOY_FAILED"))
    with pytest.raises(BrimfulError, match="application llm failed:\nno module"):
        Cluster(failed).wait(["llm"], 60)
    asleep, _ = serve(running(state="STARTING"))  # scaled to none, beside one that scales
    Cluster(asleep).wait(["llm"], 60)
    with pytest.raises(BrimfulError, match="not running within -1 s: "):
        Cluster(asleep).wait(["llm"], -1)


def test_where_nothing_answers_that_is_said(tmp_path: Path) -> None:
    with pytest.raises(BrimfulError, match="no Ray dashboard answers at"):
        Cluster("http://127.0.0.1:9")
