"""Ray Serve's request router that sends a request to the replica with most headroom."""

import logging
import sys
import time
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any

from ray import cloudpickle
from ray.serve._private.common import ReplicaID
from ray.serve._private.request_router.common import PendingRequest
from ray.serve._private.request_router.replica_wrapper import RunningReplica
from ray.serve._private.request_router.request_router import MultiplexMixin, RequestRouter
from ray.util.metrics import Counter

from serve_app.routing import choice, gather, held, prompt, replica_load
from serve_app.routing.choice import Choice, HeadroomChooser, Outcome, Sent
from serve_app.routing.gather import End, end_of, ends_of
from serve_app.routing.held import Prefix
from serve_app.routing.prompt import PromptLengths, asked_by, read_prompt
from serve_app.routing.replica_load import PROMPT_TOKENS, Asked, is_dead, read_room

logger = logging.getLogger("ray.serve")
LLM_ROUTER = "ray.llm._internal.serve.core.ingress.router"
PREFIX_CHARS = 1024  # of a piece, by which beginnings of prompts are compared
AVOID = "brimful_avoid"  # of a request that another replica sends (``replicas.server.carried``)
KEY_FIELDS = "_ROUTING_KEY_FIELDS"  # of Ray's module: other bodies are not passed on

# Ray Serve pickles this module by value: every process with a handle unpickles the class, also
# proxies, which have no runtime_env. So these modules have to travel along.
for _module in (choice, gather, held, prompt, replica_load):
    cloudpickle.register_pickle_by_value(_module)


