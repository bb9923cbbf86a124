"""What is read off vLLM's requests: their token counts, and how they ended."""

from vllm.v1.request import Request, RequestStatus

CAME = "brimful_came_unix_s"  # among kv_transfer_params, of a request whose KV is to be loaded
RAN_TO_ITS_END = (
    RequestStatus.FINISHED_STOPPED,
    RequestStatus.FINISHED_LENGTH_CAPPED,
    RequestStatus.FINISHED_REPETITION,
)


def ran_to_its_end(request: Request) -> bool:
    """Whether a request that is done generated all its tokens.

    vLLM looks for stop strings outside the engine core and has it abort the request. So an aborted
    request that has stop strings, and output, is taken to have met one. A request that another
    engine decodes does not count: this engine sees nothing of how long its answer is.
    """
    if remotely_decoded(request):
        return False
    if request.status == RequestStatus.FINISHED_ABORTED:
        params = request.sampling_params
        return bool(params and params.stop and request.num_output_tokens)
    return request.status in RAN_TO_ITS_END


def remotely_prefilled(request: Request) -> bool:
    """Whether another engine has computed its prompt, and the KV is still to come from there."""
    return bool((request.kv_transfer_params or {}).get("do_remote_prefill"))


def came_s(request: Request) -> float:
    """Unix time when it came to who answers it, before its prompt was computed elsewhere."""
    return float((request.kv_transfer_params or {}).get(CAME, request.arrival_time))


def remotely_decoded(request: Request) -> bool:
    """Whether its prompt alone is computed here, for another engine."""
    return bool((request.kv_transfer_params or {}).get("do_remote_decode"))


def more_tokens_follow(request: Request | None) -> bool:
    """Whether more tokens come of what a request was asked for so far.

    None: it is gone. One that is done may be kept while a connector needs its blocks, and a session
    while its client has not sent the next input.
    """
    if request is None or request.status == RequestStatus.WAITING_FOR_STREAMING_REQ:
        return False
    return not request.is_finished()
