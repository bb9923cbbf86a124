"""``brimful check`` has an answer to whatever stands at whatever place of a file."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from serve_app.checks.command import check_file
from serve_app.config import BLOCKS
from tests.property.strategies import examples
from tests.serve_configs import APP, DIRECT, ENTRY, HERE, put

pytestmark = pytest.mark.usefixtures("quick_pickle")
ROOT = Path(__file__).parents[2]
SERVE = yaml.safe_load((ROOT / "configs" / "h100.yaml").read_text())
MANIFEST = yaml.safe_load((ROOT / "k8s" / "base" / "rayservice.yaml").read_text())

# What the shipped file leaves out, and code looks into.
SECURITY = (*APP, "args", "security")
ABSENT = [
    (*ENTRY, *path)
    for path in (
        ("engine_kwargs", "additional_config"),
        ("engine_kwargs", "kv_transfer_config"),
        ("engine_kwargs", "speculative_config"),
        ("deployment_config", "user_config"),
        ("deployment_config", "request_router_config"),
        ("callback_config",),
        ("placement_group_config",),
        ("runtime_env",),
        ("runtime_env", "env_vars"),
        *((block,) for block in BLOCKS),
    )
]
ABSENT.append((*APP, "deployments"))
ABSENT += [
    (*SECURITY, *path)
    for path in (
        (),
        ("keys",),
        ("keys", "file"),
        ("extra_paths",),
        ("limits",),
        ("limits", "max_sequences"),
    )
]

scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=4,
)


def places(data: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if path:
        yield path
    if isinstance(data, dict | list):
        for key, value in data.items() if isinstance(data, dict) else enumerate(data):
            yield from places(value, (*path, key))


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("check") / "file.yaml"


@examples(0.1)
@given(
    place=st.sampled_from([*places(SERVE), *ABSENT]),
    value=values,
    target=st.sampled_from([HERE, DIRECT]),
)
def test_any_value_anywhere_in_a_serve_config_is_answered(path, place, value, target):
    path.write_text(yaml.safe_dump(put(SERVE, place, value)))

    found = check_file(path, target)

    assert found.problems or found.summary or found.notes
    assert len(set(found.problems)) == len(found.problems)


@examples(0.07)
@given(place=st.sampled_from(list(places(MANIFEST))), value=values)
def test_any_value_anywhere_in_a_manifest_is_answered(path, place, value):
    path.write_text(yaml.safe_dump(put(MANIFEST, place, value)))

    found = check_file(path, HERE)

    assert found.problems or found.summary or found.notes
