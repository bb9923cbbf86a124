"""Results are kept for the code they were made by, and for no other."""

from pathlib import Path

import pytest

from benchmarks.fleet import kept as module
from benchmarks.fleet.kept import Kept, code_of
from benchmarks.report.code import imported_by
from benchmarks.report.document import ROOT
from simulator.fleet.course import Result

ONE = Result("step", "ray", "ray:x=1", 0.9, float("inf"), 1.0, None)


def test_what_was_kept_is_read_again_until_it_is_to_be_forgotten(tmp_path: Path) -> None:
    path = tmp_path / "below" / "kept.json"
    Kept(path).add("step 1 100", ONE.spec, ONE)
    assert Kept(path).get("step 1 100", ONE.spec) == ONE
    assert Kept(path).get("step 2 100", ONE.spec) is None
    assert Kept(path, again=True).get("step 1 100", ONE.spec) is None


def test_two_benches_at_a_time_keep_what_both_made(tmp_path: Path) -> None:
    one, other = Kept(tmp_path / "kept.json"), Kept(tmp_path / "kept.json")
    one.add("step 1 100", ONE.spec, ONE)
    other.add("step 2 100", ONE.spec, ONE)
    both = Kept(tmp_path / "kept.json")
    assert both.get("step 1 100", ONE.spec) == both.get("step 2 100", ONE.spec) == ONE


def test_other_code_finds_nothing_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "kept.json"
    Kept(path).add("step 1 100", ONE.spec, ONE)
    monkeypatch.setattr(module, "code_of", lambda policy: "of another day")
    assert Kept(path).get("step 1 100", ONE.spec) is None
    assert Kept(path).all_of("step 1 100", "ray") == []


def test_a_run_stands_on_the_fleet_what_it_imports_and_the_policy_it_names() -> None:
    def below(names: list[str], without: str | None = None) -> set[str]:
        return {str(path.relative_to(ROOT)) for path in imported_by(names, without)}

    ours = below([module.RUN, module.RIVALS, module.OUR_POLICY])
    rivals = below([module.RUN, module.RIVALS], without=module.NOT_OF_RIVALS)
    both = {
        "simulator/fleet/fluid.py",
        "simulator/fleet/ray_stages.py",
        "benchmarks/fleet/rivals/wva.py",
        "controller/capacity.py",
        "replicas/server/autoscaling_stats.py",
    }
    assert both <= ours and both <= rivals
    assert "serve_app/scaling/decide.py" in ours - rivals
    assert not any(path.startswith("serve_app/") for path in rivals)
    assert "benchmarks/fleet/page.py" not in ours
    assert code_of("brimful") != code_of("ray") == code_of("oracle")
