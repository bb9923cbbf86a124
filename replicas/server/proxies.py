"""Calls to this machine and inside the cluster bypass the user's proxy."""

import ipaddress
import os
import socket
from urllib.parse import urlsplit
from urllib.request import getproxies_environment

NAMES = ("no_proxy", "NO_PROXY")  # libraries differ in which they read first
HERE = ("localhost", "127.0.0.1", "::1")
SERVICES = (".svc", ".local")  # of Kubernetes


def go_past(address: str = "") -> None:
    """Exclude this machine, and an address inside the cluster, from this process' proxy.

    Processes that it starts inherit that. Other addresses still use the proxy.

    Args:
        address: a URL, or HOST:PORT.
    """
    try:
        host = urlsplit(address if "://" in address else f"//{address}").hostname
    except ValueError:  # the caller of the address reports it
        host = None
    if not getproxies_environment():
        return
    given = [one.strip() for name in NAMES for one in os.environ.get(name, "").split(",")]
    if "*" in given:
        return
    wanted = [*given, *HERE, *([host] if host and _is_inside(host) else [])]
    os.environ.update(dict.fromkeys(NAMES, ",".join(filter(None, dict.fromkeys(wanted)))))


def _is_inside(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_private
    except ValueError:
        return "." not in host or host.endswith(SERVICES) or host == socket.gethostname().lower()
