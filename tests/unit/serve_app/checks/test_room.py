"""Replicas that the nodes of a cluster that runs can never hold."""

import pytest

from serve_app.checks.findings import Target
from serve_app.launch.local_cluster import this_machine
from tests.serve_configs import having

APP = "applications[0]"
ASKS = f"{APP}: a replica of BrimfulServer:m asks for"
CPUS, CARD = {"CPU": 2.0}, {"CPU": 8.0, "GPU": 1.0, "accelerator_type:L4": 1.0}
TWO = {"num_replicas": 2, "autoscaling_config": None}


def at(*nodes, grows=False):
    return Target(env={}, local_paths=False, nodes=nodes, grows=grows)


def entry(**keys):
    data = None
    for key, value in keys.items():
        data = having(key, value, data)
    return having("model_loading_config.model_id", "m", data)


@pytest.mark.parametrize(
    ("keys", "nodes", "says"),
    [
        ({}, [CPUS, CPUS], f"{ASKS} 1 CPU and 1 GPU on one node; the nodes have 2 CPU and 0 GPU"),
        ({}, [CPUS, CARD], None),
        ({"accelerator_type": "L4"}, [CARD], None),
        ({"accelerator_type": "H100"}, [CARD], "0 accelerator_type:H100"),
        ({"engine_kwargs": {"tensor_parallel_size": 2}}, [CARD], "2 GPU; all nodes together can"),
        ({"engine_kwargs": {"tensor_parallel_size": 2}}, [CARD, CARD], None),
        ({"deployment_config": TWO}, [CARD], "applications: the replicas at least ask for 2 GPU"),
        ({"accelerator_config": {"kind": "cpu"}}, [CPUS], None),
    ],
    ids=str,
)  # fmt: skip
def test_what_no_node_can_hold_is_refused(check, keys, nodes, says):
    keys = {"batching.max_running": {}, **keys}
    findings = check(entry(**keys), at(*nodes))
    if says is None:
        assert findings.problems == []
    else:
        (problem,) = findings.problems
        assert says in problem


def test_where_an_autoscaler_adds_nodes_it_is_a_note(check):
    findings = check(entry(), at(CPUS, grows=True))
    assert findings.problems == []
    (note,) = [one for one in findings.notes if one.startswith(ASKS)]
    assert note.endswith("until the autoscaler adds to them")


def test_this_machine_has_what_ray_would_count(monkeypatch):
    assert this_machine()["CPU"] >= 1
    monkeypatch.setenv("RAY_OVERRIDE_RESOURCES", '{"GPU": 3}')
    assert this_machine()["GPU"] == 3
