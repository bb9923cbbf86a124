"""Step times: decodes and their KV tokens, prompts with decodes, one chunk by itself.

The last is the time of a launch: with a step ahead, the step before waits for it
(``replicas.engine.intervals``).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tqdm import tqdm

from benchmarks.gpu.budget import Budget
from benchmarks.gpu.engine import Engine
from controller.records import StepSample

STEPS = 12  # of a cell of decodes; their median counts
SETTLE = 3  # steps after a change that are not counted: scheduled before it
CHUNKS = 8  # steps of a cell with a prompt, at most
ALONE = 6  # prompts of a chunk each, with steps of decodes alone between them


@dataclass(frozen=True, slots=True)
class Grid:
    """The cells.

    Args:
        decodes, contexts: each number of decodes at each context.
        prompts, chunks, prompt_decodes: each prompt in chunks of each size, with each of these
            numbers of decodes.
        context: of these decodes.
    """

    decodes: tuple[int, ...]
    contexts: tuple[int, ...]
    prompts: tuple[int, ...]
    chunks: tuple[int, ...]
    prompt_decodes: tuple[int, ...]
    context: int = 256

    @property
    def tokens(self) -> list[int]:
        """Token counts of steps: the nodes of the table."""
        return sorted({*self.decodes, *self.chunks})


CARD = Grid(
    decodes=(1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 160, 192, 256, 320, 384, 448, 512),
    contexts=(64, 512, 1536),
    prompts=(4096, 12288),
    chunks=(16, 32, 64, 128, 192, 256, 384, 512, 768, 1024, 2048, 4096),
    prompt_decodes=(0, 16, 64, 192, 320),
)
TRY = Grid((1, 2, 4, 8, 16, 24), (32, 128), (512,), (32, 64, 128, 256), (0, 4), 32)


def measure(
    engine: Engine, grid: Grid, budget: Budget
) -> tuple[list[StepSample], list[StepSample]]:
    """The median step of each cell; and of each chunk alone between steps of decodes."""
    cells = len(grid.contexts) + len(grid.prompt_decodes) + 1
    found: list[StepSample] = []
    alone: list[StepSample] = []
    with tqdm(total=cells, desc="steps", leave=False) as bar:
        if budget.allows(1.0, "chunks alone"):  # first: without launches no replay is right
            alone = _alone(engine, grid, budget)
        bar.update()
        for context in grid.contexts:
            if budget.allows(1.0, f"steps of decodes at a context of {context}"):
                found += _decodes(engine, context, grid.decodes, budget)
            bar.update()
        for decodes in grid.prompt_decodes:
            if budget.allows(1.0, f"steps with prompts and {decodes} decodes"):
                found += _prompts(engine, decodes, grid, budget)
            bar.update()
    return found, alone


def _decodes(
    engine: Engine, context: int, counts: Sequence[int], budget: Budget
) -> list[StepSample]:
    """From the most decodes to the fewest: each batch is a part of the one before."""
    steps = len(counts) * (STEPS + SETTLE)
    fit = [n for n in counts if n * (context + 2 * steps) <= engine.kv_tokens]
    running = _fill(engine, max(fit, default=0), context)
    found = []
    for n in sorted(fit, reverse=True):
        if not budget.left_s:
            break
        engine.core.abort_requests(running[n:])
        del running[n:]
        samples = _recorded(engine, lambda taken: len(taken) < STEPS + SETTLE)
        found += _median([s for s in samples[SETTLE:] if s.decodes == n and not s.prefill_tokens])
    engine.clear()
    return found


def _prompts(engine: Engine, decodes: int, grid: Grid, budget: Budget) -> list[StepSample]:
    """The prompts, one after the other, in each chunk with the same decodes."""
    scheduler: Any = engine.scheduler
    _fill(engine, decodes, grid.context)
    found: list[StepSample] = []
    for prompt in grid.prompts:
        for chunk in grid.chunks:
            fits = chunk <= prompt and decodes + chunk <= engine.size.max_num_batched_tokens
            if not fits or not budget.left_s:
                continue
            scheduler.token_budget = decodes + chunk
            added = engine.add(prompt, 2)

            def goes_on(taken: Sequence[StepSample], added: str = added) -> bool:
                return added in scheduler.requests and len(taken) < CHUNKS + SETTLE

            samples = _recorded(engine, goes_on)
            scheduler.token_budget = None
            if added in scheduler.requests:
                engine.core.abort_requests([added])
            whole = [s for s in samples if (s.decodes, s.prefill_tokens) == (decodes, chunk)]
            found += _median(whole[1:] or whole)
            _recorded(engine, lambda taken: bool(decodes) and len(taken) < SETTLE)
    engine.clear()
    return found


def _alone(engine: Engine, grid: Grid, budget: Budget) -> list[StepSample]:
    """One chunk, then decodes alone, and again."""
    decodes = grid.prompt_decodes[1]
    _fill(engine, decodes, grid.context)
    found: list[StepSample] = []
    for chunk in grid.chunks:
        taken: list[StepSample] = []
        for _ in range(ALONE if budget.left_s else 0):
            _recorded(engine, lambda steps: len(steps) < SETTLE)
            engine.add(chunk, 1)
            samples = _recorded(engine, lambda steps: len(steps) < 2 * SETTLE)
            taken += [s for s in samples if s.prefill_tokens == chunk]
        found += _median(taken)
    engine.clear()
    return found


def _median(samples: Sequence[StepSample]) -> list[StepSample]:
    return sorted(samples, key=lambda s: s.duration_s)[len(samples) // 2 :][:1]


def _fill(engine: Engine, n: int, context: int) -> list[str]:
    """Requests that decode until they are aborted."""
    scheduler: Any = engine.scheduler
    names = [engine.add(context, None) for _ in range(n)]
    while scheduler.waiting or any(not r.num_output_tokens for r in scheduler.running):
        engine.step()
    return names


def _recorded(engine: Engine, goes_on: Callable[[Sequence[StepSample]], bool]) -> list[StepSample]:
    """Run and record steps while ``goes_on`` permits it, given those so far."""
    scheduler: Any = engine.scheduler
    scheduler.samples, scheduler.recording = [], True
    while engine.busy() and goes_on(scheduler.samples):
        engine.step()
    scheduler.recording = False
    return list(scheduler.samples)
