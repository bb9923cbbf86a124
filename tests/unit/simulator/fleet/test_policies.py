import pytest

from controller.errors import ConfigError
from serve_app.autoscaling_block import AUTOSCALING_POLICY
from serve_app.config import parse_scaling
from serve_app.scaling.reading import PUBLISHED
from simulator.fleet.policies import ORACLE, RIVALS, parse_policy, rival_of
from tests.unit.simulator.fleet.fleets import GROUND

BOUNDS = {"min_replicas": 1, "max_replicas": 9}


def test_ours_is_built_as_serve_app_builds_it() -> None:
    policy = parse_policy("brimful:target_utilization=0.7,upscale_delay_s=5", GROUND, BOUNDS)
    built = policy.autoscaling["policy"]
    assert built["policy_function"] == AUTOSCALING_POLICY
    expected = parse_scaling({"target_utilization": 0.7}).model_dump()
    assert expected.items() <= built["policy_kwargs"].items()
    assert policy.autoscaling["upscale_delay_s"] == 5 and policy.reads == PUBLISHED
    assert policy.name == "brimful"


@pytest.mark.parametrize("name", RIVALS)
def test_a_rival_gets_its_constants_and_what_it_knows_beforehand(name: str) -> None:
    keys = [k for k in rival_of(name).constants.model_fields if k != "predictor"]
    spec = ",".join(f"{key}=0.5" for key in keys)
    policy = parse_policy(f"{name}:{spec}", GROUND, BOUNDS)
    kwargs = policy.autoscaling["policy"]["policy_kwargs"]
    assert kwargs == {**rival_of(name).known(GROUND), **dict.fromkeys(keys, 0.5)}
    assert policy.autoscaling["max_replicas"] == 9


@pytest.mark.parametrize("name", ["brimful", *RIVALS])
def test_samples_count_for_two_ticks_unless_a_policy_says_otherwise(name: str) -> None:
    usual, other = (
        parse_policy(spec, GROUND, BOUNDS).autoscaling
        for spec in (name, f"{name}:look_back_period_s=60")
    )
    assert (usual["metrics_interval_s"], usual["look_back_period_s"]) == (5.0, 10.0)
    assert other["look_back_period_s"] == 60


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ("rays", "policy: unknown"),
        ("ray:target=3", "policy ray:target=3"),
        ("ray:min_replicas", "'min_replicas' is not allowed: key=value"),
        ("ray:target_ongoing_requests=many", "target_ongoing_requests='many' is not allowed"),
        ("ray:min_replicas=10", "min_replicas=10 is not allowed: at most max_replicas=9"),
        ("brimful:target_utilisation=0.7", "target_utilisation"),
        ("brimful:target_utilization=1.7", "target_utilization"),
        ("brimful:upscale_delay_s=-1", "upscale_delay_s: -1 is not allowed"),
        ("brimful:max_replicas=100000", "max_replicas=100000 is not allowed: at most 200"),
        ("ray:min_replicas=0,max_replicas=0", "max_replicas: 0 is not allowed"),
        ("ray:look_back_period_s=-5", "look_back_period_s: -5 is not allowed"),
        ("ray:target_ongoing_requests=-1", "target_ongoing_requests: -1 is not allowed"),
        ("ray:upscaling_factor=0", "upscaling_factor: 0 is not allowed"),
        ("dynamo-load:itl_s=.nan", "itl_s: nan is not allowed"),
        ("dynamo-throughput:predictor=2", "predictor: 2 is not allowed"),
        ("queue-depth:target=0", "target: 0 is not allowed"),
        ("wva:up=0", "up: 0 is not allowed"),
        (f"{ORACLE}:step_s=3", "it plans for the day"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(spec: str, says: str) -> None:
    with pytest.raises(ConfigError) as raised:
        parse_policy(spec, GROUND, BOUNDS)
    (problem,) = raised.value.problems
    assert says in problem
