"""The prefill/decode route of a request: through a prefill engine, or direct. Pure.

Through: a prefill engine computes the prompt, and its KV goes to a mixed engine with a reservation
from the start, so that no finished prompt waits for memory. Direct: a mixed engine computes the
prompt in chunks with its decodes. The route with the earlier forecast first token is taken. While
mixed engines have time left, they compute prompts. If decodes fill their steps, their prefill rate
falls, and all requests go through. The forecast includes the KV transfer and earlier transfers of
this router on both network cards.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from serve_app.routing.choice import HeadroomChooser
from serve_app.routing.replica_load import Asked

K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Way(Generic[K]):
    """The route of a request.

    Args:
        decode: the mixed engine that answers it.
        prefill: the engine that first computes its prompt; None: ``decode`` does.
        wait_s: forecast until its first token; None if nothing is known.
    """

    decode: K
    prefill: K | None
    wait_s: float | None


class WayChooser(Generic[K]):
    """Chooses the route of each request for one router.

    Args:
        chooser: chooses replicas; it is given their statistics (``update``).
        wire_s: seconds that the KV of this many tokens keeps a network card busy.
        handover_s: what else the handover costs: latency, and steps that begin and end.
        direct: False: all requests go through if there is a prefill engine.
    """

    def __init__(
        self,
        chooser: HeadroomChooser[K],
        wire_s: Callable[[float], float],
        handover_s: float,
        *,
        direct: bool = True,
    ) -> None:
        self.chooser = chooser
        self._wire_s, self._handover_s, self._direct = wire_s, handover_s, direct
        self._busy_until_s: dict[K, float] = {}  # network cards, by what was sent over them

    def choose(
        self, mixed: Sequence[K], prefill: Sequence[K], asked: Asked, now_s: float
    ) -> Way[K]:
        """The route of a request, which then counts as sent.

        Args:
            mixed: engines that decode, at least one.
            prefill: engines that compute prompts; none: all go direct.
        """
        chooser = self.chooser
        if not prefill:
            chosen = chooser.choose(mixed, asked, now_s)
            chooser.sent(chosen.replica, asked, now_s)
            return Way(chosen.replica, None, chosen.wait_s)
        pool = chooser.choose(prefill, replace(asked, part="prompt"), now_s)
        computed_s = now_s + (pool.wait_s or 0.0)
        sent_s = max(computed_s, self._busy_until_s.get(pool.replica, 0.0))

        def card_s(replica: K) -> float:
            return max(self._busy_until_s.get(replica, 0.0) - sent_s, 0.0)

        place = chooser.choose(mixed, replace(asked, part="loaded"), now_s, detour_s=card_s)
        through_s = None
        if pool.wait_s is not None and place.wait_s is not None:
            wire_s = self._wire_s(asked.prompt_tokens)
            through_s = sent_s - now_s + place.wait_s + wire_s + self._handover_s
        if self._direct:
            here = chooser.choose(mixed, replace(asked, part="direct"), now_s)
            if here.wait_s is not None and (through_s is None or here.wait_s < through_s):
                chooser.sent(here.replica, asked, now_s)
                return Way(here.replica, None, here.wait_s)
        chooser.sent(pool.replica, asked, now_s)
        chooser.promise(place.replica, asked)
        # A card that is free again is forgotten.
        busy = {key: until_s for key, until_s in self._busy_until_s.items() if until_s > now_s}
        for replica in (pool.replica, place.replica):
            begin_s = max(busy.get(replica, 0.0), computed_s)
            busy[replica] = begin_s + self._wire_s(asked.prompt_tokens)
        self._busy_until_s = busy
        return Way(place.replica, pool.replica, through_s)

    def handed_over(self, decode: K, asked: Asked, now_s: float) -> None:
        """The prompt is computed, and the engine with the reservation asks for its KV."""
        self.chooser.keep_promise(decode, replace(asked, part="loaded"), now_s)
