"""What goes past the user's proxy."""

import os
import socket

import pytest
import requests

from replicas.server.proxies import go_past

HERE = "localhost,127.0.0.1,::1"


@pytest.mark.parametrize(
    ("address", "host"),
    [
        ("", ""),
        ("http://10.1.2.3:8265", ",10.1.2.3"),
        ("10.1.2.3:6379", ",10.1.2.3"),
        ("http://[fd00::1]:8265", ",fd00::1"),
        ("http://raycluster-head-svc:8265", ",raycluster-head-svc"),
        ("http://collector.tracing.svc.cluster.local:4318/v1/traces",
         ",collector.tracing.svc.cluster.local"),
        ("127.0.0.1:8265", ""),
        ("http://[::1", ""),
        # This machine, by the whole name that some have.
        ("http://node-1.example.com:8265", ",node-1.example.com"),
        # Elsewhere: the user's proxy may be the only way there.
        ("https://ray.example.com", ""),
        ("8.8.8.8:8265", ""),
    ],
)  # fmt: skip
def test_hosts_of_the_cluster_are_excepted_beside_the_users_own(
    dead_proxy: None, monkeypatch: pytest.MonkeyPatch, address: str, host: str
) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "Node-1.example.com")
    go_past(address)
    go_past(address)
    assert os.environ["no_proxy"] == os.environ["NO_PROXY"] == f"corp.example,{HERE}{host}"
    for url in ("http://127.0.0.1:1", "http://localhost:1"):
        assert not requests.utils.get_environ_proxies(url)
    assert requests.utils.get_environ_proxies("http://ray.example.com")["http"]


def test_a_user_without_any_proxied_host_keeps_that(
    dead_proxy: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("no_proxy", "*")
    go_past()
    assert os.environ["no_proxy"] == "*"
