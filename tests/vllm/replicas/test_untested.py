"""On a vLLM that was not tested limits are computed and not applied, or vLLM runs alone."""

import importlib
import logging
import math
import re

import pytest
import vllm

import replicas.scheduler
from controller.records import EngineReport, from_wire, to_wire
from controller.switch import Switch
from replicas.engine.bystander import Bystander
from replicas.engine.engine_options import cap_name
from replicas.workarounds.vllm_private import ATTRIBUTES, REQUEST
from replicas.workarounds.vllm_versions import installed_doubt
from tests.vllm.harness import Rig, batching, engine_config, limits

LATER = 1e15  # ms: after any start


@pytest.fixture
def untested(monkeypatch):
    """This vLLM calls itself one that nobody has seen, and has all that later ones have."""
    monkeypatch.setattr(vllm, "__version__", "99.1.0")
    listed = {owner: re.sub(r"\S+@0.31", "", names) for owner, names in ATTRIBUTES.items()}
    for owner, names in listed.items():
        monkeypatch.setitem(ATTRIBUTES, owner, names)
    installed_doubt.cache_clear()
    yield
    monkeypatch.undo()
    installed_doubt.cache_clear()
    importlib.reload(replicas.scheduler)


def cap_of(rig: Rig) -> int:
    return getattr(rig.scheduler, cap_name(rig.scheduler))


@pytest.mark.usefixtures("untested")
def test_where_all_is_there_it_advises_and_says_so_once(tiny_llama, caplog):
    with caplog.at_level(logging.WARNING):
        rig = Rig.led(tiny_llama)
        Rig.led(tiny_llama)
    (said,) = [r.getMessage() for r in caplog.records if "99.1.0" in r.getMessage()]
    assert "private things of vLLM that control leans on are there" in said
    rig.add_all(9, prompt=20, output=9)
    report = rig.exchange(limits(2))
    rig.step()
    assert (report.enforced, cap_of(rig), len(rig.scheduler.running)) == (False, 64, 9)
    rig.run()
    assert rig.all_whole(9, 9)


@pytest.mark.usefixtures("untested")
def test_where_all_is_there_a_key_has_limits_applied(tiny_llama):
    settings = {"brimful": {"enforce": "on", "batching": {"max_running": {"max": 2}}}}
    rig = Rig(engine_config(tiny_llama, additional_config=settings))
    rig.add_all(9, prompt=20, output=9)
    rig.step()
    assert len(rig.scheduler.running) == 2
    rig.run()
    assert rig.all_whole(9, 9)


@pytest.mark.usefixtures("untested")
def test_where_something_is_not_there_vllm_runs_alone_and_it_is_named(
    tiny_llama, monkeypatch, caplog
):
    monkeypatch.setitem(ATTRIBUTES, REQUEST, "request_id no_more")
    with caplog.at_level(logging.WARNING):
        made = importlib.reload(replicas.scheduler).DynamicBatchScheduler
    assert made.__name__ == "Bystander"
    assert "were not found: vllm.v1.request:Request.no_more (gone)" in caplog.text


@pytest.mark.parametrize("in_flight", [1, 2])
def test_a_bystander_serves_and_reports_what_runs_and_waits(tiny_llama, in_flight):
    config = engine_config(
        tiny_llama, additional_config=batching(), async_scheduling=in_flight > 1, max_num_seqs=4
    )
    rig = Rig(config, Bystander, in_flight=in_flight)
    rig.add_all(9, prompt=20, output=9)
    rig.step()
    pushed = to_wire(limits(2, switches=(Switch(int(LATER), enforce=True),)))
    report = from_wire(EngineReport, rig.scheduler.exchange(pushed, "replica", "group"))
    assert (report.running, report.waiting, report.enforced) == (4, 5, False)
    assert report.engine.max_num_seqs == 4
    rig.scheduler.configure({"policy": "adaptive"})
    rig.run()
    assert rig.all_whole(9, 9)
    assert math.isfinite(report.busy_frac)
