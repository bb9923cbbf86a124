"""Requests as token counts: one array element each, as forecasts and prefill sizing need them."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from controller.models.arrays import Bools, Ints


# Not frozen, as it is made anew in every step: that would take five times as long.
@dataclass(slots=True)
class Requests:
    """Requests as they are now, one element each, in the order of service.

    Args:
        computed: tokens that need not be computed any more; of a waiting request whose cached
            prefix is unknown all but the last of ``tokens``.
        tokens: prompt and output tokens so far: what will be in memory once prefill is done.
        outputs: output tokens so far.
        allowed: how many more tokens it may generate.
        shared: tokens at its beginning whose KV another request holds as well; None: nothing is
            shared.
        own_slo_ids: each one's SLO (``controller.request_slo``), by its id; None: all the same.
    """

    computed: Ints
    tokens: Ints
    outputs: Ints
    allowed: Ints
    shared: Ints | None = None
    own_slo_ids: Ints | None = None

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def slo_ids(self) -> Ints:
        """The id of each one's SLO, 0 where all have the same."""
        return _or_zeros(self.own_slo_ids, self)

    @property
    def held(self) -> int:
        """Tokens that all of them hold once their prefill is done."""
        return int(np.add.reduce(self.tokens))

    def most(self, longest: int) -> int:
        """Tokens they hold alone, together, if each generates ``longest`` more, or all it may."""
        # ``sum`` and ``max`` of an array go through a function of numpy's that takes as long again.
        to_come = int(np.add.reduce(np.minimum(self.allowed, longest)))
        return self.held + to_come - self.shared_tokens

    @property
    def shared_tokens(self) -> int:
        """The sum of ``shared``."""
        return 0 if self.shared is None else int(self.shared.sum())

    def plus(self, others: "Requests") -> "Requests":
        """These and then others."""
        shared = slo_ids = None
        if self.shared is not None or others.shared is not None:
            shared = np.concatenate(
                [_or_zeros(self.shared, self), _or_zeros(others.shared, others)]
            )
        if self.own_slo_ids is not None or others.own_slo_ids is not None:
            slo_ids = np.concatenate([self.slo_ids, others.slo_ids])
        return Requests(
            np.concatenate([self.computed, others.computed]),
            np.concatenate([self.tokens, others.tokens]),
            np.concatenate([self.outputs, others.outputs]),
            np.concatenate([self.allowed, others.allowed]),
            shared,
            slo_ids,
        )

    def where(self, mask: Bools | slice) -> "Requests":
        """Those for which ``mask``, shape (n,), is true, or those of a slice."""
        return Requests(
            self.computed[mask],
            self.tokens[mask],
            self.outputs[mask],
            self.allowed[mask],
            None if self.shared is None else self.shared[mask],
            None if self.own_slo_ids is None else self.own_slo_ids[mask],
        )

    def first(self, n: int) -> "Requests":
        """The first n of them."""
        return self if n >= len(self.tokens) else self.where(slice(n))


def _or_zeros(column: Ints | None, requests: Requests) -> Ints:
    return np.zeros(len(requests), dtype=np.int64) if column is None else column


def requests_of(
    computed: Sequence[int],
    prompts: Sequence[int],
    outputs: Sequence[int],
    most: Sequence[int],
    shared: Sequence[int] | None = None,
    slo_ids: Ints | None = None,
) -> Requests:
    """From a list each of computed tokens, prompt tokens, outputs, the most outputs allowed, and
    tokens shared with others (None: nothing is), and the id of its SLO."""
    # One call into numpy for all: of a few requests the calls are what takes the time.
    held, prompt, generated, at_most = np.array([computed, prompts, outputs, most], dtype=np.int64)
    return Requests(
        held,
        prompt + generated,
        generated,
        at_most - generated,
        None if shared is None else np.array(shared, dtype=np.int64),
        slo_ids,
    )
