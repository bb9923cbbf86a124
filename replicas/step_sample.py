"""What an engine step did, read off vLLM's ``SchedulerOutput``."""

from vllm.v1.core.sched.output import SchedulerOutput

from controller.records import StepSample


def step_sample(done: SchedulerOutput, duration_s: float) -> tuple[StepSample, list[str]]:
    """The step's sample, and the ids of its requests that were in prefill.

    A request decodes when it has output and was given no more than one token and its drafts; one
    that lost its KV blocks and computes them again is in prefill.
    """
    cached = done.scheduled_cached_reqs
    given, drafts = done.num_scheduled_tokens, done.scheduled_spec_decode_tokens
    kv = sum(cached.num_computed_tokens)
    if (
        done.total_num_scheduled_tokens == len(cached.req_ids)
        and not done.scheduled_new_reqs
        and 0 not in cached.num_output_tokens
    ):
        # One token each and no prompt: the usual step, without a loop over requests.
        return StepSample(len(cached.req_ids), kv, 0, 0, duration_s), []
    prefills = [
        (req_id, given[req_id], computed)
        for req_id, computed, output in zip(
            cached.req_ids, cached.num_computed_tokens, cached.num_output_tokens, strict=True
        )
        if not output or given[req_id] > 1 + len(drafts.get(req_id, ()))
    ]
    decodes = len(cached.req_ids) - len(prefills)
    kv -= sum(computed for _, _, computed in prefills)
    prefills += [
        (new.req_id, given[new.req_id], new.num_computed_tokens) for new in done.scheduled_new_reqs
    ]
    tokens = sum(chunk for _, chunk, _ in prefills)
    context = sum(chunk * computed + chunk * chunk // 2 for _, chunk, computed in prefills)
    return (
        StepSample(decodes, kv, tokens, context, duration_s),
        [req_id for req_id, _, _ in prefills],
    )