class HeadroomRouter(MultiplexMixin, RequestRouter):
    """Named by ``request_router_class``; the ``router`` block of an entry does that.

    Ray Serve's direct streaming only asks for a replica. The router does not learn whether a
    request was sent or has ended. So a request counts as sent when its replica is chosen, until
    that replica's statistics are newer.

    Without ``FIFOMixin``: a choice made for one prompt is not given to another request.
    """

    def initialize_state(
        self,
        prefix_affinity: bool = False,
        gathered: Mapping[str, tuple[float | None, float]] | None = None,
    ) -> None:
        """``request_router_kwargs``: see ``serve_app.routing.settings.RouterConfig``.

        Args:
            gathered: the classes, as for ``ends_of``; None: no class affinity.
        """
        self._chooser: HeadroomChooser[ReplicaID] = HeadroomChooser(prefix_affinity=prefix_affinity)
        self._prefix_chars = PREFIX_CHARS if prefix_affinity else 0
        self._ends = ends_of(gathered or {})
        self._lengths = PromptLengths()
        hand_on_input()
        self._ids: tuple[Sequence[RunningReplica], Sequence[ReplicaID]] = ((), ())
        self._dead: frozenset[ReplicaID] = frozenset()  # with dead engines
        self._pool: frozenset[ReplicaID] = frozenset()  # prefill engines
        self.outcomes: dict[str, int] = {}
        self._blind = False
        self._routed = Counter(
            "brimful_routed_total",
            "Requests routed, by what decided.",
            ("outcome", "application"),
        )
        self._routed.set_default_tags({"application": self._deployment_id.app_name})

    def update_replicas(self, replicas: list[RunningReplica]) -> None:
        """Take new statistics or another set of replicas, pushed by Ray Serve's controller."""
        super().update_replicas(replicas)
        now_s = time.time()
        self._chooser.keep(self._replicas)
        pool = []
        for replica in replicas:
            room = read_room(replica.routing_stats)
            self._chooser.update(replica.replica_id, room, now_s)
            if room is not None and room.prefill:
                pool.append(replica.replica_id)
        self._pool = frozenset(pool)
        self._dead = frozenset(r.replica_id for r in replicas if is_dead(r.routing_stats))

    async def choose_replicas(
        self,
        candidate_replicas: list[RunningReplica],
        pending_request: PendingRequest | None = None,
    ) -> list[list[RunningReplica]]:
        """The best replica alone, then the others that were compared, one by one."""
        ids, among = self._candidates(candidate_replicas, pending_request)
        asked, prefix, end = self._read(pending_request)
        if self._pool or asked.part == "prompt":
            ids = self._in_role(ids, pending_request, asked)
            among = frozenset(ids)
        avoid = getattr(_payload(pending_request), AVOID, ())
        if self._dead or avoid:
            alive = [one for one in ids if one not in self._dead and one.unique_id not in avoid]
            ids = alive or ids  # if all are dead, one refuses the request itself
            among = frozenset(ids)
        if not ids:
            return []
        now_s = time.time()
        if pending_request is not None:
            self._take_back(pending_request)
        chosen = self._chooser.choose(ids, asked, now_s, prefix=prefix, among=among, end=end)
        self._note(chosen.outcome)
        sent = self._chooser.sent(chosen.replica, asked, now_s, chosen.cached_tokens)
        if pending_request is not None:
            pending_request.routing_context.brimful = (chosen, sent)
        found = (self._replicas.get(key) for key in (chosen.replica, *chosen.others))
        return [[replica] for replica in found if replica is not None]

    def _candidates(
        self, replicas: list[RunningReplica], pending: PendingRequest | None
    ) -> tuple[Sequence[ReplicaID], Container[ReplicaID]]:
        if pending is not None and pending.metadata.multiplexed_model_id:
            some = self.apply_multiplex_routing(pending_request=pending)
            return _ordered(some), some
        if pending is not None:
            pending.routing_context.should_backoff = True  # else Ray asks again without a pause
        if self._ids[0] is not replicas:  # Ray makes a new list when its replicas change
            self._ids = replicas, _ordered(replica.replica_id for replica in replicas)
        return self._ids[1], self._replicas

    def _in_role(
        self, ids: Sequence[ReplicaID], pending: PendingRequest | None, asked: Asked
    ) -> Sequence[ReplicaID]:
        """Replicas in the role for this part of a request; any replica if none has the role.

        A role takes precedence over an adapter that is already loaded. Otherwise clients' requests
        would go to a prefill engine while it holds their adapter.
        """
        every = list(self._replicas)
        if asked.part == "prompt":
            asking = asked_by(_payload(pending))  # it has to load from another engine
            others = [one for one in ids if one.unique_id != asking]
            pool = [one for one in self._pool if one.unique_id != asking]
            rest = [one for one in every if one.unique_id != asking]
            return [one for one in others if one in self._pool] or _ordered(pool) or others or rest
        mixed = [one for one in ids if one not in self._pool]
        return mixed or _ordered(one for one in every if one not in self._pool) or ids

    def _read(self, pending: PendingRequest | None) -> tuple[Asked, Prefix | None, End | None]:
        payload = _payload(pending)
        found = read_prompt(payload, self._prefix_chars)
        mean_tokens = self._chooser.usual.mean_prompt_tokens
        tokens = self._lengths.tokens(found, mean_tokens)
        if asked_by(payload) is not None:  # from a replica: the client's request was counted before
            return Asked(PROMPT_TOKENS if tokens is None else tokens, part="prompt"), None, None
        if found is None:
            return Asked(PROMPT_TOKENS if tokens is None else tokens), None, None
        self._lengths.note(found)
        asked = Asked(PROMPT_TOKENS if tokens is None else tokens, found.max_tokens)
        of_piece = self._lengths.piece_tokens(found, self._prefix_chars, mean_tokens)
        return asked, Prefix(found.prefix, of_piece), end_of(payload, self._ends)

    def _note(self, outcome: Outcome) -> None:
        self.outcomes[outcome] = self.outcomes.get(outcome, 0) + 1
        self._routed.inc(tags={"outcome": outcome})
        blind = outcome in ("sent", "random")
        if blind != self._blind and not blind:
            logger.info("Replicas of %s report their headroom again.", self._deployment_id)
        elif blind != self._blind:
            logger.warning(
                "No replica of %s reported its headroom lately: requests are routed by how"
                " many each was sent.",
                self._deployment_id,
            )
        self._blind = blind

    def _take_back(self, pending: PendingRequest) -> None:
        before: tuple[Choice[ReplicaID], Sent] | None
        before = getattr(pending.routing_context, "brimful", None)
        if before is not None:  # Ray asks again: the replica chosen before did not take it
            chosen, sent = before
            self._chooser.take_back(chosen.replica, sent)
            chosen.not_sent()


def hand_on_input() -> None:
    """Make the ``LLMRouter`` of this process, if any, pass on bodies of ``/v1/responses``.

    Ray 2.60 drops bodies with neither ``messages`` nor ``prompt``.
    """
    module = sys.modules.get(LLM_ROUTER)
    known = getattr(module, KEY_FIELDS, None)
    if isinstance(known, tuple) and "input" not in known:
        setattr(module, KEY_FIELDS, (*known, "input"))


def _payload(pending: PendingRequest | None) -> Any:
    return pending.args[0] if pending is not None and pending.args else None


def _ordered(ids: Iterable[ReplicaID]) -> tuple[ReplicaID, ...]:
    """In the order that all routers share."""
    return tuple(sorted(ids, key=lambda one: one.unique_id))
