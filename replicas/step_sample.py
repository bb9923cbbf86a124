"""What an engine step did, read off vLLM's ``SchedulerOutput``."""

from collections.abc import Iterator
from contextlib import suppress

from vllm.v1.core.sched.output import SchedulerOutput

from controller.records import StepSample

FEW = 8  # prompts of earlier steps: of more, each request is looked at


def step_sample(done: SchedulerOutput, duration_s: float) -> tuple[StepSample, list[str]]:
    """The step's sample, and the ids of its requests that were in prefill.

    A request decodes when it has output and was given no more than one token and its drafts; one
    that lost its KV blocks and computes them again is in prefill.
    """
    cached, given = done.scheduled_cached_reqs, done.num_scheduled_tokens
    decodes, kv = len(cached.req_ids), sum(cached.num_computed_tokens)
    begun = done.scheduled_new_reqs
    if (
        not begun
        and done.total_num_scheduled_tokens == decodes
        and 0 not in cached.num_output_tokens
    ):
        return StepSample(decodes, kv, 0, 0, duration_s), []  # the usual step: one token each
    new = [(r.req_id, given[r.req_id], r.num_computed_tokens) for r in begun]
    prefills = _prefills_of_known(done, sum([tokens for _, tokens, _ in new]))
    decodes -= len(prefills)
    for _, _, computed in prefills:
        kv -= computed
    prefills += new
    tokens = context = 0
    for _, chunk, computed in prefills:
        tokens += chunk
        context += chunk * computed + chunk * chunk // 2
    return (
        StepSample(decodes, kv, tokens, context, duration_s, started=len(new)),
        [req_id for req_id, _, _ in prefills],
    )


def _prefills_of_known(done: SchedulerOutput, new_tokens: int) -> list[tuple[str, int, int]]:
    """Id, tokens given and tokens computed of the prefills among requests seen in earlier steps."""
    cached, given = done.scheduled_cached_reqs, done.num_scheduled_tokens
    count = len(cached.req_ids)
    if done.total_num_scheduled_tokens - new_tokens == count and 0 not in cached.num_output_tokens:
        return []  # one token each, and no prompt but of those that begin
    drafts = done.scheduled_spec_decode_tokens
    several = {req_id for req_id, tokens in given.items() if tokens > 1}
    several.difference_update([new.req_id for new in done.scheduled_new_reqs])
    if drafts or len(several) > FEW:
        return [
            (req_id, given[req_id], computed)
            for req_id, computed, output in zip(
                cached.req_ids, cached.num_computed_tokens, cached.num_output_tokens, strict=True
            )
            if not output or given[req_id] > 1 + len(drafts.get(req_id, ()))
        ]
    # Few among hundreds: looked for by what each has, and not each looked at.
    outputs = cached.num_output_tokens
    places = {cached.req_ids.index(req_id) for req_id in several}
    places.update(_places_of(0, outputs))
    return [
        (cached.req_ids[k], given[cached.req_ids[k]], cached.num_computed_tokens[k])
        for k in sorted(places)
    ]


def _places_of(value: int, among: list[int]) -> Iterator[int]:
    place = -1
    with suppress(ValueError):  # there is no other
        while True:
            place = among.index(value, place + 1)
            yield place
