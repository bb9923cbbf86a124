"""Requests of an engine that died: how this engine goes on with them.

Such a request comes with the tokens that its answer has so far behind its prompt, and says in its
id how many these are. No client can: vLLM ends every id with random letters.
"""

from concurrent.futures import Future
from typing import Any

MARK = "-moved-"


def moved_id(request_id: str, once: str, generated: int) -> str:
    """An id that says how many of a prompt's tokens are its answer's.

    Args:
        once: no other request here may have the same: vLLM's engine ends over a second one.
    """
    return f"{request_id}-{once}{MARK}{generated}"


def is_moved(request: Any) -> bool:
    """Whether a waiting request ran in another engine before."""
    return MARK in request.request_id


def generated(request_id: str) -> int:
    """How many tokens of a request's answer came from another engine."""
    _, mark, count = request_id.rpartition(MARK)
    return int(count) if mark and count.isdecimal() else 0


def resume(scheduler: Any, request: Any) -> None:
    """Before the scheduler takes it: have its own tokens count as generated.

    As of a request that was preempted, so that penalties, lengths and seeds go on. Only vLLM's
    second model runner takes such a request as a new one; for the first one the tokens stay in the
    prompt, and ``replicas.server.failover`` moves only what goes on so.
    """
    count, tokens = generated(request.request_id), request.prompt_token_ids
    if not count or tokens is None or count >= len(tokens):
        return
    own = tokens[-count:]
    if getattr(scheduler, "use_v2_model_runner", False):
        request.prompt_token_ids = tokens[:-count]
        request.num_prompt_tokens -= count
        request._output_token_ids.extend(own)
    if (asked := request.structured_output_request) is not None:
        compiled = asked._grammar
        run = scheduler.structured_output_manager.executor.submit
        asked._grammar = run(_replayed, compiled, request.request_id, own)


def put_first(scheduler: Any, request: Any) -> None:
    """Requests that ran before are admitted before new ones; with priorities, among their own."""
    if any(one is request for one in scheduler.waiting):  # ``in`` would ask vLLM's empty deque
        scheduler.waiting.remove_request(request)
        scheduler.waiting.prepend_request(request)


def _replayed(compiled: Any, request_id: str, tokens: list[int]) -> Any:
    """The grammar after these tokens.

    Raises:
        ValueError: it does not allow them; vLLM ends the request.
    """
    grammar = compiled.result() if isinstance(compiled, Future) else compiled
    if not grammar.accept_tokens(request_id, tokens):
        raise ValueError("the grammar rejects the tokens of another engine")
    return grammar
