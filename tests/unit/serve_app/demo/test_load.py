"""What the demo asks for, sized by what was timed at the client."""

import pytest

from serve_app.demo.calibrate import StepTimes
from serve_app.demo.load import LOAD_FRAC, Load, make_load
from serve_app.demo.model import MODELS, SMALL, DemoModel

TIMES = StepTimes(few_s=0.040, many_s=0.056, prompt_token_s=0.001)
SLA_MS = 100.0


def load(
    model: DemoModel = SMALL, times: StepTimes = TIMES, seconds: float = 20.0, seed: int = 1
) -> Load:
    return make_load(model, times, SLA_MS, replicas=2, seconds=seconds, seed=seed)


def test_at_the_full_rate_steps_last_as_long_as_the_sla() -> None:
    rate, sla_s = TIMES.streams_per_s(SLA_MS, SMALL), SLA_MS / 1000
    outs = SMALL.stream.output_tokens + SMALL.longs_per_stream * SMALL.long_prompt.output_tokens
    ins = SMALL.stream.prompt_tokens + SMALL.longs_per_stream * SMALL.long_prompt.prompt_tokens
    decodes, prompt_tokens = rate * outs * sla_s, rate * ins * sla_s
    step_s = TIMES.empty_s + decodes * TIMES.decode_s + prompt_tokens * TIMES.prompt_token_s
    assert step_s == pytest.approx(sla_s)


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
def test_both_kinds_of_request_come_over_the_whole_time(model: DemoModel) -> None:
    made = load(model, seconds=60.0)
    streams = [ask for ask in made.asks if ask.max_tokens == model.stream.output_tokens]
    longs = [ask for ask in made.asks if ask.max_tokens == model.long_prompt.output_tokens]
    assert (len(streams), len(longs)) == (made.streams, made.long_prompts)
    assert len(streams) + len(longs) == len(made.asks)
    assert all(len(ask.prompt) == model.long_prompt.prompt_tokens for ask in longs)
    assert [ask.at_s for ask in made.asks] == sorted(ask.at_s for ask in made.asks)
    for asks in (streams, longs):
        assert 0 <= asks[0].at_s < 15
        assert 45 < asks[-1].at_s <= 60
    rate = TIMES.streams_per_s(SLA_MS, model)
    assert made.streams == pytest.approx(60 * 2 * LOAD_FRAC * rate, abs=1)
    assert made.long_prompts == pytest.approx(
        made.streams * model.longs_per_stream, abs=2 * model.burst
    )
