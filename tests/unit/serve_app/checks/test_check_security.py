"""``brimful check`` on the ``security`` block: keys are read where they are, and never shown."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from serve_app.checks.command import check_file
from serve_app.checks.findings import Findings
from tests.serve_configs import APP, ENTRY, HERE, config, put

KEY = "sk-0123456789abcdef"
SECURITY = (*APP, "args", "security")
PLACE = "applications[0].args.security.keys"


def found(tmp_path: Path, block: Any, classes: Any = None) -> Findings:
    data = put(config(), SECURITY, block)
    if classes is not None:
        data = put(data, (*ENTRY, "classes"), classes)
    path = tmp_path / "serve.yaml"
    path.write_text(yaml.safe_dump(data))
    return check_file(path, HERE)


def test_a_sound_file_of_keys_says_nothing(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text(f"alice {KEY} classes=gold")
    for classes in (None, {"gold": {}}):
        told = found(tmp_path, {"keys": {"file": str(keys)}}, classes)
        assert told.problems == []
        assert not [note for note in told.notes if "keys" in note]


def test_a_mistake_in_it_is_named_without_what_stands_there(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text(f"alice {KEY} and more")
    told = found(tmp_path, {"keys": {"file": str(keys)}})
    assert told.problems == [f"{PLACE}: {keys}: line 1: has a key that is not known"]
    assert KEY not in f"{told}"


def test_a_class_that_the_model_does_not_have_is_noted(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text(f"alice {KEY} classes=gold,glod")
    told = found(tmp_path, {"keys": {"file": str(keys)}}, {"gold": {}})
    note = f"{PLACE}: {keys}: key 'alice' names classes that a model does not have: glod"
    assert note in told.notes


@pytest.mark.parametrize("source", [{"file": "/no/such/keys"}, {"env": "BRIMFUL_NO_SUCH_KEYS"}])
def test_keys_of_another_machine_are_not_looked_for(tmp_path: Path, source: Any) -> None:
    told = found(tmp_path, {"keys": source})
    place = source.get("file") or "$BRIMFUL_NO_SUCH_KEYS"
    assert told.problems == []
    assert f"{PLACE}: {place} is not on this machine and was not checked" in told.notes


def test_keys_in_the_configuration_itself_are_refused_and_not_repeated(tmp_path: Path) -> None:
    told = found(tmp_path, {"keys": {"alice": KEY}})
    assert told.problems
    assert KEY not in f"{told}"


ENGINE = f"{PLACE.removesuffix('.security.keys')}.llm_configs[0].engine_kwargs"


def test_a_models_own_code_runs_only_where_the_model_is_named(tmp_path: Path) -> None:
    trusting = put(config(), (*ENTRY, "engine_kwargs", "trust_remote_code"), True)
    path = tmp_path / "serve.yaml"
    path.write_text(yaml.safe_dump(trusting))
    (problem,) = check_file(path, HERE).problems
    assert problem.startswith(f"{ENGINE}.trust_remote_code: runs code that comes with the model")
    assert problem.endswith("security: {trust_remote_code: [m]}")
    path.write_text(yaml.safe_dump(put(trusting, SECURITY, {"trust_remote_code": ["m"]})))
    assert check_file(path, HERE).problems == []


def test_vllms_own_key_is_refused_and_not_repeated(tmp_path: Path) -> None:
    path = tmp_path / "serve.yaml"
    path.write_text(yaml.safe_dump(put(config(), (*ENTRY, "engine_kwargs", "api_key"), [KEY])))
    told = check_file(path, HERE)
    (problem,) = told.problems
    assert problem.startswith(f"{ENGINE}.api_key: is not allowed: Ray shows")
    assert KEY not in f"{told}"


@pytest.mark.parametrize("keys", [KEY, [KEY], {"file": "/k", "key": KEY}, {KEY: "env"}])
def test_a_key_in_the_place_of_a_file_is_not_repeated(tmp_path: Path, keys: Any) -> None:
    told = found(tmp_path, {"keys": keys})
    (problem,) = told.problems
    assert problem.startswith(f"{PLACE}: must be a mapping with `file` or `env`")
    assert KEY not in f"{told}"


def test_a_log_with_prompts_in_it_is_noted(tmp_path: Path) -> None:
    data = put(config(), (*ENTRY, "engine_kwargs", "enable_log_requests"), True)
    name = "VLLM_DEBUG_LOG_API_SERVER_RESPONSE"
    path = tmp_path / "serve.yaml"
    path.write_text(yaml.safe_dump(put(data, (*ENTRY, "runtime_env", "env_vars"), {name: "1"})))
    notes = [n for n in check_file(path, HERE).notes if n.endswith("is written to the log")]
    entry = ENGINE.removesuffix(".engine_kwargs")
    assert [note.partition(": ")[0] for note in notes] == [
        f"{ENGINE}.enable_log_requests",
        f"{entry}.runtime_env.env_vars.{name}",
    ]
