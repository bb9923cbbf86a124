"""Continuous batching without paging: a request reserves room for its longest answer (Orca)."""

from itertools import islice

from simulator.virtual.scheduler import VirtualScheduler


class ReservedScheduler(VirtualScheduler):
    """Admits requests in queue order if prompt and ``max_tokens`` fit with the running ones."""

    def _set_limits(self) -> None:
        super()._set_limits()
        room = self._kv_blocks * self.block_size
        room -= sum(r.num_prompt_tokens + r.max_tokens for r in self.running)
        slots = self.cap - len(self.running)
        admitted = 0
        for request in islice(self.waiting, max(slots, 0)):
            room -= request.num_prompt_tokens + request.max_tokens
            if room < 0:
                break
            admitted += 1
        setattr(self, self._cap_name, max(len(self.running) + admitted, 1))
