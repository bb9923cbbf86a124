"""How long a request waits for a prefill replica: its deadline is for both halves."""

import pytest

from controller.classes import parse_admission
from replicas.admission.admission import Admission
from replicas.admission.gate import Gate, current
from replicas.server.pd_server import LONGEST_PREFILL_S, longest_prefill_s
from tests.unit.replicas.admission.builders import CLASSES


def test_who_has_no_deadline_waits_for_a_minute() -> None:
    assert longest_prefill_s() == LONGEST_PREFILL_S


@pytest.mark.parametrize(("timeout_s", "now_s", "longest_s"), [(8, 0, 6), (8, 4, 3), (8, 9, 0)])
def test_who_has_one_leaves_time_for_the_decode_engine_to_prefill(
    timeout_s: float, now_s: float, longest_s: float
) -> None:
    clock = [0.0]
    admission = Admission(CLASSES, parse_admission(None), 10, 0.0)
    gate = Gate(admission, named_classes=False, clock=lambda: clock[0])
    token = current.set(gate.ticket({"x-request-timeout-seconds": str(timeout_s)}, {}))
    clock[0] = now_s
    assert longest_prefill_s() == longest_s
    current.reset(token)
