"""On a vLLM that was not tested limits are computed, and applied only if a key says so."""

import logging

import pytest
import vllm

from replicas.engine.engine_options import cap_name
from replicas.workarounds.vllm_versions import installed_is_tested
from tests.vllm.harness import Rig, engine_config, limits


@pytest.fixture
def untested(monkeypatch):
    """This vLLM calls itself one that nobody has seen."""
    monkeypatch.setattr(vllm, "__version__", "99.1.0")
    installed_is_tested.cache_clear()
    yield
    installed_is_tested.cache_clear()


def cap_of(rig: Rig) -> int:
    return getattr(rig.scheduler, cap_name(rig.scheduler))


@pytest.mark.usefixtures("untested")
def test_it_advises_and_says_so_once(tiny_llama, caplog):
    with caplog.at_level(logging.WARNING):
        rig = Rig.led(tiny_llama)
        Rig.led(tiny_llama)
    (said,) = [r.getMessage() for r in caplog.records if "99.1.0" in r.getMessage()]
    assert "limits are only computed and reported" in said
    rig.add_all(9, prompt=20, output=9)
    report = rig.exchange(limits(2))
    rig.step()
    assert (report.enforced, cap_of(rig), len(rig.scheduler.running)) == (False, 64, 9)
    rig.run()
    assert rig.all_whole(9, 9)


@pytest.mark.usefixtures("untested")
def test_a_key_has_limits_applied(tiny_llama):
    settings = {"brimful": {"enforce": "on", "batching": {"max_running": {"max": 2}}}}
    rig = Rig(engine_config(tiny_llama, additional_config=settings))
    rig.add_all(9, prompt=20, output=9)
    rig.step()
    assert len(rig.scheduler.running) == 2
    rig.run()
    assert rig.all_whole(9, 9)
