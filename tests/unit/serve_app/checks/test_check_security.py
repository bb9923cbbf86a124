"""``brimful check`` on the ``security`` block: keys are read where they are, and never shown."""

from typing import Any

import pytest

from tests.serve_configs import ARGS, PLACE, having

KEY = "sk-0123456789abcdef"
KEYS = f"{ARGS}.security.keys"
ENGINE = f"{PLACE}.engine_kwargs"


@pytest.fixture
def written(check, tmp_path):
    """What is found where this stands in the file of keys."""

    def written(text: str, classes: Any = None) -> tuple[Any, Any]:
        file = tmp_path / "keys"
        file.write_text(text)
        data = having("/args.security.keys", {"file": str(file)})
        found = check(having("classes", classes, data) if classes else data)
        assert KEY not in f"{found}"
        return found, file

    return written


@pytest.mark.parametrize("classes", [None, {"gold": {}}])
def test_a_sound_file_of_keys_says_nothing(written, classes) -> None:
    found, _ = written(f"alice {KEY} classes=gold", classes)
    assert found.problems == []
    assert not [note for note in found.notes if "keys" in note]


def test_a_mistake_in_it_is_named_without_what_stands_there(written) -> None:
    found, file = written(f"alice {KEY} and more")
    assert found.problems == [f"{KEYS}: {file}: line 1: has a key that is not known"]


def test_a_class_that_the_model_does_not_have_is_noted(written) -> None:
    found, file = written(f"alice {KEY} classes=gold,glod", {"gold": {}})
    note = f"{KEYS}: {file}: key 'alice' names classes that a model does not have: glod"
    assert note in found.notes


@pytest.mark.parametrize("source", [{"file": "/no/such/keys"}, {"env": "BRIMFUL_NO_SUCH_KEYS"}])
def test_keys_of_another_machine_are_not_looked_for(check, source) -> None:
    found = check(having("/args.security.keys", source))
    name = source.get("file") or "$BRIMFUL_NO_SUCH_KEYS"
    assert found.problems == []
    assert f"{KEYS}: {name} is not on this machine and was not checked" in found.notes


@pytest.mark.parametrize(
    ("path", "value", "begins"),
    [
        ("/args.security.keys", {"alice": KEY}, f"{KEYS}"),
        *[
            ("/args.security.keys", keys, f"{KEYS}: must be a mapping with `file` or `env`")
            for keys in (KEY, [KEY], {"file": "/k", "key": KEY}, {KEY: "env"})
        ],
        ("engine_kwargs.api_key", [KEY], f"{ENGINE}.api_key: is not allowed: Ray shows"),
    ],
)
def test_a_key_in_the_configuration_itself_is_refused_and_not_repeated(
    check, path, value, begins
) -> None:
    found = check(having(path, value))
    (problem,) = found.problems
    assert problem.startswith(begins)
    assert KEY not in f"{found}"


def test_a_models_own_code_runs_only_where_the_model_is_named(check) -> None:
    trusting = having("engine_kwargs.trust_remote_code", True)
    (problem,) = check(trusting).problems
    assert problem.startswith(f"{ENGINE}.trust_remote_code: runs code that comes with the model")
    assert problem.endswith("security: {trust_remote_code: [m]}")
    assert check(having("/args.security", {"trust_remote_code": ["m"]}, trusting)).problems == []


def test_a_log_with_prompts_in_it_is_noted(check) -> None:
    name = "VLLM_DEBUG_LOG_API_SERVER_RESPONSE"
    data = having("runtime_env.env_vars", {name: "1"})
    notes = check(having("engine_kwargs.enable_log_requests", True, data)).notes
    assert [n.partition(": ")[0] for n in notes if n.endswith("is written to the log")] == [
        f"{ENGINE}.enable_log_requests",
        f"{PLACE}.runtime_env.env_vars.{name}",
    ]
