"""What an engine step did, read off vLLM's ``SchedulerOutput``."""

from vllm.v1.core.sched.output import NewRequestData, SchedulerOutput

from controller.records import StepSample


def step_sample(done: SchedulerOutput, duration_s: float) -> tuple[StepSample, list[str]]:
    """The step's sample, and the ids of its requests that were in prefill.

    A request decodes if it has output and was given at most one token and its speculative ones.
    If it lost its KV blocks and computes them again, it is in prefill. Speculative tokens are no
    prompt tokens: vLLM also appends them to the last token of a prompt that is cached but for it.
    """
    cached, given = done.scheduled_cached_reqs, done.num_scheduled_tokens
    drafts = done.scheduled_spec_decode_tokens
    if drafts:
        given = {req_id: n - len(drafts.get(req_id, ())) for req_id, n in given.items()}
    kv, tokens, context = sum(cached.num_computed_tokens), 0, 0
    ids, started = [], []
    for new in done.scheduled_new_reqs:
        chunk, computed, left = given[new.req_id], new.num_computed_tokens, _to_compute(new)
        ids.append(new.req_id)
        tokens += chunk
        context += chunk * computed + chunk * chunk // 2
        # If KV was loaded but for the last token, no prompt was computed here.
        if left > 1 or not computed:
            started.append(left)
    known = _prefills_of_known(done, given, tokens)
    for req_id, chunk, computed in known:
        ids.append(req_id)
        kv -= computed
        tokens += chunk
        context += chunk * computed + chunk * chunk // 2
    decodes = len(cached.req_ids) - len(known)
    return StepSample(decodes, kv, tokens, context, duration_s, started=tuple(started)), ids


def _to_compute(new: NewRequestData) -> int:
    """Tokens of a prompt that the prefix cache does not have."""
    prompt = new.prompt_embeds if new.prompt_token_ids is None else new.prompt_token_ids
    return max(len(prompt) - new.num_computed_tokens, 1)


def _prefills_of_known(
    done: SchedulerOutput, given: dict[str, int], new_tokens: int
) -> list[tuple[str, int, int]]:
    """Id, tokens given and tokens computed of the prefills among requests seen in earlier steps.

    Args:
        given: tokens of each request, without speculative ones.
        new_tokens: tokens given to new requests.
    """
    cached, drafts = done.scheduled_cached_reqs, done.scheduled_spec_decode_tokens
    ids, computed, outputs = cached.req_ids, cached.num_computed_tokens, cached.num_output_tokens
    prompts, index = [], -1
    others = done.total_num_scheduled_tokens - new_tokens
    if drafts:
        others -= sum(map(len, drafts.values()))
    for _ in range(outputs.count(0)):  # few among hundreds, so not each is read
        index = outputs.index(0, index + 1)
        prompts.append((ids[index], given[ids[index]], computed[index]))
        others -= given[ids[index]]
    if others == len(ids) - len(prompts):
        return prompts  # the usual step: one token each
    return [
        (req_id, given[req_id], held)
        for req_id, held, output in zip(ids, computed, outputs, strict=True)
        if not output or given[req_id] > 1
    ]
