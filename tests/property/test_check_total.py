"""``brimful check`` has an answer to whatever stands at whatever place of a file."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from serve_app.checks.beside import relation_problems
from serve_app.checks.clocks import Longest, route_clocks
from serve_app.checks.command import check_file
from serve_app.config import BLOCKS
from tests.property.strategies import examples
from tests.serve_configs import APP, DIRECT, ENTRY, HERE, put

pytestmark = pytest.mark.usefixtures("quick_pickle")
ROOT = Path(__file__).parents[2]
SERVE = yaml.safe_load((ROOT / "configs" / "h100.yaml").read_text())
MANIFEST = yaml.safe_load((ROOT / "k8s" / "base" / "rayservice.yaml").read_text())
# Overlays as kustomize rendered them.
OBJECTS: list[Any] = []
for name in ("gateway", "ha", "one-model", "upgrade"):
    text = (ROOT / "k8s" / "chart" / "overlays" / f"{name}.yaml").read_text()
    OBJECTS += [one for one in yaml.safe_load_all(text) if one["kind"] != "ConfigMap"]
SERVICE = {"name": "brimful-serve-svc", "port": {"number": 8000}}
PATHS = [{"backend": {"service": SERVICE}}]
OBJECTS += [
    {"kind": kind, "metadata": {"name": "llm", "annotations": annotations}, "spec": spec}
    for kind, annotations, spec in (
        (
            "Ingress",
            {"nginx.ingress.kubernetes.io/proxy-read-timeout": "60"},
            {"rules": [{"http": {"paths": PATHS}}]},
        ),
        ("VirtualService", {}, {"http": [{"timeout": "9s", "route": [{"destination": {}}]}]}),
        (
            "Service",
            {},
            {
                "selector": {"ray.io/node-type": "worker"},
                "ports": [{"port": 80, "targetPort": 8000}],
            },
        ),
    )
]

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
        ("limits", "max_n"),
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


# The manifests are all copied for each, and every object is held against all others.
@examples(0.1)
@given(place=st.sampled_from(list(places(OBJECTS))), value=values)
def test_any_value_anywhere_beside_a_rayservice_is_answered(place, value):
    objects = put(OBJECTS, place, value)

    mappings = [one for one in objects if isinstance(one, dict)]
    for one in mappings:
        list(relation_problems(one, mappings))
        list(route_clocks(one, mappings, Longest(9999, 50.0)))
