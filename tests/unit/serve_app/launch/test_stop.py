"""Which applications ``brimful stop`` removes."""

import pytest

from controller.errors import BrimfulError
from serve_app.launch.stop import chosen, ours, perhaps_ours

RUNNING = {
    "llm": {"deployed_app_config": {"import_path": "serve_app.build.build_app"}},
    "console": {"deployed_app_config": {"import_path": "serve_app.console:build"}},
    "batches": {"deployed_app_config": {"import_path": "serve_app.batches:build"}},
    "theirs": {"deployed_app_config": {"import_path": "somebody:app"}},
    "by_hand": {"deployed_app_config": None, "deployments": {"Model": {}}},
    "from_code": {"deployed_app_config": None, "deployments": {"BrimfulServer:m": {}}},
    "apart": {"deployed_app_config": None, "deployments": {"Prefill:m": {}, "Decode:m": {}}},
}


def test_those_of_this_project_where_none_is_named() -> None:
    assert ours(RUNNING) == chosen([], RUNNING) == ["llm", "console", "batches", "from_code"]
    assert chosen(["llm"], RUNNING) == ["llm"]


def test_a_name_that_is_not_there_is_told_with_those_that_are() -> None:
    with pytest.raises(
        BrimfulError, match=r"theirs, no: .*running: llm, console, batches, from_code$"
    ):
        chosen(["theirs", "no"], RUNNING)


def test_prefill_and_decode_from_code_may_be_rays_own_and_are_removed_by_name_alone() -> None:
    assert perhaps_ours(RUNNING) == chosen(["apart"], RUNNING) == ["apart"]
    assert "apart" not in chosen([], RUNNING)
