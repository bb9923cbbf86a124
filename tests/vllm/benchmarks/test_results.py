"""`make results`, as small as it can be: that it runs, and what its parts hand over."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from benchmarks.contests.race import highest
from benchmarks.cost.bare_engine import BareEngine
from benchmarks.report.workers import Bench
from benchmarks.results import g1_g2_memory as results_memory
from benchmarks.results import g8_g9_control as results_control
from controller.config import parse_batching
from replicas.profiles.profile import StepNoise
from replicas.profiles.profile_file import load_profile


def test_memory_part_runs_and_holds_adaptive_against_the_best_of_five() -> None:
    with ThreadPoolExecutor(1) as pool:
        section = results_memory.run(Bench(pool, (11,), small=True))
    assert [row.id for row in section.rows] == [
        "g1_best_fixed-128-128",
        "g1_servers_fixed-128-128",
        "g1_best_static",
        "g1_default",
        "g2_preemptions_fixed-128-128",
    ]
    assert section.rows[0].at_least == 0.995
    assert section.rows[-1].met is None  # preemptions are no aim
    assert "clairvoyant" in section.markdown("make results")


def test_a_violation_run_counts_tokens_and_steps() -> None:
    of_tokens, of_steps = results_control.violations(
        results_control.Violations(99, 1.3, 0.03, seed=1, steps=200)
    )
    assert 0 <= of_tokens < 20
    assert 0 <= of_steps < 20


def test_the_bare_engine_accounts_for_its_tokens() -> None:
    config = parse_batching({"policy": "static"})
    engine = BareEngine(config, load_profile("paper-fig3"), StepNoise(0, 0), 50, 20, seed=3)
    prompts = sum(engine.step().prefill_tokens for _ in range(300))
    report = engine.report("one")
    assert report.finished > 100
    assert report.arrivals - report.finished == engine.state.running
    # Prompts of 50 tokens each: those that started are computed, or nearly.
    assert prompts == pytest.approx(50 * report.arrivals, rel=0.1)
    assert report.lengths.mean_output == pytest.approx(20, rel=0.2)


@pytest.mark.parametrize("near", [0.02, 1.0, 3.1, 40.0])
@pytest.mark.parametrize("capacity", [0.5, 3.0, 11.0])
def test_the_highest_rate_is_found_from_any_guess(near: float, capacity: float) -> None:
    found = highest(lambda rate: rate <= capacity, near, 0.01, 50.0)
    assert capacity / 1.03 <= found <= capacity
