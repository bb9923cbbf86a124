"""The Serve config of a model."""

import argparse
from typing import Any

import pytest

from serve_app.launch.model_config import MIB, MOST_KV_BYTES, add_arguments, config_of

GIB = 2**30


def config(
    *argv: str, on_cpu: bool = False, engine: dict[str, Any] | None = None, **machine: int
) -> dict[str, Any]:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    args = parser.parse_args(argv)
    return config_of(args, engine or {}, on_cpu=on_cpu, **{"cores": 8, **machine})


def entry(*argv: str, **more: Any) -> dict[str, Any]:
    found: dict[str, Any] = config(*argv, **more)["applications"][0]["args"]["llm_configs"][0]
    return found


@pytest.fixture(autouse=True)
def _nothing_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("VLLM_CPU_OMP_THREADS_BIND", "OMP_NUM_THREADS", "VLLM_CPU_KVCACHE_SPACE"):
        monkeypatch.delenv(name, raising=False)


def test_sla_replicas_and_names() -> None:
    flags = ("--itl-ms", "50", "--ttft-ms", "2000", "--replicas", "1:8")
    found = entry("org/model", *flags, "--served-model-name", "m")
    assert found["model_loading_config"]["model_id"] == "m"
    assert found["batching"]["sla"] == {"itl_ms": 50, "ttft_ms": 2000}
    assert found["scaling"] == {}
    scaling = found["deployment_config"]["autoscaling_config"]
    assert (scaling["min_replicas"], scaling["max_replicas"]) == (1, 8)
    assert "num_replicas" not in found["deployment_config"]


def test_on_cpu_an_engine_leaves_memory_and_a_core_to_others() -> None:
    one = entry("m", on_cpu=True, free_bytes=100 * GIB)
    assert one["accelerator_config"] == {"kind": "cpu"}
    assert one["engine_kwargs"] == {"enforce_eager": True, "kv_cache_memory_bytes": MOST_KV_BYTES}
    assert one["runtime_env"]["env_vars"]["OMP_NUM_THREADS"] == "7"
    many = entry("m", "--replicas", "1:4", on_cpu=True, cores=2, free_bytes=GIB)
    assert many["engine_kwargs"]["kv_cache_memory_bytes"] == 64 * MIB
    assert many["runtime_env"]["env_vars"]["OMP_NUM_THREADS"] == "1"
    share = many["placement_group_config"]["bundle_per_worker"]["CPU"]
    assert 2 * share * 4 <= 1  # bundle and actor of each: half of the cores


def test_what_the_user_set_goes_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    own = {"enforce_eager": False, "gpu_memory_utilization": 0.3}
    assert entry("m", on_cpu=True, engine=own)["engine_kwargs"] == own
    for name in ("VLLM_CPU_OMP_THREADS_BIND", "OMP_NUM_THREADS", "VLLM_CPU_KVCACHE_SPACE"):
        monkeypatch.setenv(name, "1")
    found = entry("m", on_cpu=True)
    assert found["engine_kwargs"] == {"enforce_eager": True}
    assert "runtime_env" not in found


@pytest.mark.parametrize(("host", "shown"), [("127.0.0.1", True), ("0.0.0.0", False)])
def test_the_console_is_for_this_machine_alone(host: str, shown: bool) -> None:
    found = config("m", "--host", host, "--port", "8100")
    assert found["http_options"] == {"host": host, "port": 8100}
    names = [application["name"] for application in found["applications"]]
    assert names == (["llm", "console"] if shown else ["llm"])
