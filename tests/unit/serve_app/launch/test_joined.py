"""What a cluster that was joined lacks."""

from pathlib import Path

import pytest

from serve_app.environment import DIRECT_STREAMING, HA_PROXY, variables
from serve_app.launch.joined import Joined


def joined(**environments: dict[str, str]) -> Joined:
    return Joined("http://127.0.0.1:8265", Path("/logs"), environments)


def test_each_variable_is_named_with_the_nodes_and_what_it_means() -> None:
    without = {name: value for name, value in variables().items() if name != HA_PROXY}
    off = {**variables(), DIRECT_STREAMING: "0"}
    said = list(joined(a=variables(), b=without, c=off).lacking())
    assert [line.partition(":")[0] for line in said] == [
        f"{HA_PROXY}=1 is missing on b",
        f"{DIRECT_STREAMING}=1 is missing on c",
    ]
    assert "plain ingress" in said[0]
    assert len(list(joined(a={}).lacking())) == len(variables())


def test_a_check_goes_by_what_every_node_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(HA_PROXY, "1")  # of this terminal, not of the cluster
    monkeypatch.setenv("SOME_KEYS", "k")
    found = joined(a=variables(), b={DIRECT_STREAMING: "1"}).environment()
    assert HA_PROXY not in found
    assert found[DIRECT_STREAMING] == "1"
    assert found["SOME_KEYS"] == "k"
