"""``max_model_len`` of a replay, and the requests beyond it."""

from collections.abc import Sequence

from controller.errors import ConfigError
from simulator.virtual.plan import EngineOptions
from simulator.workloads.requests import Request, every

CONTEXT = 32_768  # most tokens of a request, prompt and output


def tokens_of(request: Request) -> int:
    """Prompt and output together."""
    return request.input_tokens + request.output_tokens


def max_model_len(requests: Sequence[Request], engine: EngineOptions, kv_tokens: int) -> int:
    """A model's context, as large as vLLM starts with.

    ``CONTEXT``, or the next power of two if a request is longer. KV memory has to hold one request
    of that length; without chunked prefill, a step has to as well. Operators set ``max_model_len``
    to fit. A larger ``max_tokens`` is cut, as by a server; a request that is itself longer is
    refused.

    Raises:
        ConfigError: no request fits, or vLLM does not start with it.
    """
    lengths = [tokens_of(r) for r in every(requests)]
    step_tokens = engine.max_num_batched_tokens
    limits = {"kv-tokens": kv_tokens}
    if not engine.enable_chunked_prefill:
        limits["max_num_batched_tokens without chunked prefill"] = step_tokens
    for name, tokens in limits.items():
        if min(lengths) > tokens:
            raise ConfigError(
                [
                    f"{name}: {tokens} is not allowed: the shortest request of the workload"
                    f" takes {min(lengths)}"
                ]
            )
    context = min(max(CONTEXT, 1 << (max(lengths) - 1).bit_length()), *limits.values())
    if engine.long_prefill_token_threshold > context:
        raise ConfigError(
            [
                f"long_prefill_token_threshold: {engine.long_prefill_token_threshold} is not"
                f" allowed: up to max_model_len, here {context}"
            ]
        )
    return context
