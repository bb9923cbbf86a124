"""Which requests a decode engine serves with remote KV, and the request for it.

Under Ray Serve LLM 2.60's own PD servers two tiny engines with NIXL gave these answers; the last
column is what happens here (``tests/ray/test_pd.py``; decision 39):

================================  =================================================  =============
request                           seen                                               here
================================  =================================================  =============
a list of prompts                 each the first one's KV: HTTP 200 with wrong text  local
``prompt_logprobs``               500, and the decode engine ended                   local
``echo`` with ``logprobs``        not tried: becomes ``prompt_logprobs`` in vLLM      local
``n`` > 1                         right; each sequence loads what the first read     local
                                  gives free, so not under load by any promise
beam search                       right, after 14 s                                  local
``prompt_embeds``                 not tried: NIXL counts token ids                   local
``min_tokens`` > 1                400: a prefill request has one token               right
``truncate_prompt_tokens`` -1     the last tokens that max_tokens leaves room for:   local
                                  one more for a prefill request than here, so KV
                                  of other tokens, HTTP 200 with wrong text
a client's ``kv_transfer_params`` 500; on ``/v1/responses`` the engine ended         400
================================  =================================================  =============

Local: the decode engine prefills itself, and answers like a single engine.
"""

from typing import Any

KV_PARAMS = "kv_transfer_params"
ARGS = "vllm_xargs"  # vLLM adds it to the former
NOT_A_CLIENTS = (
    "is not allowed: it says where an engine reads KV, which this application sets itself;"
    " leave it out"
)
# Fields that shape an answer which is not read, or that the prefill engine would refuse.
PLAIN: dict[str, Any] = {
    "min_tokens": 0,
    "stop": None,
    "stop_token_ids": None,
    "logprobs": None,
    "top_logprobs": None,
    "logprob_token_ids": None,
    "echo": False,
    "response_format": None,
    "structured_outputs": None,
    "return_token_ids": None,
}


def forbidden(request: Any) -> str | None:
    """The field of a client's request that only this application may set; None: none.

    Args:
        request: vLLM's ``CompletionRequest`` or ``ChatCompletionRequest``.
    """
    if request.kv_transfer_params is not None:
        return KV_PARAMS
    if request.vllm_xargs and KV_PARAMS in request.vllm_xargs:
        return f"{ARGS}.{KV_PARAMS}"
    return None


def is_local(request: Any) -> bool:
    """Whether the decode engine must prefill this request itself."""
    prompt = getattr(request, "prompt", None)
    several = isinstance(prompt, list) and len(prompt) > 1 and not isinstance(prompt[0], int)
    # An echo's logprobs are the prompt's; for chat they depend on top_logprobs, 0 by default.
    logprobs = request.echo and getattr(request, "top_logprobs", request.logprobs) is not None
    return bool(
        several
        or logprobs
        or request.prompt_logprobs is not None
        or (request.n or 1) > 1
        or request.use_beam_search
        or getattr(request, "prompt_embeds", None) is not None
        or (request.truncate_prompt_tokens or 0) < 0  # what max_tokens leaves
    )


def plain(request: Any) -> Any:
    """A prefill request without fields that only shape the answer's text; changed in place."""
    for key, value in PLAIN.items():
        if hasattr(request, key):
            setattr(request, key, value)
    return request
