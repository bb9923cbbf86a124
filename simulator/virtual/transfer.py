"""KV transfers between engines in virtual time: the connector, and the network links.

The connector does in the scheduler what vLLM's ``NixlConnector`` does. A prompt computed by another
engine is loaded whole, its last token is computed again, and the blocks there are held until they
have been read. After a preemption the prompt is computed here.

Each engine has a sending and a receiving link, each a FIFO queue at the bandwidth. A transfer
passes both at once: it ends with the later of the two, plus the latency. Neither link idles because
the other is busy.
"""

from dataclasses import replace
from typing import Any

from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorBase_V1
from vllm.v1.request import RequestStatus

from controller.roles import Transfer
from simulator.workloads.requests import Request


class VirtualConnector(KVConnectorBase_V1):
    """The scheduler's part of a connector; the replay moves the KV.

    Attributes:
        begun: (request id, tokens) of KV transfers that began since it was last emptied.
    """

    loads_by_request = True

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.begun: list[tuple[str, int]] = []

    def get_num_new_matched_tokens(self, request: Any, num_computed_tokens: int) -> Any:
        if not (request.kv_transfer_params or {}).get("do_remote_prefill"):
            return 0, False
        there = request.num_prompt_tokens - num_computed_tokens
        return max(there, 0), there > 0

    def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int) -> None:
        params = request.kv_transfer_params or {}
        if params.get("do_remote_prefill") and num_external_tokens:
            params["do_remote_prefill"] = False  # only once
            self.begun.append((request.request_id, num_external_tokens))

    def request_finished(self, request: Any, block_ids: Any) -> Any:
        ended = request.status in (
            RequestStatus.FINISHED_LENGTH_CAPPED,
            RequestStatus.FINISHED_STOPPED,
        )
        held = ended and bool((request.kv_transfer_params or {}).get("do_remote_decode"))
        return held, None

    def build_connector_meta(self, scheduler_output: Any) -> Any:
        return None

    def start_load_kv(self, forward_context: Any, **kwargs: Any) -> None:
        """There is no worker."""

    def wait_for_layer_load(self, layer_name: str) -> None:
        """There is no worker."""

    def save_kv_layer(self, layer_name: str, kv_layer: Any, attn_metadata: Any, **kw: Any) -> None:
        """There is no worker."""

    def wait_for_save(self) -> None:
        """There is no worker."""


class NetworkLinks:
    """The network links of a fleet's engines.

    Attributes:
        moved: tokens of each transfer so far.
    """

    def __init__(self, engines: int, transfer: Transfer) -> None:
        self._transfer = transfer
        self._sends_s, self._receives_s = [0.0] * engines, [0.0] * engines
        self.moved: list[int] = []

    def move(self, source: int, target: int, tokens: int, now_s: float) -> float:
        """Queue the KV of ``tokens``; returns its arrival, seconds."""
        wire_s = self._transfer.wire_s(tokens)
        sent_s = self._sends_s[source] = max(now_s, self._sends_s[source]) + wire_s
        there_s = self._receives_s[target] = max(now_s, self._receives_s[target]) + wire_s
        self.moved.append(tokens)
        return max(sent_s, there_s) + self._transfer.latency_s


def of_prefill(request: Request) -> Request:
    """The request for a prefill engine: one token of its answer."""
    return replace(request, output_tokens=1, max_tokens=1, then=())
