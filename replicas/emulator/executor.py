"""An emulated accelerator: a vLLM executor that takes a profile's time, without weights.

Everything around it is real: API server, engine core, scheduler, KV manager, preemption. There are
no weights and the tokens mean nothing; models served by it are marked as emulated.

An answer ends by its ``max_tokens``. A client that wants it to end before that, as a model ends its
answers, sends its length as ``vllm_xargs: {"emulated_tokens": n}`` and one token below
``FIRST_WORD`` as ``stop_token_ids``: it is the n-th token, and the engine does not know when.

With ``vllm_xargs: {"emulated_positions": 1}`` each token encodes its position (``token_at``), so
that a client sees whether a token is missing or came twice.

Other tokens are drawn at random, with structured output among the tokens that the grammar allows
next, as in vLLM's own workers. All are equally likely, and ``logprobs`` say so.
"""

import math
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from random import Random
from typing import Any

import numpy as np
import torch
from vllm.v1.core.sched.output import GrammarOutput, SchedulerOutput
from vllm.v1.executor.abstract import Executor
from vllm.v1.kv_cache_interface import FullAttentionSpec
from vllm.v1.outputs import LogprobsLists, LogprobsTensors, ModelRunnerOutput
from vllm.v1.worker.worker_base import CompilationTimes

from controller.errors import ConfigError
from replicas.engine import moved
from replicas.engine.settings import EmulateSettings, parse_settings
from replicas.engine.step_sample import step_sample
from replicas.profiles.disturbances import DisturbedSteps
from replicas.profiles.profile_file import load_profile

SEED = 0  # of disturbances and tokens
FIRST_WORD = 3  # lower ids are special tokens of our tiny tokenizer
LENGTH, POSITIONS = "emulated_tokens", "emulated_positions"
MEMORY_BYTES = 1 << 36  # more than any profile; num_gpu_blocks_override sets the size in use


def token_at(position: int, vocab_size: int) -> int:
    """The token at a position in prompt and answer, for requests that ask for positions."""
    return FIRST_WORD + position % (vocab_size - FIRST_WORD)


