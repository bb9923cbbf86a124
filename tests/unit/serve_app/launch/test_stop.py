"""Which applications ``brimful stop`` removes."""

import pytest

from controller.errors import BrimfulError
from serve_app.launch.stop import chosen, ours

RUNNING = {
    "llm": {"deployed_app_config": {"import_path": "serve_app.build.build_app"}},
    "console": {"deployed_app_config": {"import_path": "serve_app.console:build"}},
    "batches": {"deployed_app_config": {"import_path": "serve_app.batches:build"}},
    "theirs": {"deployed_app_config": {"import_path": "somebody:app"}},
    "from_code": {"deployed_app_config": None, "deployments": {"BrimfulServer:m": {}}},
}


def test_those_of_this_project_where_none_is_named() -> None:
    assert ours(RUNNING) == chosen([], RUNNING) == ["llm", "console", "batches"]
    assert chosen(["llm"], RUNNING) == ["llm"]


def test_a_name_that_is_not_there_is_told_with_those_that_are() -> None:
    with pytest.raises(BrimfulError, match=r"theirs, no: .*running: llm, console, batches$"):
        chosen(["theirs", "no"], RUNNING)
