"""An application of emulated replicas, for benches."""

from typing import Any

from benchmarks.report.document import ROOT
from serve_app.demo.tiny_model import make_tiny_model

CPUS = 0.25  # an engine's share of a core, for Ray


def emulated_application(
    name: str,
    *,
    engine: dict[str, Any],
    deployment: dict[str, Any],
    emulate: dict[str, Any],
    bundle: dict[str, float] | None = None,
    env: dict[str, str] | None = None,
    **blocks: Any,
) -> dict[str, Any]:
    """One model ``name`` at ``/``, whose replicas sleep the steps of a profile.

    Args:
        engine: ``engine_kwargs``.
        deployment: ``deployment_config``.
        bundle: resources of an engine besides its share of a core.
        env: environment variables of replicas and engines.
        blocks: the entry's other keys, as ``batching`` and ``classes``.
    """
    entry = {
        "model_loading_config": {
            "model_id": name,
            "model_source": str(make_tiny_model(ROOT / ".cache" / "tiny-llama")),
        },
        "accelerator_config": {"kind": "cpu"},
        "placement_group_config": {"bundle_per_worker": {"CPU": CPUS, **(bundle or {})}},
        "runtime_env": {
            "env_vars": {
                "VLLM_CPU_OMP_THREADS_BIND": "nobind",
                "OMP_NUM_THREADS": "1",
                **(env or {}),
            }
        },
        "engine_kwargs": {"enable_prefix_caching": False, **engine},
        "deployment_config": {
            "ray_actor_options": {"num_cpus": 0.1},
            "max_ongoing_requests": 4096,
            **deployment,
        },
        "emulate": emulate,
        **blocks,
    }
    return {
        "name": name,
        "route_prefix": "/",
        "import_path": "serve_app:build_app",
        "args": {"llm_configs": [entry]},
    }
