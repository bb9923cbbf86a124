"""Keys that Ray Serve or vLLM have dropped: told with their place and what took theirs."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from controller.errors import ConfigError
from serve_app.build import serving_args
from serve_app.checks.shapes import ENGINE as ENGINE_SHAPE
from serve_app.entries import ENGINE_KEYS, OPTIONS
from serve_app.replaced import DEPLOYMENT, ENGINE, REPLACED, unknown_line
from tests.serve_configs import ENTRY, config, entry, put

PLACE = "applications[0].args.llm_configs[0]"
DROPPED = [
    (("engine_kwargs",), "device", "write accelerator_config: {kind: cpu, gpu or tpu} beside"),
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


@pytest.mark.parametrize(("path", "key", "cure"), DROPPED[:3])
@pytest.mark.parametrize("in_file", [False, True])
def test_so_does_the_builder_with_the_file_that_it_stands_in(
    path: tuple[str, ...], key: str, cure: str, in_file: bool, tmp_path: Path
) -> None:
    wrong: Any = put(entry(), (*path, key), 1)
    where = "llm_configs[0]"
    if in_file:
        file = tmp_path / "entry.yaml"
        file.write_text(yaml.safe_dump(wrong))
        wrong, where = str(file), f"{where} ({file})"
    with pytest.raises(ConfigError) as raised:
        serving_args({"llm_configs": [wrong]})
    (problem,) = raised.value.problems
    assert problem.startswith(f"{where}.{path[0]}: {key!r} was dropped; {cure}")


@pytest.mark.parametrize("key", ["max_num_seq", "max_ongoing_request"])
def test_a_misspelt_key_is_no_dropped_one(key: str) -> None:
    holder = "engine_kwargs" if "seq" in key else "deployment_config"
    with pytest.raises(ConfigError) as raised:
        serving_args({"llm_configs": [put(entry(), (holder, key), 1)]})
    assert raised.value.problems == [
        f"llm_configs[0].{holder}: unknown key {key!r}; did you mean '{key}s'?"
    ]


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


def test_a_key_is_dropped_where_it_stood_and_unknown_elsewhere() -> None:
    assert "unknown key 'device'" in unknown_line("x", "device", ("max_ongoing_requests",))
