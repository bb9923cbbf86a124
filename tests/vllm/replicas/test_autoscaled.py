"""What counts for autoscaling, request by request."""

from types import SimpleNamespace
from typing import Any

from vllm.v1.request import RequestStatus

from controller.request_slo import KEY
from replicas.engine.autoscaled import Autoscaled


def request(name: str, status: Any = RequestStatus.WAITING, **told: Any) -> Any:
    params = SimpleNamespace(extra_args={KEY: told} if told else None)
    return SimpleNamespace(
        request_id=name, sampling_params=params, num_prompt_tokens=20, status=status
    )


def test_prompts_for_others_and_sessions_that_wait_for_their_client_are_no_load() -> None:
    autoscaled = Autoscaled(0.0)
    autoscaled.come(request("a"))
    autoscaled.come(request("p"), for_another=True)
    assert autoscaled.load([], [], 10.0) is None  # until one comes that does not count
    autoscaled.come(request("b", autoscale=False))
    idle = request("s", RequestStatus.WAITING_FOR_STREAMING_REQ)
    waiting = [idle, request("c"), request("d", autoscale=False)]
    load = autoscaled.load([request("a"), request("b", autoscale=False)], waiting, 20.0)
    assert load is not None
    assert (load.running, load.waiting, load.prompts.n) == (1, 1, 1)
