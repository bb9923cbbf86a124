"""``brimful apply FILE``: apply a changed Serve config, without new replicas if possible."""

import argparse
import os
from pathlib import Path
from typing import Any

import yaml

from controller.errors import BrimfulError, ConfigError
from controller.validation import join
from replicas.door.settings import parse_security
from serve_app.apply.changes import Changes, changes, is_model
from serve_app.apply.cluster import Cluster, beside
from serve_app.checks.findings import Findings
from serve_app.checks.quick import live_problems, quick_check
from serve_app.config import DRAIN_TIMEOUT_S, SECURITY
from serve_app.source import parse_documents, read_documents

Data = dict[str, Any]
START_S = 600.0  # longest start of a replica; it begins when the old replica has ended its streams
DASHBOARD = "http://127.0.0.1:8265"
ABOUT = (
    "Change running applications as a Serve configuration says. `serve deploy` restarts every"
    " replica of an application after any change of its args. This command sends what running"
    " replicas can take over (SLA, bounds, classes, admission, security, number of replicas)"
    " as `deployments`, leaves the args as they are, and says what needs new replicas."
    " Applications that the file does not name stay."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``brimful apply``."""
    parser.description = ABOUT
    parser.add_argument(
        "file", type=Path, metavar="FILE", help="Serve configuration or RayService manifest"
    )
    parser.add_argument(
        "--address",
        default=os.environ.get("RAY_DASHBOARD_ADDRESS", DASHBOARD),
        metavar="URL",
        help=f"address of Ray's dashboard (default: RAY_DASHBOARD_ADDRESS, else {DASHBOARD})",
    )
    parser.add_argument("--dry-run", action="store_true", help="print the changes, send none")
    parser.add_argument(
        "--restart", action="store_true", help="also make changes that restart every replica"
    )


def run(args: argparse.Namespace) -> int:
    """Say what changes, send it, and wait until it runs.

    Raises:
        BrimfulError: there is no cluster, new replicas are needed without ``--restart``, or
            Serve refuses it.
    """
    config, operators = read_config(args.file)
    cluster = Cluster(args.address)
    running = cluster.applications()
    found = plan(config, running)
    for name, one in found.items():
        for line in one.live:
            print(f"{name}: live: {line}")
        for line in one.restarts:
            print(f"{name}: new replicas: {line}")
    if not any(one.live or one.restarts for one in found.values()):
        print("nothing to change")
        return 0
    restarts = [name for name, one in found.items() if one.restarts]
    if operators or cluster.by_kuberay():
        print(block(config, found))
        return 0
    if args.dry_run:
        return 0
    if restarts and not args.restart:
        raise BrimfulError("\n".join(offers(restarts, found, running)))
    wanted = {name: target(config, one, name) for name, one in found.items()}
    cluster.put({**config, "applications": beside(running, wanted)})
    cluster.wait(list(found), DRAIN_TIMEOUT_S + START_S)
    print("done; `brimful status` names replicas that refuse their configuration")
    return 0


def read_config(path: Path) -> tuple[Data, bool]:
    """The Serve configuration of a file, and whether a RayService holds it.

    Raises:
        ConfigError: with what `brimful check --quick` finds.
    """
    documents = read_documents(path)
    findings = Findings()
    quick_check(documents, findings)
    if findings.problems:
        raise ConfigError([f"{path}: {problem}" for problem in findings.problems])
    services = [d for d in documents if isinstance(d, dict) and d.get("kind") == "RayService"]
    config = documents[0]
    if services:
        config = parse_documents(services[0]["spec"]["serveConfigV2"])[0]
    if not isinstance(config, dict) or not isinstance(config.get("applications"), list):
        raise ConfigError([f"{path}: applications: required key is missing"])
    return config, bool(services)


def plan(config: Data, running: dict[str, Data]) -> dict[str, Changes]:
    """What changes in each application of ``config``, by its name.

    Raises:
        ConfigError: running replicas would refuse it.
    """
    found, problems = {}, []
    for index, wanted in enumerate(config["applications"]):
        name = wanted.get("name", "default")
        told = running.get(name) or {}
        deployed = told.get("deployed_app_config")
        if deployed is None:
            found[name] = Changes(wanted, live=["is new"])
            continue
        # Serve copies a logging_config next to the applications into each that has none.
        logs = {key: config[key] for key in ("logging_config",) if key in config}
        one = changes(deployed, logs | wanted, told.get("deployments") or {})
        found[name] = one
        security = parse_security((deployed.get("args") or {}).get(SECURITY))
        for deployment, entry, override in one.overrides:
            place = f"{join('applications', [index])}: {deployment}"
            problems += live_problems(override.get("user_config"), entry, security, place, override)
    if problems:
        raise ConfigError(problems)
    return found


def target(config: Data, one: Changes, name: str) -> Data:
    """What to send for an application: the running one with overrides, or else the file's."""
    wanted = next(a for a in config["applications"] if a.get("name", "default") == name)
    return wanted if one.restarts else one.application


def offers(restarts: list[str], found: dict[str, Changes], running: dict[str, Data]) -> list[str]:
    """Why nothing was sent, and what to do."""
    lines = [
        f"nothing was sent: {', '.join(restarts)} would restart every replica, one after"
        " another; the line `Replica started in` of a replica's log says how long a start takes"
    ]
    if any(found[name].gone for name in restarts):
        lines.append(
            "a model of another name is another deployment, and all replicas of the old one"
            " stop at once. Deploy the new one first, as an application of its own, then"
            " remove the old one"
        )
    single = [n for n in restarts if not found[n].gone and _single(running[n])]
    if single:
        lines.append(
            f"{', '.join(single)} has one replica, so no replica answers meanwhile. If there is"
            " room for two: first apply the running file with deployments: [{name: NAME,"
            " num_replicas: 2, autoscaling_config: null}], then this file with the same block"
            " and --restart, then this file as it is"
        )
    return [*lines, "--restart sends it all the same, as `serve deploy` would"]


def _single(application: Data) -> list[str]:
    """The models of an application that have one replica."""
    told = application.get("deployments") or {}
    return [n for n, d in told.items() if is_model(n) and d.get("target_num_replicas") == 1]


def block(config: Data, found: dict[str, Changes]) -> str:
    """What to put into the RayService: only its operator writes Serve's configuration."""
    listed = [target(config, one, name) for name, one in found.items()]
    whole = {**config, "applications": listed}
    text = yaml.safe_dump(whole, sort_keys=False, width=100)
    inner = "".join(f"    {line}\n" for line in text.splitlines())
    return (
        "KubeRay's operator owns this configuration, and would undo a change from here. Put"
        f" this into the RayService, and apply that:\n\nspec:\n  serveConfigV2: |\n{inner}"
    )
