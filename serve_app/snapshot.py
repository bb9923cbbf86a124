"""The state of a running cluster's batch controller, for ``status`` and ``explain``."""

import os
import socket
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, Literal

from controller.config import STALL_ITLS, BatchingConfig
from controller.errors import BrimfulError
from controller.models.histogram import LogHistogram
from controller.records import BatchLimits, EngineLimits, Reason, ReplicaReport

CONNECT_S = 5.0
ANSWER_S = 10.0

Control = Literal["on", "fallback", "off", "advice"]
"""Limits come from the controller; from the replica itself, as none reached it in time; they are
computed and not applied, as control is switched off; or the same by ``enforce: false``."""


ShownRole = Literal["mixed", "prefill", "to prefill", "leaving"]


@dataclass(frozen=True, slots=True)
class ReplicaStatus:
    """One replica's figures for people.

    Args:
        reported_s_ago: since its last report arrived.
        token_budget: None: as the engine was started.
        set_by: what set ``max_running``.
        itl_p50_ms, itl_p99_ms, itl_longest_ms, ttft_p99_ms: since the engine started; None before
            any token.
        stalls: gaps above 20 times the SLA since the engine started; None without an SLA.
        preempted, overruled, finished: counts since the engine started.
        capacity_per_s: requests/s it carries inside the SLA; None: unknown.
        busy_frac: the share of the last 10 s in which a step ran.
        config_refused: why its last ``user_config`` is not in force; None: it is.
        role: ``to prefill`` while ``controller.roles.keeps_itl``; ``leaving``: it is being
            removed; None: roles are not configured.
        for_others: prompts that it got from other replicas, since its engine started.
    """

    group: str
    policy: str
    replica: str
    reported_s_ago: float
    late: bool
    control: Control
    max_running: int
    token_budget: int | None
    set_by: Reason
    running: int
    waiting: int
    kv_frac: float
    itl_p50_ms: float | None
    itl_p99_ms: float | None
    itl_longest_ms: float | None
    stalls: int | None
    ttft_p99_ms: float | None
    preempted: int
    overruled: int
    finished: int
    arrivals_per_s: float
    capacity_per_s: float | None
    sla_out_of_reach: bool
    config_refused: str | None = None
    busy_frac: float = 0.0
    role: ShownRole | None = None
    for_others: int = 0


def replicas_of(snapshot: dict[str, Any]) -> list[ReplicaStatus]:
    """The replicas of ``BatchController.snapshot``, group by group, in order of their names."""
    return [
        _status(group, known["policy"], replica_id, replica)
        for group, known in sorted(snapshot["groups"].items())
        for replica_id, replica in sorted(known["replicas"].items())
    ]


def status_json(snapshot: dict[str, Any]) -> dict[str, Any]:
    """Version, start of the controller (Unix time), a flat object per replica, one for each whose
    report was refused, one for each engine that died in the last hour, one for each deployment that
    scales."""
    return {
        "version": snapshot["version"],
        "started_unix_s": snapshot["started_unix_s"],
        "replicas": [asdict(replica) for replica in replicas_of(snapshot)],
        "refused": snapshot["refused"],
        "deaths": snapshot.get("deaths", []),
        "scaling": [asdict(told) for told in snapshot["scaling"]],
    }


def switched_off(snapshot: dict[str, Any]) -> str | None:
    """The groups for which control is switched off, in a sentence; None: there is none."""
    groups = [name for name, known in snapshot["groups"].items() if not known["on"]]
    switches = snapshot["switches"]
    # There is no replica, and later ones will be without control.
    coming = not snapshot["groups"] and not all(s.enforce for s in switches if s.group is None)
    if not groups and not coming:
        return None
    of_all = len(groups) == len(snapshot["groups"])
    where = "all groups" if of_all else ", ".join(groups)
    return f"Control is switched off for {where}; `brimful enforce on` ends that."


def refused_lines(snapshot: dict[str, Any]) -> list[str]:
    """A sentence for each replica that refused its live configuration, or whose last report the
    controller refused."""
    live = [
        f"{replica.replica} of {replica.group}: its user_config is refused, the one before"
        f" stays in force: {replica.config_refused}"
        for replica in replicas_of(snapshot)
        if replica.config_refused is not None
    ]
    return live + [
        f"{one['replica']} of {one['group']}: its report was refused"
        f" {one['refused_s_ago']:.0f} s ago, it decides from its own measurements: {one['reason']}"
        for one in snapshot["refused"]
    ]


def death_lines(snapshot: dict[str, Any]) -> list[str]:
    """A sentence for each engine that died in the last hour."""
    return [
        f"{one['replica']} of {one['group']}: its engine died {one['died_s_ago']:.0f} s ago; of its"
        f" requests {_outcomes(one['outcomes'])}"
        for one in snapshot.get("deaths", ())
    ]


def _outcomes(counts: dict[str, int]) -> str:
    moved, moving = counts.get("moved", 0), counts.get("moving", 0)
    ended = sum(counts.values()) - moved - moving
    under_way = f", {moving} are on their way" if moving else ""
    return f"{moved} moved to other replicas, {ended} ended with an error{under_way}"


def stalls_of(report: ReplicaReport, batching: BatchingConfig) -> int | None:
    """Gaps that are stalls by the present SLA; None without ``itl_ms``."""
    stall_s = batching.sla.stall_s
    return None if stall_s is None else report.itl.above(stall_s)


def stalled(stalls: int, longest_s: float) -> str:
    """A sentence on the number of stalls and the longest one."""
    tokens = "1 token" if stalls == 1 else f"{stalls:,} tokens"
    return (
        f"Since its engine started, {tokens} came more than {STALL_ITLS} times the SLA after the"
        f" one before; the longest gap was {longest_s:.1f} s."
    )


