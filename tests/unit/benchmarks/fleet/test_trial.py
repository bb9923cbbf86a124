"""What the real and the simulated fleet are asked, and that they are configured alike."""

import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks.fleet.counts import Counts
from benchmarks.fleet.deployed import LONGEST, Look, Real, Said, Served, TrialError, asks
from benchmarks.fleet.real_page import Side, real_side, rows
from benchmarks.fleet.trial import LEAST, MAX_MODEL_LEN, MOST, PHASES, Starts, Trial
from serve_app.autoscaling_block import AUTOSCALING_POLICY
from serve_app.config import ray_llm_config

TRIAL = Trial()


def test_the_trace_is_the_same_at_every_call_and_has_the_rate_of_each_phase() -> None:
    drawn, again = TRIAL.requests(), Trial().requests()
    assert all((a == b).all() for a, b in zip(drawn, again, strict=True))
    assert (drawn.arrival_s != Trial(seed=2).requests().arrival_s[: len(drawn.arrival_s)]).any()
    begin_s = 0.0
    for (seconds, per_s), end_s in zip(PHASES, TRIAL.ends_s, strict=True):
        came = int(((drawn.arrival_s >= begin_s) & (drawn.arrival_s < end_s)).sum())
        assert abs(came - per_s * seconds) < 4 * np.sqrt(per_s * seconds) + per_s * 5
        begin_s = end_s
    assert begin_s == TRIAL.seconds


def test_every_request_fits_into_the_model_and_ends_before_what_clients_allow() -> None:
    drawn = TRIAL.requests()
    assert drawn.input.min() >= 1 and drawn.output.min() >= 1
    assert drawn.output.max() < LONGEST and drawn.input.max() + LONGEST <= MAX_MODEL_LEN
    sent = asks(drawn, TRIAL.seed)
    assert [len(ask.prompt) for ask in sent] == drawn.input.tolist()
    assert [ask.output_tokens for ask in sent] == drawn.output.tolist()
    assert [ask.at_s for ask in sent] == drawn.arrival_s.tolist()


def test_both_fleets_have_one_autoscaling_configuration_with_our_policy() -> None:
    (entry,) = TRIAL.application()["args"]["llm_configs"]
    deployed = ray_llm_config(entry)["deployment_config"]["autoscaling_config"]
    assert TRIAL.autoscaling() == deployed
    assert deployed["policy"]["policy_function"] == AUTOSCALING_POLICY
    assert (deployed["min_replicas"], deployed["max_replicas"]) == (LEAST, MOST)
    learned = TRIAL.autoscaling(start_s=31.0)["policy"]["policy_kwargs"]
    assert learned == {**deployed["policy"]["policy_kwargs"], "start_s": 31.0}


def test_the_simulated_accelerator_is_the_emulated_one_slowed() -> None:
    (entry,) = TRIAL.application()["args"]["llm_configs"]
    brimful = ray_llm_config(entry)["engine_kwargs"]["additional_config"]["brimful"]
    assert brimful["batching"]["sla"] == TRIAL.sla.model_dump()
    slow, usual = Trial(time_scale=3.0).profile(), Trial(time_scale=1.0).profile()
    features = 20, 3000, 200, 500
    assert slow.step_s(*features) == pytest.approx(3 * usual.step_s(*features))
    engine = entry["engine_kwargs"]
    assert (slow.max_num_seqs, slow.max_num_batched_tokens) == (
        engine["max_num_seqs"],
        engine["max_num_batched_tokens"],
    )


GOOD = Served(200, True, 0.5, 0.1, 9.0, 0.0)
SEEN = Real(
    looks=(Look(-30.0, 1, 1, 0, 0), Look(-5.0, 1, 0, 1, 0), Look(100.0, 3, 2, 1, 0),
           Look(140.0, 3, 1, 2, 0), Look(150.0, 3, 0, 3, 0), Look(300.0, 1, 0, 1, 2),
           Look(310.0, 1, 0, 1, 0)),
    said=(Said(1.0, 1, 0.5, None, 60.0, "words"),),
    served=(GOOD, Served(200, True, 9.0, 0.1, 9.5, 0.0), Served(200, True, 0.5, 0.3, 9.0, 0.0),
            Served(503, False, None, 0.0, 0.1, 0.0)),
    waited_frac=None,
    others_cores=0.1,
)  # fmt: skip


def test_starts_are_those_of_the_run_the_first_for_itself() -> None:
    assert SEEN.starts() == Starts(30.0, 25.0, 45.0)
    alone = Real(SEEN.looks[:2], (), SEEN.served, None, 0.0)
    with pytest.raises(TrialError, match="added no replica"):
        alone.starts()


def test_a_real_run_is_read_as_it_was_kept(tmp_path: Path) -> None:
    SEEN.write(tmp_path / "cache" / "real.json")
    json.loads((tmp_path / "cache" / "real.json").read_text())
    assert Real.read(tmp_path / "cache" / "real.json") == SEEN
    with pytest.raises(TrialError, match="no real run was kept"):
        Real.read(tmp_path / "none.json")


def test_the_real_side_counts_what_starts_and_drains_and_who_was_inside() -> None:
    side = real_side(SEEN, TRIAL)
    assert side.inside.tolist() == [True, False, False, False]
    assert side.paid_s == 100 + 200 * 3 + 10 * 3 + (TRIAL.seconds - 310)


def test_each_figure_is_the_real_one_over_the_simulated() -> None:
    def side(running: Counts, paid_s: float, inside: list[bool]) -> Side:
        target = Counts.of([(0.0, 1), (10.0, 4)])
        return Side(target, running, paid_s, np.array(inside))

    real = side(Counts.of([(0.0, 1), (60.0, 4)]), 330.0, [True, True, False, False])
    simulated = side(Counts.of([(0.0, 1), (50.0, 4)]), 300.0, [True, False, False, False])
    found = {row.id: row for row in rows(real, simulated, Starts(0.0, 0.0, 40.0), 100.0)}
    values = {name: round(row.estimate.value, 4) for name, row in found.items()}
    assert values == {
        "elastic_real_running": 220 / 250,
        "elastic_real_apart": 30 / 250,
        "elastic_real_target_apart": 0.0,
        "elastic_real_paid": 1.1,
        "elastic_real_inside": 2.0,
        "elastic_real_start": 40.0,
    }
    verdicts = [row.met for row in found.values()]
    assert verdicts == [False, False, True, True, False, None]


def test_the_simulated_fleet_grows_to_four_replicas_and_is_one_again() -> None:
    outcome = TRIAL.simulated(Starts(idle_s=20.0, first_s=15.0, later_s=30.0))
    assert outcome.targets[:60].max() == LEAST
    assert outcome.ready.max() == MOST and outcome.ready[-1] == LEAST
    assert outcome.requests.arrival_s[0] == TRIAL.requests().arrival_s[0] + 20.0
    assert 0.6 < outcome.attainment < 0.99


@pytest.mark.parametrize(("first_s", "assumed_s"), [(14.0, 60.0), (60.0, 60.0), (75.0, 75.0)])
def test_a_first_start_is_known_to_the_policy_only_where_it_is_no_shorter_than_assumed(
    first_s: float, assumed_s: float
) -> None:
    assert Starts(20.0, first_s, 30.0).assumed_s == assumed_s
