"""The central Ray actor: named, detached, restarted without limit, with soft state only.

It outlives every application, so a new deployment may bring replicas of another release. The
actor's name contains the version: replicas of each version have their own controller, which serves
them while they exist. A controller without reports ends itself.
"""

import contextlib
import json
import logging
import threading
import time
from typing import Any

import ray
from ray.actor import ActorHandle
from ray.experimental.internal_kv import _internal_kv_get, _internal_kv_put
from ray.util import list_named_actors
from ray.util.metrics import Counter, Gauge

from controller import metrics
from controller.config import BatchingConfig, parse_batching
from controller.fleet.engine_deaths import EngineDeaths
from controller.fleet.loop import ControlLoop
from controller.fleet.packed_snapshot import packed_snapshot_of
from controller.fleet.refusals import Refusals
from controller.records import ReplicaReport, from_wire, to_wire
from controller.switch import Switch, Switches, merged, newest
from controller.version import VERSION, check_version

PREFIX = "brimful-controller-"
NAME = PREFIX + VERSION
NAMESPACE = "brimful"
KEPT = "brimful-switches"  # key in the cluster's store
COUNT_S = 5.0  # between two counts of the replicas
# As for Ray Serve's controller: nodes with an actor are not given back. (With a soft affinity to
# the head, an actor without resources is put on the node of the replica that asks.)
ON_HEAD = {"node:__internal_head__": 0.001}
UNUSED_S = 600.0  # ten times the longest lease; a later replica starts a new controller

logger = logging.getLogger(__name__)


class BatchController:
    """A ``ControlLoop`` behind an actor's name. Arguments and results are dicts of primitives.

    Args:
        ends_after_s: the actor ends itself after this time without a report; None: never.
    """

    def __init__(self, ends_after_s: float | None = None) -> None:
        self._loop = ControlLoop()
        self._refusals = Refusals()
        self._configs: dict[str, BatchingConfig] = {}
        self._metrics = _Metrics()
        self._deaths = EngineDeaths(
            Counter(*metrics.ENGINE_DEATHS.args).inc,
            Counter(*metrics.FAILOVERS.args).inc,
            Counter(*metrics.FAILOVER_GAP.args).inc,
        )
        self._said_slower = 1.0
        self._started_unix_s = time.time()
        self._reported_s = self._started_s = time.monotonic()
        if ends_after_s is not None:
            threading.Thread(target=self._end_unused, args=(ends_after_s,), daemon=True).start()
        if ray.is_initialized():  # a new deployment or a pause must not switch control on again
            self._loop.learn_switches(kept_switches())
        logger.info("Batch controller %s started.", VERSION)

    def exchange(self, report: dict[str, Any], batching: dict[str, Any]) -> dict[str, Any]:
        """Take a ``ReplicaReport`` and its group's batching block; returns ``BatchLimits``.

        Raises:
            ReportError: the replica has another version; see also ``ControlLoop.exchange``.
            ConfigError: see ``ControlLoop.exchange``.
        """
        now_s = time.monotonic()
        try:
            check_version(report)
            self._reported_s = now_s
            taken = from_wire(ReplicaReport, report)
            answer = self._loop.exchange(taken, self._config(batching), now_s)
        except Exception as error:
            self._refusals.refused(report, error, now_s)
            self._metrics.refused.inc()
            raise
        self._refusals.accepted(taken.group, taken.replica_id)
        self._metrics.exchanged(self._loop, now_s)
        self._say_slower()
        return to_wire(answer)

    def snapshot(self) -> dict[str, Any]:
        """``ControlLoop.snapshot``, with ``version``, start of this process (Unix time), and the
        replicas whose reports were ``refused`` (``Refusals.snapshot``)."""
        now_s = time.monotonic()
        return {
            "version": VERSION,
            "started_unix_s": self._started_unix_s,
            **self._loop.snapshot(now_s),
            "refused": self._refusals.snapshot(now_s),
            "deaths": self._deaths.snapshot(now_s),
        }

    def engine_died(self, told: dict[str, Any]) -> None:
        """Count a dead engine and the outcomes of its requests (``EngineDeaths.told``)."""
        self._deaths.told(told, time.monotonic())

    def packed_snapshot(self) -> dict[str, Any]:
        """``snapshot`` as plain tuples, for frequent readers (``packed_snapshot.opened``)."""
        return packed_snapshot_of(self.snapshot())

    def switch(self, enforce: bool, group: str | None) -> dict[str, Any]:
        """Switch control off or on, for one group or all (None); replicas see the switch when they
        report.

        Returns:
            The new ``Switch``, wire form.
        """
        made = self._loop.switch(enforce=enforce, group=group, unix_s=time.time())
        if ray.is_initialized():
            keep_switches(self._loop.switches)
        logger.warning(
            "Control is switched %s for %s.",
            "on" if enforce else "off",
            "all groups" if group is None else f"group {group}",
        )
        return to_wire(made)

    def switches(self) -> dict[str, Any]:
        """How control is switched, and which switch each replica applies.

        Primitives alone, for code of any version.

        Returns:
            ``up_s``, the age of this process; ``switches``, oldest first, in wire form;
            ``replicas``, each with ``group``, ``replica``, ``age_s`` since its last report,
            ``epoch_ms`` of its switch (0: none), ``enforced`` (whether its limits are applied) and
            ``configured`` (whether they are while control is on); and ``refused``: replicas whose
            last report was refused (``Refusals.snapshot``), which get no answer.
        """
        now_s = time.monotonic()
        known = self._loop.snapshot(now_s)
        return {
            "up_s": now_s - self._started_s,
            "switches": [to_wire(switch) for switch in known["switches"]],
            "replicas": [
                _taken_over(group, replica_id, replica)
                for group, members in known["groups"].items()
                for replica_id, replica in members["replicas"].items()
            ],
            "refused": self._refusals.snapshot(now_s),
        }

    def _say_slower(self) -> None:
        slower = self._loop.slower
        if (slower > 1) != (self._said_slower > 1) or slower > 2 * self._said_slower:
            replicas = sum(self._loop.sizes().values())
            logger.warning(
                "%d replicas report to this controller: period and lease are %.1f times what is"
                " configured.",
                replicas,
                slower,
            )
            self._said_slower = slower

    def _config(self, batching: dict[str, Any]) -> BatchingConfig:
        # Parsing takes longer than the rest of a sync.
        text = repr(batching)
        if text not in self._configs:
            parsed, used = parse_batching(batching), self._loop.configs()
            self._configs = {t: c for t, c in self._configs.items() if c in used}
            self._configs[text] = parsed
        return self._configs[text]

    def _end_unused(self, after_s: float) -> None:
        while (left_s := self._reported_s + after_s - time.monotonic()) > 0:
            time.sleep(left_s)
        logger.info("No replica reported for %.0f s; the batch controller ends.", after_s)
        while True:
            try:
                ray.kill(ray.get_runtime_context().current_actor, no_restart=True)
            except Exception:  # the cluster's store is unavailable for a moment
                logger.exception("The batch controller could not end, and tries again.")
            time.sleep(after_s)


