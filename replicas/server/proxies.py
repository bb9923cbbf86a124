"""Calls to this machine, and to others of a cluster, go past the user's proxy."""

import ipaddress
import os
import socket
from urllib.parse import urlsplit
from urllib.request import getproxies_environment

NAMES = ("no_proxy", "NO_PROXY")  # each library reads one of them first
HERE = ("localhost", "127.0.0.1", "::1")
SERVICES = (".svc", ".local")  # of Kubernetes


def go_past(address: str = "") -> None:
    """Take this machine, and an address in a cluster, from what this process asks a proxy for.

    So it does for processes that are started from here on. Addresses elsewhere stay the proxy's.

    Args:
        address: a URL, or HOST:PORT.
    """
    try:
        host = urlsplit(address if "://" in address else f"//{address}").hostname
    except ValueError:  # who asks there says what is wrong with it
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
