"""Ports of clusters that share a machine."""

from itertools import pairwise

from serve_app.launch.local_cluster import LAST_PORT, SERVE_PORTS, serve_ports


def test_no_port_of_ray_serve_is_that_of_another_cluster_on_this_machine() -> None:
    marks, blocks = zip(*(serve_ports() for _ in range(3)), strict=True)
    spans = sorted(
        (min(int(block[name]) for name in SERVE_PORTS), int(block[LAST_PORT])) for block in blocks
    )
    assert all(last < first for (_, last), (first, _) in pairwise(spans))
    for mark in marks:
        mark.close()
    again, block = serve_ports()
    assert block in blocks
    again.close()
