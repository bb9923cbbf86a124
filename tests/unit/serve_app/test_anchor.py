"""What keeps the replicas of lasting workers there."""

from serve_app.anchor import build


def test_one_for_each_lasting_worker() -> None:
    deployment = build({"workers": 3})._bound_deployment
    assert deployment.num_replicas == 3
    assert deployment.ray_actor_options["num_cpus"] == 0
    assert deployment.ray_actor_options["resources"] == {"lasting": 1}
