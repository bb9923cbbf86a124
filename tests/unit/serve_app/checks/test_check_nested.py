"""``brimful check`` inside the blocks that Ray's schemas take as plain mappings.

Ray looks into them only while it places a replica, fails, and tries again without end.
"""

import pytest

from controller.validation import join
from serve_app.checks.findings import Target
from tests.serve_configs import APP, ENTRY, config, put, refused

ARGS = "applications[0].args"
PLACE = f"{ARGS}.llm_configs[0]"
TEXT = "must be a string (quote it)"
PLACES = [
    ("runtime_env",),
    (*APP, "runtime_env"),
    (*ENTRY, "runtime_env"),
    (*ENTRY, "deployment_config", "ray_actor_options", "runtime_env"),
    (*APP, "args", "ingress_deployment_config", "ray_actor_options", "runtime_env"),
    (*APP, "deployments", 0, "ray_actor_options", "runtime_env"),
    ("controller_options", "runtime_env"),
]


@pytest.mark.parametrize("value", [1, True, 0.5, None], ids=str)
@pytest.mark.parametrize("path", PLACES[1:], ids=lambda path: ".".join(map(str, path)))
def test_a_variable_that_is_no_text_is_named_wherever_it_stands(check, path, value):
    data = put(config(), (*APP, "deployments"), [{"name": "BrimfulServer:m"}])
    found = check(put(data, path, {"env_vars": {"OMP_NUM_THREADS": value}})).problems
    place = f"{join('', path)}.env_vars.OMP_NUM_THREADS"
    assert [one for one in found if one.startswith(place)] == [refused(place, value, TEXT)]
    assert len(found) <= (2 if path[0] == "controller_options" else 1)


@pytest.mark.parametrize("path", PLACES[2:4], ids=lambda path: ".".join(map(str, path)))
@pytest.mark.parametrize(
    "block",
    [
        {"env_vars": {"OMP_NUM_THREADS": "1"}},
        {"pip": ["a==1"]},
        {"working_dir": "https://host/a.zip"},
        {"config": {"setup_timeout_seconds": 60}},
        {"image_uri": "rayproject/ray:2.60.0"},
    ],
    ids=str,
)
def test_what_ray_takes_passes(check, path, block):
    assert check(put(config(), path, block)).problems == []


NESTED = [
    ((*ENTRY, "runtime_env"), {"env_vars": ["A=1"]}, f"{PLACE}.runtime_env.env_vars: "),
    ((*ENTRY, "runtime_env"), {"pip": 3}, f"{PLACE}.runtime_env.pip: "),
    ((*ENTRY, "runtime_env"), {"pip": ["a"], "uv": ["b"]}, f"{PLACE}.runtime_env: ValueError: "),
    ((*ENTRY, "runtime_env"), {"working_dir": "./src"}, f"{PLACE}.runtime_env.working_dir: "),
    ((*ENTRY, "runtime_env"), {"py_modules": "a"}, f"{PLACE}.runtime_env.py_modules: "),
    (
        (*ENTRY, "runtime_env"),
        {"config": {"setup_timeout_seconds": "1"}},
        f"{PLACE}.runtime_env.config: TypeError: ",
    ),
    ((*ENTRY, "runtime_env"), {"py_executable": 3}, f"{PLACE}.runtime_env.py_executable: 3 is not"),
    (
        (*ENTRY, "deployment_config", "ray_actor_options", "resources"),
        {"fast_disk": "1"},
        refused(
            f"{PLACE}.deployment_config.ray_actor_options.resources.fast_disk",
            "1",
            "must be a number",
        ),
    ),
    (
        (*ENTRY, "deployment_config", "ray_actor_options", "resources"),
        {"GPU": 1},
        f"{PLACE}.deployment_config.ray_actor_options.resources: ValueError: Use the 'num_cpus'",
    ),
    (
        (*ENTRY, "deployment_config", "ray_actor_options", "num_gpus"),
        1.5,
        f"{PLACE}: a bundle of a replica's placement group comes to 2.5 GPUs, and vLLM takes",
    ),
    (
        (*ENTRY, "deployment_config", "max_replicas_per_node"),
        1000,
        f"{PLACE}.deployment_config: ValueError: Invalid max_replicas_per_node 1000.",
    ),
    (
        (*ENTRY, "placement_group_config"),
        {"bundle_per_worker": {"GPU": 1, "disk": "1"}},
        f"{PLACE}.placement_group_config.bundle_per_worker: Resource 'disk' must be a number",
    ),
    (
        (*APP, "deployments"),
        [{"name": "BrimfulServer:m", "placement_group_bundles": [{"CPU": 0}]}],
        "applications[0].deployments[0]: ValueError: Bundles cannot be an empty dictionary",
    ),
    (
        (*APP, "deployments"),
        [
            {
                "name": "BrimfulServer:m",
                "placement_group_bundles": [{"CPU": 1}],
                "placement_group_strategy": "STRICT",
            }
        ],
        "applications[0].deployments[0]: ValueError: Invalid placement group strategy STRICT.",
    ),
]


@pytest.mark.parametrize(
    ("path", "value", "begins"),
    NESTED,
    ids=lambda v: join("", v)[-40:] if isinstance(v, tuple) else "",
)
def test_what_ray_refuses_when_it_places_a_replica_is_named(check, path, value, begins):
    (problem,) = check(put(config(), path, value)).problems
    assert problem.startswith(begins)


def test_a_file_of_requirements_is_looked_for_only_where_it_is_to_be(check):
    data = put(config(), (*ENTRY, "runtime_env"), {"pip": "/no/requirements.txt"})
    (problem,) = check(data).problems
    assert problem.startswith(f"{PLACE}.runtime_env.pip: ")
    assert check(data, Target(env={}, local_paths=False)).problems == []
