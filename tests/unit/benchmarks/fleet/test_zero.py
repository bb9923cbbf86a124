from benchmarks.fleet.zero import Round, configured, page
from serve_app.config import ray_llm_config


def test_what_is_deployed_may_go_to_no_replica() -> None:
    (entry,) = configured()["applications"][0]["args"]["llm_configs"]
    deployment = ray_llm_config(entry)["deployment_config"]
    assert deployment["autoscaling_config"]["min_replicas"] == 0
    assert "num_replicas" not in deployment


def test_a_request_that_was_not_answered_whole_is_a_target_missed() -> None:
    rounds = [Round(20.0, 30.0, (14.0, 15.0), 0, 0.04), Round(21.0, 31.0, (16.0,), 1, 0.03)]
    rows = {row.id: row for row in page(rounds).rows}
    assert rows["zero_missed"].met is False and rows["zero_missed"].estimate.value == 1
    assert rows["zero_first_s"].estimate.value == 15.0
    assert rows["zero_last_s"].estimate.value == 15.5
    assert "| 2 | 21.00 | 31.00 | 16.00 | 16.00 | 0.030 | 1 |" in page(rounds).markdown("x")
