"""Facts read off vLLM's requests: token counts, and how they ended."""

from vllm.v1.request import Request, RequestStatus

CAME = "brimful_came_unix_s"  # in kv_transfer_params of a request whose KV is loaded
RAN_TO_ITS_END = (
    RequestStatus.FINISHED_STOPPED,
    RequestStatus.FINISHED_LENGTH_CAPPED,
    RequestStatus.FINISHED_REPETITION,
)


def ran_to_its_end(request: Request) -> bool:
    """Whether a finished request generated all its tokens.

    Stop strings are found outside EngineCore, which then aborts the request. So an aborted request
    with stop strings and output counts as complete. A request that another engine decodes does not
    count: the length of its answer is unknown here.
    """
    if remotely_decoded(request):
        return False
    if request.status == RequestStatus.FINISHED_ABORTED:
        params = request.sampling_params
        return bool(params and params.stop and request.num_output_tokens)
    return request.status in RAN_TO_ITS_END


def remotely_prefilled(request: Request) -> bool:
    """Whether another engine computed the prompt, and its KV is yet to come."""
    return bool((request.kv_transfer_params or {}).get("do_remote_prefill"))


def came_s(request: Request) -> float:
    """Unix time of arrival at the answering replica, before the prompt was computed elsewhere."""
    return float((request.kv_transfer_params or {}).get(CAME, request.arrival_time))


def remotely_decoded(request: Request) -> bool:
    """Whether only the prompt is computed here, for another engine."""
    return bool((request.kv_transfer_params or {}).get("do_remote_decode"))


def more_tokens_follow(request: Request | None) -> bool:
    """Whether more tokens will come for the inputs so far; None: the request is gone.

    A finished request may be kept while a connector needs its blocks, and a session until its
    client sends the next input.
    """
    if request is None or request.status == RequestStatus.WAITING_FOR_STREAMING_REQ:
        return False
    return not request.is_finished()