class _Metrics:
    """The controller's metrics for Prometheus."""

    def __init__(self) -> None:
        self.refused = Counter(*metrics.REFUSED_REPORTS.args)
        self._exchanges = Counter(*metrics.EXCHANGES.args)
        self._replicas = Gauge(*metrics.CONTROLLER_REPLICAS.args)
        self._counted_s = float("-inf")
        self._groups: set[str] = set()

    def exchanged(self, loop: ControlLoop, now_s: float) -> None:
        """Count an answered report; replicas are counted every few seconds."""
        self._exchanges.inc()
        if now_s < self._counted_s + COUNT_S:
            return
        sizes, self._counted_s = loop.sizes(), now_s
        for group in self._groups | sizes.keys():  # a group that is gone is set to 0 once
            self._replicas.set(sizes.get(group, 0), {"group": group})
        self._groups = set(sizes)


def _taken_over(group: str, replica_id: str, replica: dict[str, Any]) -> dict[str, Any]:
    report: ReplicaReport = replica["report"]
    switch = newest(report.switches, group)
    return {
        "group": group,
        "replica": replica_id,
        "age_s": replica["age_s"],
        "epoch_ms": switch.epoch_ms if switch else 0,
        "enforced": report.enforced,
        "configured": replica["limits"].enforce,
    }


def kept_switches() -> Switches:
    """The switches in the cluster's store, which outlives every controller."""
    try:
        kept = _internal_kv_get(KEPT, namespace=NAMESPACE)
        return tuple(from_wire(Switch, one) for one in json.loads(kept)) if kept else ()
    except Exception:  # other code, or no store: replicas bring theirs
        logger.exception("The saved switches could not be read.")
        return ()


def keep_switches(switches: Switches) -> None:
    """Write them to the cluster's store, which exists as long as the cluster."""
    together = merged(kept_switches(), switches)  # a controller of other code may write, too
    try:
        _internal_kv_put(KEPT, json.dumps([to_wire(s) for s in together]), namespace=NAMESPACE)
    except Exception:
        logger.exception("The switches could not be saved: they are lost if the controller ends.")


def get_controller(ends_after_s: float = UNUSED_S) -> ActorHandle:
    """The cluster's batch controller of this version; the first call starts it.

    It takes no CPU from replicas, outlives every application (detached), and Ray restarts it if it
    dies.
    """
    remote = ray.remote(BatchController)
    return remote.options(
        name=NAME,
        namespace=NAMESPACE,
        get_if_exists=True,
        lifetime="detached",
        max_restarts=-1,
        num_cpus=0,
        resources=ON_HEAD,
        # Explicit: otherwise it would join the placement group of the first replica that asked, and
        # could not restart once that replica is gone.
        scheduling_strategy="DEFAULT",
    ).remote(ends_after_s)


def find_controller() -> ActorHandle:
    """The running controller of this version.

    Raises:
        ValueError: there is none; names the running versions.
    """
    running = running_versions()
    if VERSION not in running:
        others = f"; running: {', '.join(running)}" if running else ""
        raise ValueError(f"none of version {VERSION}{others}")
    return ray.get_actor(NAME, namespace=NAMESPACE)


def running_controllers() -> dict[str, ActorHandle]:
    """All batch controllers of the cluster by their version."""
    found = {}
    for version in running_versions():
        with contextlib.suppress(ValueError):  # it has just ended
            found[version] = ray.get_actor(PREFIX + version, namespace=NAMESPACE)
    return found


def running_versions() -> list[str]:
    """The versions of all batch controllers of the cluster."""
    named = list_named_actors(all_namespaces=True)
    ours = [str(a["name"]) for a in named if a["namespace"] == NAMESPACE]
    return sorted(name.removeprefix(PREFIX) for name in ours if name.startswith(PREFIX))
