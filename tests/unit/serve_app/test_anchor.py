"""What keeps the replicas of lasting workers there."""

import pytest

from controller.errors import ConfigError
from serve_app.anchor import build


def test_one_for_each_lasting_worker() -> None:
    deployment = build({"workers": 3})._bound_deployment
    assert deployment.num_replicas == 3
    assert deployment.ray_actor_options["num_cpus"] == 0
    assert deployment.ray_actor_options["resources"] == {"lasting": 1}


@pytest.mark.parametrize("args", [{}, {"workers": 0}, {"workers": 2, "worker": 1}])
def test_what_is_wrong_is_named(args: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match="worker"):
        build(args)
