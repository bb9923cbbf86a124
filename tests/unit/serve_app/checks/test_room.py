"""Replicas that the nodes of a cluster that runs can never hold."""

import pytest

from serve_app.checks.findings import Target
from tests.serve_configs import having

ASKS = "applications[0]: a replica of BrimfulServer:m asks for"
CPUS, CARD = {"CPU": 2.0}, {"CPU": 8.0, "GPU": 1.0, "accelerator_type:L4": 1.0}
TENSOR = {"engine_kwargs": {"tensor_parallel_size": 2}}


@pytest.mark.parametrize(
    ("keys", "nodes", "says"),
    [
        ({}, [CPUS, CPUS], f"{ASKS} 1 GPU of 0 in all nodes"),
        ({}, [CPUS, CARD], None),
        ({"accelerator_type": "L4"}, [CARD], None),
        ({"accelerator_type": "H100"}, [CARD], f"{ASKS} 0.001 accelerator_type:H100 of 0"),
        (TENSOR, [CARD], f"{ASKS} 2 GPU of 1 in all nodes"),
        (TENSOR, [CARD, CARD], None),
        ({"deployment_config": {"num_replicas": 2}}, [CARD], "the replicas ask for at least 2 GPU"),
        ({"accelerator_config": {"kind": "cpu"}}, [CPUS], None),
    ],
    ids=str,
)  # fmt: skip
def test_what_no_node_can_hold_is_refused(check, keys, nodes, says):
    data = having("scaling", None, having("batching.max_running", {}))
    for key, value in keys.items():
        data = having(key, value, data)
    problems = check(data, Target(env={}, local_paths=False, nodes=nodes)).problems
    assert [one.startswith(says or "-") for one in problems] == ([True] if says else [])
    grown = check(data, Target(env={}, local_paths=False, nodes=nodes, grows=True))
    told = [f"{one}, until the autoscaler adds to them" for one in problems]
    assert (grown.problems, grown.notes) == ([], told)
