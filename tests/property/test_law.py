"""The law, for whatever rows and reports: its limits, its model, the rows that it is sent."""

import json
import math
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.law.cap import SHARED_DEVIATIONS, by_latency, by_memory
from controller.law.forecast import Ahead, Forecast
from controller.law.rows import KEPT, TOOK_S, RowHistory
from controller.law.step_model import GUESS_STEPS, Fit, guess, predict_s
from controller.models.step_time import StepModel
from controller.models.survival import Exposure, Survival
from controller.policies.adaptive import decide
from controller.policies.base import Memory
from controller.records import ClassSlo, PackedRows, StepSample
from replicas.engine.limiter import prompt_room
from replicas.engine.step_log import StepLog
from tests.builders import engine, exposure, rows_of, seen
from tests.property.strategies import MAX_RUNNING, configs, examples, reports, samples, tables

exposures = st.lists(st.integers(1, 5000), max_size=60).map(exposure)


def packed(seen: Exposure) -> bytes:
    return np.concatenate([seen.ended, seen.at_risk]).astype(np.float32).tobytes()


@examples(0.5)
@given(st.data())
def test_limits_are_finite_and_inside_the_bounds_whatever_was_seen(data: st.DataObject) -> None:
    config = data.draw(configs("adaptive"))
    slos = tuple(
        ClassSlo(itl_s, 99.0)
        for itl_s in data.draw(st.lists(st.sampled_from([0.03, 0.1, math.inf]), max_size=3))
    )
    steps, memory = list[StepSample](), dict[str, Any]()
    for seq in range(1, data.draw(st.integers(2, 5))):
        steps += data.draw(st.lists(samples, max_size=40)) * data.draw(st.integers(1, 5))
        with_classes = [replace(s, by_class=(s.decodes,) + (0,) * 2) for s in steps]
        said = data.draw(reports())
        decision, after = decide(
            memory,
            replace(
                found := seen(
                    config,
                    rows=rows_of(with_classes if slos else steps),
                    engine=engine(graph_tokens=data.draw(st.sampled_from([0, 512]))),
                    slos=slos,
                    batch=data.draw(tables(said.running)).astype(np.float32).tobytes(),
                    queue=data.draw(tables(min(said.waiting, 64))).astype(np.float32).tobytes(),
                    lengths_seen=packed(data.draw(exposures)),
                    running=said.running,
                    waiting=said.waiting,
                    kv_used_tokens=said.kv_used_tokens,
                    seq=seq,
                ),
                report=found.report,
            ),
        )
        assert config.max_running.min <= decision.max_running <= config.upper_bound(MAX_RUNNING)
        assert isinstance(decision.max_running, int)
        assert decision.reserve is not None
        assert math.isfinite(decision.reserve.fixed) and decision.reserve.each >= 0
        assert math.isfinite(decision.reserve.each)
        targets = [decision.target_s, decision.target_full_s]
        promised = min((s.itl_s for s in slos), default=config.sla.itl_s or math.inf)
        assert (decision.target_s is None) == math.isinf(promised)
        for one in decision.by_class:
            targets += [one.target_s or None, one.target_full_s or None]
        assert all(s is None or 0 < s < math.inf for s in targets)
        if decision.model:
            assert all(0 <= cost < math.inf for cost in decision.model.costs)
            assert 0 <= decision.model.tail_frac < math.inf
        assert decision.late_anyway is None or 0 <= decision.late_anyway <= 1
        wire = json.dumps(after)
        assert len(wire) < 2000 and len(msgspec.msgpack.encode(after)) < 2000
        memory = json.loads(wire)
        if data.draw(st.booleans()):  # a report that did not arrive
            steps = steps[: len(steps) // 2]


@examples(0.25)
@given(st.data(), st.integers(1, 3))
def test_what_it_remembers_goes_on_in_another_process(data: st.DataObject, count: int) -> None:
    config = data.draw(configs("adaptive"))
    steps, here, there = list[StepSample](), dict[str, Any](), dict[str, Any]()
    for seq in range(1, count + 1):
        steps += data.draw(st.lists(samples, min_size=3, max_size=20))
        facts = seen(config, rows=rows_of(steps), seq=seq, finished=5 * seq, preemptions=seq)
        one, here = decide(here, facts)
        other, there = decide(by_msgpack(there), facts)
        assert one == other


def by_msgpack(memory: Memory) -> Memory:
    return msgspec.msgpack.decode(msgspec.msgpack.encode(memory))


costs = st.builds(
    StepModel,
    c0=st.floats(0.002, 0.05),
    c1=st.floats(1e-5, 1e-3),
    c2=st.floats(1e-8, 1e-6),
    c3=st.floats(1e-5, 1e-3),
    c4=st.just(0.0),
    sigma_s=st.just(0.0),
    mixed_s=st.floats(0, 0.01),
)


ENGINES = {  # with the SLA that each is held to
    "a card": (StepModel(0.006, 1e-5, 6e-8, 2e-5, 0.0, 0.0, mixed_s=0.002), 0.03),
    "a large model": (StepModel(0.02, 2e-4, 1e-7, 1e-4, 1e-8, 0.0, mixed_s=0.004), 0.05),
    "one core": (StepModel(0.025, 1e-3, 1e-7, 1.2e-3, 1e-7, 0.0, mixed_s=0.008), 0.11),
    "prompts that cost much": (StepModel(0.007, 7e-5, 1e-7, 9e-4, 0.0, 0.0, mixed_s=0.008), 0.05),
}


@pytest.mark.parametrize("name", ENGINES)
@pytest.mark.parametrize("seed", [0, 1])
def test_the_model_of_a_linear_engine_predicts_it_to_a_hundredth(name: str, seed: int) -> None:
    (model, itl_s), draw, steps = ENGINES[name], np.random.default_rng(seed), []
    for _ in range(300):
        decodes = int(draw.integers(1, 200))
        kv, prompt = decodes * int(draw.integers(50, 2000)), int(draw.integers(-900, 900))
        context = max(prompt, 0) * int(draw.integers(100, 4000))
        took_s = model.predict_s(decodes, kv, max(prompt, 0), context)
        steps.append(StepSample(decodes, kv, max(prompt, 0), context, took_s))
    rows = seen_rows(steps)
    fit = Fit(rows, guess(itl_s), GUESS_STEPS, 0)
    assert predict_s(fit.model, rows.table) == pytest.approx(rows.table[:, TOOK_S], rel=0.01)


def seen_rows(steps: list[StepSample]) -> Any:
    history = RowHistory()
    history.add(rows_of(steps))
    return history.rows


@pytest.mark.parametrize("name", ENGINES)
@pytest.mark.parametrize("at", [1, 5, 24, 27, 150, 199])
@pytest.mark.parametrize("stood_s", [5.0, 18.0])
def test_one_step_that_stood_still_changes_no_cost(name: str, at: int, stood_s: float) -> None:
    model, itl_s = ENGINES[name]
    steps = [
        StepSample(b, 100 * b, p, 0, model.predict_s(b, 100 * b, p, 0))
        for b, p in ((1 + 37 * k % 100, 300 * (k % 3 == 0)) for k in range(200))
    ]
    usual = Fit(seen_rows(steps), guess(itl_s), GUESS_STEPS, 0)
    steps[at] = replace(steps[at], duration_s=stood_s)
    found = Fit(seen_rows(steps), guess(itl_s), GUESS_STEPS, 0)
    rows = seen_rows(steps).table
    assert predict_s(found.model, rows) == pytest.approx(predict_s(usual.model, rows), rel=0.05)


@pytest.mark.parametrize("seed", [0, 1])
def test_steps_with_images_tell_nothing_of_the_others(seed: int) -> None:
    """One step in five has an encoder's 80 ms; the batch hardly changes (decision 50)."""
    model, draw, steps = ENGINES["a large model"][0], np.random.default_rng(seed), []
    for _ in range(300):
        decodes, prompt = int(draw.integers(20, 25)), int(draw.integers(77, 83))
        took_s = model.predict_s(decodes, 300 * decodes, prompt, 0)
        longer_s = 0.08 * draw.integers(1, 3) if draw.random() < 0.2 else 0.0
        steps.append(StepSample(decodes, 300 * decodes, prompt, 0, took_s + longer_s))
    fit = Fit(seen_rows(steps), guess(0.05), GUESS_STEPS, 0)
    assert fit.model.predict_s(50, 15_000, 200, 0) == pytest.approx(
        model.predict_s(50, 15_000, 200, 0), rel=0.1
    )


@pytest.mark.parametrize(("cv", "images"), [(0, 0), (0.02, 0), (0.02, 0.02), (0.1, 0), (0.02, 0.1)])
def test_a_step_ends_before_the_tile_that_takes_too_long(cv: float, images: float) -> None:
    """From 128 tokens on a step takes a fifth more, as on an A100.

    Noise of 10% hides that, and so does an encoder in one step of ten (decision 50).
    """
    model, draw, steps = ENGINES["a large model"][0], np.random.default_rng(3), []
    for _ in range(600):
        decodes, prompt = int(draw.integers(5, 20)), int(draw.integers(40, 160))
        took_s = model.predict_s(decodes, 300 * decodes, prompt, 0)
        took_s *= (1.2 if decodes + prompt >= 128 else 1.0) * (1 + cv * draw.standard_normal())
        took_s += 0.08 if draw.random() < images else 0.0
        steps.append(StepSample(decodes, 300 * decodes, prompt, 0, max(took_s, 0.001)))
    found = Fit(seen_rows(steps), guess(0.05), GUESS_STEPS, 0).model
    if cv > 0.05 or images > 0.05:
        assert found.tiles == ()
        return
    target_s = model.predict_s(10, 3000, 140, 0)
    assert prompt_room(found, 10, 3000, 0, target_s) == pytest.approx(117, abs=0.5)
    assert prompt_room(found, 10, 3000, 0, 1.25 * target_s) > 140
    for prompt in (60, 100, 125, 145):
        took_s = model.predict_s(10, 3000, prompt, 0) * (1.2 if prompt >= 118 else 1.0)
        assert found.predict_s(10, 3000, prompt, 0) == pytest.approx(took_s, rel=0.02)


def ahead_of(data: st.DataObject, requests: int) -> tuple[Ahead, Ahead]:
    forecast = Forecast(Survival(data.draw(exposures)))
    one = data.draw(tables(1))
    return forecast.of(data.draw(tables(requests))), forecast.of(one)


@examples(0.25)
@given(st.data(), costs, st.integers(1, 100), st.floats(0.001, 0.5), st.floats(1, 3))
def test_more_time_lets_more_requests_run_and_one_more_is_late(data, model, here, limit_s, more):
    running, newcomer = ahead_of(data, here)
    k = by_latency(model, running, newcomer, limit_s)
    assert by_latency(model, running, newcomer, limit_s * more) >= k
    if math.isfinite(k):

        def longest_s(count: float) -> float:
            alive, held, error = (
                getattr(running, f) + count * getattr(newcomer, f)
                for f in ("alive", "mean", "error")
            )
            held += SHARED_DEVIATIONS * error
            each = newcomer.mean + SHARED_DEVIATIONS * newcomer.error
            there = model.c1 * newcomer.alive + model.c2 * each > 1e-12
            return float((model.c0 + model.c1 * alive + model.c2 * held)[there].max())

        assert longest_s(k) == pytest.approx(limit_s, rel=1e-6)
        assert longest_s(k + 1) > limit_s


@examples(0.25)
@given(st.data(), st.integers(1, 60), st.floats(100, 1e6), st.floats(1, 3))
def test_more_memory_holds_more_requests_and_one_more_does_not_fit(data, here, tokens, more):
    running, newcomer = ahead_of(data, here)
    k = by_memory(running, newcomer, tokens, 256)
    assert k <= by_memory(running, newcomer, tokens * more, 256) <= 256

    def held(count: float) -> float:
        both = (running.mean + count * newcomer.mean, running.error + count * newcomer.error)
        return float((both[0] + SHARED_DEVIATIONS * both[1])[grows].max(initial=0.0))

    grows = newcomer.mean > 1e-6
    if k < 256:
        assert held(k) == pytest.approx(tokens, rel=1e-6)
        assert held(k + 1) > tokens


@examples(0.5)
@given(st.data())
def test_the_rows_that_are_known_are_those_of_the_engine_and_each_once(data):
    """Reports are lost, sent twice and overtaken; controllers and engines start anew."""
    log, history = StepLog(), RowHistory()
    sent: list[PackedRows] = []
    life, started = 0, list[int]()
    for _ in range(data.draw(st.integers(1, 25))):
        event = data.draw(st.sampled_from("srrrrtoce"))
        if event == "s":
            for _ in range(data.draw(st.sampled_from([1, 7, 150, 450]))):
                number = log.steps
                log.add(step_of(life, number))
                started.append(number)
        elif event == "e":  # the engine; the loop gives it a new history (seq goes back)
            log, history, sent, started, life = StepLog(), RowHistory(), [], [], life + 1
        elif event == "c":
            history, sent = RowHistory(), []
        elif event == "o" and sent:  # an older report again
            history.add(data.draw(st.sampled_from(sent)))
        else:
            packed = log.packed()
            sent.append(packed)
            if event != "t":  # else it is lost
                history.add(packed)
                log.wanted = history.wanted
        rows = history.rows
        assert (np.diff(rows.numbers) > 0).all()
        assert rows.table[:, 0].tolist() == [n % 200 for n in rows.numbers]
        assert rows.table[:, TOOK_S] == pytest.approx([life + n / 1000 + 1 for n in rows.numbers])
        assert len(rows) <= 2 * KEPT
        assert len(rows.starts) <= min(len(started), 256)
    for _ in range(2):
        history.add(log.packed())
        log.wanted = history.wanted
    kept = min(log.steps, KEPT)
    assert history.rows.numbers.tolist()[-kept:] == list(range(log.steps - kept, log.steps))[-kept:]
    assert history.wanted == log.steps
    assert history.rows.starts.tolist() == [float(n) for n in started[-256:]]


def step_of(life: int, number: int) -> StepSample:
    return StepSample(number % 200, 0, 1, 0, life + number / 1000 + 1, started=(number,))


def test_an_engine_that_started_anew_is_known_by_its_rows_where_its_reports_are_not() -> None:
    history = RowHistory()
    for life, steps in ((0, 1000), (1, 5)):
        log = StepLog()
        for number in range(steps):
            log.add(step_of(life, number))
        history.add(log.packed())
    assert history.rows.numbers.tolist() == [0, 1, 2, 3, 4]
