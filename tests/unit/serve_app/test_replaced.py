"""Keys that Ray Serve or vLLM have dropped: told with their place and what took theirs."""

import re

import pytest

from serve_app.checks.values import ENGINE as ENGINE_SHAPE
from serve_app.entries import DEPLOYMENT, ENGINE, ENGINE_KEYS, OPTIONS, REPLACED
from tests.serve_configs import ENTRY, config, put

PLACE = "applications[0].args.llm_configs[0]"
DROPPED = [
    (("engine_kwargs",), "device", "write accelerator_config: {kind: cpu, gpu or tpu} next to"),
    (("engine_kwargs",), "use_v2_block_manager", "leave it out, nothing took its place"),
    (("deployment_config",), "max_concurrent_queries", "write max_ongoing_requests"),
    (
        ("deployment_config", "autoscaling_config"),
        "target_num_ongoing_requests_per_replica",
        "write target_ongoing_requests",
    ),
    ((), "resources_per_bundle", "write placement_group_config: {bundle_per_worker: ...}"),
]


@pytest.mark.parametrize(("path", "key", "cure"), DROPPED)
def test_a_check_says_what_took_the_place_of_a_dropped_key(check, path, key, cure) -> None:
    (problem,) = check(put(config(), (*ENTRY, *path, key), 1)).problems
    place = ".".join((PLACE, *path))
    assert problem.startswith(f"{place}: {key!r} was dropped; {cure}")


def test_what_is_called_dropped_is_and_what_is_named_instead_is_there() -> None:
    # Of an entry's neighbour.
    known = {*ENGINE_KEYS, "accelerator_config"}
    assert set(ENGINE_SHAPE.keys) == set(ENGINE_KEYS)
    for key, instead in REPLACED[ENGINE].items():
        assert key not in ENGINE_KEYS
        if instead is not None:
            named = re.findall(r"^\w+|(?<=and )\w+", instead)
            assert named and set(named) <= known
    assert not REPLACED[DEPLOYMENT].keys() & set(OPTIONS)
    assert set(REPLACED[DEPLOYMENT].values()) <= set(OPTIONS)
