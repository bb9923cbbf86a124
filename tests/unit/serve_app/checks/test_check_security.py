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
