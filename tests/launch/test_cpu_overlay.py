"""The overlay ``cpu`` without Kubernetes: its Serve configuration, environment, probes and preStop.

Of what the overlay renders to, paths of the image and ports become those that are here; all else is
as ``kubectl apply`` would send it.
"""

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest
import requests

from serve_app.demo.client import Answer, Ask, prompts, send
from serve_app.demo.small_model import make_small_model
from serve_app.launch.command import Clock
from serve_app.launch.first_token import first_token
from serve_app.launch.running import wait_reached
from tests.ray.conftest import REPO
from tests.ray.control import until
from tests.ray.pods import Pod, Pods, containers_of, environment_of

pytestmark = [pytest.mark.cluster, pytest.mark.pods]

MODEL = "smollm2"
IN_IMAGE = f"/home/ray/models/{MODEL}-135m"
LONGEST = 1900  # tokens of an answer, of max_model_len


@pytest.fixture(scope="module")
def small_model() -> Path:
    return make_small_model(REPO / ".cache" / f"{MODEL}-135m")


def here(config: dict[str, Any], model: Path, port: int) -> dict[str, Any]:
    """A Serve configuration for this machine."""
    config["http_options"] = {"host": "127.0.0.1", "port": port}
    (entry,) = config["applications"][0]["args"]["llm_configs"]
    assert entry["model_loading_config"]["model_source"] == IN_IMAGE
    entry["model_loading_config"]["model_source"] = str(model)
    return config


def ports_here(text: str, pod: Pod) -> str:
    """A command of the container with this pod's ports."""
    return text.replace("localhost:52365", f"localhost:{pod.agent_port}").replace(
        "localhost:8000", f"localhost:{pod.port}"
    )


def is_ready(container: dict[str, Any], pod: Pod) -> bool:
    """The readiness probe, as a kubelet does it."""
    probe = container["readinessProbe"]
    command = [ports_here(word, pod) for word in probe["exec"]["command"]]
    return pod.exec(command, probe["timeoutSeconds"]).returncode == 0


def is_alive(container: dict[str, Any], pod: Pod) -> bool:
    """The liveness probe, likewise."""
    probe = container["livenessProbe"]
    assert probe["httpGet"]["port"] == 52365
    url = f"http://127.0.0.1:{pod.agent_port}{probe['httpGet']['path']}"
    return requests.get(url, timeout=probe["timeoutSeconds"]).ok


def pre_stop(container: dict[str, Any], pod: Pod, head: str) -> None:
    """The command that ends before Kubernetes sends its first signal."""
    command = container["lifecycle"]["preStop"]["exec"]["command"]
    done = pod.exec(command, 400, RAY_ADDRESS=head)  # the variable is KubeRay's
    assert done.returncode == 0, done.stderr


def load(n: int, tokens: int, seed: int) -> list[Ask]:
    return [Ask(text, tokens) for text in prompts(n, (8, 40), seed=seed)]


def whole(answers: list[Answer]) -> list[str | int]:
    return [one.error or one.status for one in answers]


async def test_the_first_token_probes_under_load_and_a_drain_that_lets_streams_end(
    tmp_path: Path, small_model: Path, pytestconfig: pytest.Config
) -> None:
    config, container = containers_of("cpu")
    pods, clock = Pods(tmp_path, environment_of(container, tmp_path)), Clock()
    cpus = container["resources"]["limits"]["cpu"]  # KubeRay makes arguments of the limits
    with pods.running():
        pod = pods.start_worker(f"--num-cpus={cpus}")
        pods.deploy(here(config, small_model, pods.head_port))

        assert not is_ready(container, pod)
        await asyncio.to_thread(pods.wait_running)
        base = f"http://127.0.0.1:{pod.port}/v1"
        await asyncio.to_thread(wait_reached, base)
        came = await asyncio.to_thread(first_token, base)
        assert came is not None and came.model == MODEL
        clock.say(f"first token {came.seconds * 1000:.0f} ms after its request")

        loading = asyncio.create_task(send(base, MODEL, load(32, 64, seed=1)))
        probes = 0
        while not loading.done():
            assert await asyncio.to_thread(is_alive, container, pod)
            assert await asyncio.to_thread(is_ready, container, pod)
            probes += 1
            await asyncio.sleep(0.5)
        assert probes and whole(await loading) == [200] * 32
        clock.say(f"32 requests at once: both probes passed {probes} times of {probes}")

        (short,) = await send(base, MODEL, load(1, 64, seed=2))
        wanted_s = float(pytestconfig.getoption("drain_seconds"))
        tokens = min(int(wanted_s / (short.total_s / 64)), LONGEST)
        other = pods.start_worker(f"--num-cpus={cpus}")
        await until("another worker", lambda: len(pods.state("nodes")) == 3)
        streams = asyncio.create_task(send(base, MODEL, load(4, tokens, seed=3)))
        await asyncio.sleep(1)
        began_s = time.monotonic()
        ending = asyncio.create_task(asyncio.to_thread(pre_stop, container, pod, pods.gcs_address))
        answers = await streams
        assert not ending.done()  # it waits for them
        drained_s = time.monotonic() - began_s
        assert whole(answers) == [200] * 4
        assert {one.tokens for one in answers} == {tokens}
        clock.say(f"4 streams of {tokens} tokens ended, {drained_s:.0f} s after preStop began")
        await ending
        clock.say(f"preStop ended after {time.monotonic() - began_s:.0f} s")
        pod.kill()
        base = f"http://127.0.0.1:{other.port}/v1"
        await asyncio.to_thread(wait_reached, base)
        assert whole(await send(base, MODEL, load(4, 16, seed=4))) == [200] * 4
        clock.say("the other worker answers")