class Pace:
    """Sleeps for the time of each step.

    A profile's times include the host's share. So a busy accelerator's next step begins where the
    last one ended, and the host's work meanwhile is hidden in it, if it fits in one step. After
    idling, a step begins when it is submitted.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._clock, self._sleep = clock, sleep
        self._free_at_s: float | None = None  # when the last step ended; None: idle

    def step(self, step_s: float) -> None:
        """Return ``step_s`` seconds after the step began."""
        now_s = self._clock()
        begin_s = now_s if self._free_at_s is None else max(self._free_at_s, now_s - step_s)
        self._free_at_s = begin_s + step_s
        self._sleep(max(self._free_at_s - now_s, 0.0))

    def idle(self) -> None:
        """The accelerator is idle from now on."""
        self._free_at_s = None


class EmulatedExecutor(Executor):
    """Answers EngineCore as a worker would, after the profile's time.

    Raises:
        ConfigError: ``additional_config.brimful.emulate`` is missing or names no profile.
    """

    def _init_executor(self) -> None:
        settings = parse_settings(self.vllm_config.additional_config).emulate
        if settings is None:
            raise ConfigError(["additional_config.brimful.emulate: required key is missing"])
        self._settings: EmulateSettings = settings
        self._times = DisturbedSteps(load_profile(settings.profile), settings.disturbances, SEED)
        self._random = Random(SEED)
        self._vocabulary = range(FIRST_WORD, self.model_config.get_vocab_size())
        self._logprob = -math.log(len(self._vocabulary))
        self._prompt_tokens: dict[str, int] = {}
        self._ends: dict[str, tuple[int, int]] = {}  # number of tokens, and the stop token
        self._placed: dict[str, int] = {}  # prompts of requests whose tokens encode positions
        self._asked: dict[str, list[int]] = {}  # tokens whose logprobs are returned, with the drawn
        # Prompts whose logprobs are returned, and the further tokens at each position.
        self._prompts: dict[str, tuple[list[int], list[int]]] = {}
        self._step: SchedulerOutput | None = None
        self._begun: list[str] = []  # requests whose first step it is
        self._pace = Pace()
        self._origin_s = time.monotonic()
        self._answers: dict[str, Any] = {
            "get_kv_cache_spec": self._kv_cache_spec(),
            "get_supported_kv_cache_layouts": ["LBNHC"],
            "determine_available_memory": MEMORY_BYTES,
            "compile_or_warm_up_model": CompilationTimes(0.0, 0.0),
            "get_supported_tasks": ("generate",),
            "supports_draft_weight_updates": False,
        }

    def _kv_cache_spec(self) -> dict[str, FullAttentionSpec]:
        # One small layer: blocks are counted, not filled.
        spec = FullAttentionSpec(
            block_size=self.cache_config.block_size,
            num_kv_heads=1,
            head_size=64,
            dtype=torch.bfloat16,
        )
        return {"emulated": spec}

    def collective_rpc(
        self,
        method: str | Callable[..., Any],
        timeout: float | None = None,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
        non_block: bool = False,
    ) -> Any:
        # Other calls need no result (set this, reset that).
        answer = [self._answers.get(method) if isinstance(method, str) else None]
        return _done(answer) if non_block else answer

    def execute_model(self, scheduler_output: SchedulerOutput, non_block: bool = False) -> Any:
        self._step = scheduler_output
        self._begun = [
            new.req_id
            for new in scheduler_output.scheduled_new_reqs
            if new.req_id not in self._prompt_tokens  # a preempted request may come as new
        ]
        for new in scheduler_output.scheduled_new_reqs:
            tokens = new.prefill_token_ids or new.prompt_token_ids or ()
            self._prompt_tokens[new.req_id] = len(tokens)
            params = new.sampling_params
            length = ((params and params.extra_args) or {}).get(LENGTH)
            if params and length is not None and params.stop_token_ids:
                if not new.prefill_token_ids:  # then its prompt ends with what it has generated
                    length -= moved.generated(new.req_id)
                self._ends[new.req_id] = int(length), params.stop_token_ids[0]
            if ((params and params.extra_args) or {}).get(POSITIONS):
                self._placed[new.req_id] = len(new.prompt_token_ids or ())
            if params and (asked := params.num_logprobs) is not None:
                self._asked[new.req_id] = params.logprob_token_ids or self._first(asked)
            if params and params.prompt_logprobs is not None:
                prompt = list(new.prompt_token_ids or ())
                self._prompts[new.req_id] = prompt, self._first(params.prompt_logprobs)
        if not scheduler_output.total_num_scheduled_tokens:
            # After its last request has ended, EngineCore runs an empty step to clean up.
            self._pace.idle()
            self._forget(scheduler_output)
            output = ModelRunnerOutput(req_ids=[], req_id_to_index={}, sampled_token_ids=[])
            return _done(output) if non_block else output
        return _done(None) if non_block else None

    def sample_tokens(self, grammar_output: GrammarOutput | None, non_block: bool = False) -> Any:
        step, self._step = self._step, None
        if step is None:
            raise RuntimeError("sample_tokens without execute_model")
        self._take_time(step)
        output = self._tokens(step, _masks(grammar_output))
        self._forget(step)
        return _done(output) if non_block else output

    def _take_time(self, step: SchedulerOutput) -> None:
        sample, _ = step_sample(step, 0.0)
        scale, since_s = self._settings.time_scale, time.monotonic() - self._origin_s
        self._pace.step(scale * self._times.step_s(*sample.features, since_s / scale, self._begun))

    def _tokens(self, step: SchedulerOutput, masks: dict[str, Any]) -> ModelRunnerOutput:
        ids = list(step.num_scheduled_tokens)
        complete = self._complete(step)
        cached = step.scheduled_cached_reqs
        generated = dict(zip(cached.req_ids, cached.num_output_tokens, strict=True))
        for new in step.scheduled_new_reqs:  # a preempted request may come as new, with output
            generated[new.req_id] = self._prompt_tokens[new.req_id] - len(
                new.prompt_token_ids or ()
            )
        sampled = [
            [self._token(req_id, generated[req_id], masks.get(req_id))]
            if req_id in complete
            else []
            for req_id in ids
        ]
        return ModelRunnerOutput(
            req_ids=ids,
            req_id_to_index={req_id: index for index, req_id in enumerate(ids)},
            sampled_token_ids=sampled,
            logprobs=self._logprobs(ids, sampled),
            prompt_logprobs_dict={
                req_id: self._prompt_logprobs(*self._prompts.pop(req_id))
                for req_id in ids
                if req_id in complete and req_id in self._prompts and not generated[req_id]
            },
        )

    def _first(self, count: int) -> list[int]:
        """This many tokens that may be drawn; -1: all."""
        return list(self._vocabulary[: None if count < 0 else count])

    def _logprobs(self, ids: list[str], sampled: list[list[int]]) -> LogprobsLists | None:
        """A row for each request: the drawn token, and the tokens whose logprobs it asked for."""
        if self._asked.keys().isdisjoint(ids):
            return None
        rows = [
            [*token, *self._asked.get(req_id, ())]
            for req_id, token in zip(ids, sampled, strict=True)
        ]
        told = np.zeros((len(ids), max(map(len, rows))), dtype=np.int64)
        for row, tokens in zip(told, rows, strict=True):
            row[: len(tokens)] = tokens
        chances = np.full(told.shape, self._logprob, dtype=np.float32)
        return LogprobsLists(told, chances, np.ones(len(ids), dtype=np.int64))

    def _prompt_logprobs(self, prompt: list[int], others: list[int]) -> LogprobsTensors:
        """A row for each token of a prompt except its first."""
        rows = [[token, *others] for token in prompt[1:]]
        told = torch.tensor(rows, dtype=torch.int64).reshape(len(rows), 1 + len(others))
        chances = torch.full(told.shape, self._logprob)
        return LogprobsTensors(told, chances, torch.ones(len(rows), dtype=torch.int64))

    def _token(self, req_id: str, generated: int, mask: Any) -> int:
        if (prompt := self._placed.get(req_id)) is not None:
            return token_at(prompt + generated, self._vocabulary.stop)
        allowed = None if mask is None else _allowed(mask, self._vocabulary.stop)
        # A special token is drawn only if the grammar leaves no other: its text is complete.
        words = self._vocabulary if allowed is None else [t for t in allowed if t >= FIRST_WORD]
        token = self._random.choice(words or allowed or self._vocabulary)
        length, stop = self._ends.get(req_id, (0, token))
        ends = generated + 1 == length and (allowed is None or stop in allowed)
        return stop if ends else token

    def _complete(self, step: SchedulerOutput) -> set[str]:
        """The requests whose present tokens are all computed after this step: these get a token."""
        given, cached = step.num_scheduled_tokens, step.scheduled_cached_reqs
        complete = {
            new.req_id
            for new in step.scheduled_new_reqs
            if new.num_computed_tokens + given[new.req_id] >= self._prompt_tokens[new.req_id]
        }
        for req_id, computed, generated in zip(
            cached.req_ids, cached.num_computed_tokens, cached.num_output_tokens, strict=True
        ):
            if computed + given[req_id] >= self._prompt_tokens[req_id] + generated:
                complete.add(req_id)
        return complete

    def _forget(self, step: SchedulerOutput) -> None:
        for req_id in step.finished_req_ids:
            self._prompt_tokens.pop(req_id, None)
            self._ends.pop(req_id, None)
            self._placed.pop(req_id, None)
            self._asked.pop(req_id, None)
            self._prompts.pop(req_id, None)

    def check_health(self) -> None:
        """Never fails."""

    def shutdown(self) -> None:
        """Nothing to stop."""


def _masks(grammar: GrammarOutput | None) -> dict[str, Any]:
    """By request, the tokens that its grammar allows next: one bit for each of the vocabulary.

    No request has drafts here, so each has one row.
    """
    if grammar is None:
        return {}
    return dict(zip(grammar.structured_output_request_ids, grammar.grammar_bitmask, strict=True))


def _allowed(mask: Any, vocab_size: int) -> Sequence[int]:
    bits = np.unpackbits(mask.view(np.uint8), bitorder="little", count=vocab_size)
    return np.flatnonzero(bits).tolist()


def _done(value: Any) -> "Future[Any]":
    future: Future[Any] = Future()
    future.set_result(value)
    return future