def control_of(report: ReplicaReport, limits: BatchLimits) -> Control:
    """Which loop decides for the replica, and whether its limits are applied."""
    if not report.enforced:
        return "off" if limits.enforce else "advice"
    return "fallback" if report.mode == "fallback" else "on"


def _status(group: str, policy: str, replica_id: str, replica: dict[str, Any]) -> ReplicaStatus:
    report: ReplicaReport = replica["report"]
    limits: BatchLimits = replica["limits"]
    longest_s = report.itl.longest_s
    return ReplicaStatus(
        group=group,
        policy=policy,
        replica=replica_id,
        reported_s_ago=replica["age_s"],
        late=replica["age_s"] > limits.lease_s,
        control=control_of(report, limits),
        max_running=limits.max_running,
        token_budget=limits.token_budget,
        set_by=limits.reason,
        running=report.running,
        waiting=report.waiting,
        kv_frac=report.kv_frac,
        itl_p50_ms=_percentile_ms(report.itl, 50),
        itl_p99_ms=_percentile_ms(report.itl, 99),
        itl_longest_ms=None if longest_s is None else longest_s * 1000,
        stalls=stalls_of(report, replica["batching"]),
        ttft_p99_ms=_percentile_ms(report.ttft, 99),
        preempted=report.preemptions,
        overruled=report.overruled,
        finished=report.finished,
        arrivals_per_s=report.arrival_rate_per_s,
        capacity_per_s=limits.capacity_per_s,
        sla_out_of_reach=limits.sla_out_of_reach,
        config_refused=report.config_refused,
        busy_frac=report.busy_frac,
        role=role_of(report, limits),
        for_others=report.for_others,
    )


def role_of(report: ReplicaReport, limits: BatchLimits) -> ShownRole | None:
    """The role that a replica is in, or on its way to."""
    if report.leaving:
        return "leaving"
    if limits.role == "prefill" and report.role != "prefill":
        return "to prefill"
    return limits.role


def _percentile_ms(histogram: LogHistogram, percent: float) -> float | None:
    value_s = histogram.percentile_s(percent)
    return None if value_s is None else value_s * 1000


def engines_of(snapshot: dict[str, Any], group: str | None) -> dict[str, EngineLimits]:
    """Settings of the engines of a group, or of all, by replica.

    Raises:
        BrimfulError: there is no such group (names those that are there), or no replica.
    """
    groups = snapshot["groups"]
    if group is not None and group not in groups:
        raise BrimfulError(f"--group: {group!r} does not exist; {listed('groups', groups)}")
    found = {
        name: replica["report"].engine
        for of, known in groups.items()
        if group in (None, of)
        for name, replica in known["replicas"].items()
    }
    if not found:
        raise BrimfulError("no replica has reported yet")
    return found


def listed(what: str, names: Iterable[str]) -> str:
    """The existing names, in a clause."""
    told = ", ".join(sorted(names))
    return f"the {what} are: {told}" if told else f"there are no {what}"


def connect(address: str) -> None:
    """Join the Ray cluster at this address; ``auto`` is RAY_ADDRESS or the one on this machine.

    Raises:
        BrimfulError: there is none.
    """
    import ray

    if address == "auto":
        address = os.environ.get("RAY_ADDRESS") or "auto"
    if address == "local":
        raise BrimfulError("no Ray cluster answers at local: Ray would start one of its own")
    try:
        if not address.startswith("ray://"):
            _probe(address)
        ray.init(address=address, log_to_driver=False, logging_level="ERROR")
    except (ValueError, RuntimeError, OSError) as error:
        where = "on this machine" if address == "auto" else f"answers at {address}"
        raise BrimfulError(f"no Ray cluster {where}: {first_line(error)}") from None


def _probe(address: str) -> None:
    """Ray itself tries for two minutes if nothing listens, as after a cluster was killed."""
    from ray._private.services import canonicalize_bootstrap_address

    place = canonicalize_bootstrap_address(address)
    if place is not None:
        host, _, port = place.rpartition(":")
        socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_S).close()


def read_snapshot() -> dict[str, Any]:
    """``BatchController.snapshot`` of the cluster that ``connect`` joined, with ``scaling``: the
    last decision of every deployment that scales (``serve_app.scaling_export.Told``).

    Raises:
        BrimfulError: there is no controller of this version, or it does not answer.
    """
    import ray
    from ray.exceptions import RayError

    from controller.fleet.actor import find_controller
    from serve_app.scaling_export import read_told

    try:
        snapshot: dict[str, Any] = ray.get(find_controller().snapshot.remote(), timeout=ANSWER_S)
    except (RayError, RuntimeError, OSError, ValueError) as error:
        raise unanswered(error) from None
    return {**snapshot, "scaling": read_told()}


def unanswered(error: Exception) -> BrimfulError:
    """The message for an error of the controller."""
    if isinstance(error, TimeoutError):
        return BrimfulError(
            "the batch controller did not answer in time: it is busy or starting; replicas go on by"
            " themselves meanwhile"
        )
    if isinstance(error, ValueError):
        said = (
            f"no batch controller here: {first_line(error)}; the first replica starts one, and"
            " `serve status` says what that waits for"
        )
        return BrimfulError(said)
    return BrimfulError(
        f"the batch controller is gone for the moment ({type(error).__name__}); replicas go on by"
        " themselves, and Ray starts it again"
    )


def first_line(error: BaseException) -> str:
    """The first line of an error's message, or its kind if it has none."""
    return next((line for line in str(error).splitlines() if line), type(error).__name__)
