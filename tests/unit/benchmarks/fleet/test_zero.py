from typing import cast

from pytest import MonkeyPatch

from benchmarks.fleet import zero
from benchmarks.fleet.zero import AT_ONCE, Round, configured, page
from serve_app.config import ray_llm_config
from serve_app.demo.client import Answer, Ask
from serve_app.demo.cluster import LocalCluster


def test_what_is_deployed_may_go_to_no_replica() -> None:
    (entry,) = configured()["applications"][0]["args"]["llm_configs"]
    deployment = ray_llm_config(entry)["deployment_config"]
    assert deployment["autoscaling_config"]["min_replicas"] == 0
    assert "num_replicas" not in deployment


def test_requests_that_are_not_answered_whole_are_counted(monkeypatch: MonkeyPatch) -> None:
    def answer(status: int) -> Answer:
        return Answer(status, "", 16, 14.0 if status == 200 else None, (), 15.0)

    held = [answer(200)] * 6 + [answer(503)] * 2
    sent: list[int] = []

    def answers(url: str, asks: list[Ask]) -> list[Answer]:
        sent.append(len(asks))
        return held if len(asks) == AT_ONCE else [answer(200)]

    gone = iter([17.0, 47.0])
    monkeypatch.setattr(zero, "_answers", answers)
    monkeypatch.setattr(zero, "_until", lambda cluster, what, begin_s: next(gone))
    one = zero._round(cast(LocalCluster, None), "")
    assert one == Round(17.0, 47.0, (14.0,) * 6, 2, 14.0)
    assert sent == [1, AT_ONCE, 1]  # one so that the last answer is known, and one after them


def test_a_request_that_was_not_answered_whole_is_a_target_missed() -> None:
    rounds = [Round(20.0, 30.0, (14.0, 15.0), 0, 0.04), Round(21.0, 31.0, (16.0,), 1, 0.03)]
    rows = {row.id: row for row in page(rounds).rows}
    assert rows["zero_missed"].met is False and rows["zero_missed"].estimate.value == 1
    assert rows["zero_first_s"].estimate.value == 15.0
    assert rows["zero_last_s"].estimate.value == 15.5
    assert rows["zero_decided_s"].estimate.value == 20.5
    assert rows["zero_gone_s"].estimate.value == 30.5
    assert "| 2 | 21.00 | 31.00 | 16.00 | 16.00 | 0.030 | 1 |" in page(rounds).markdown("x")
