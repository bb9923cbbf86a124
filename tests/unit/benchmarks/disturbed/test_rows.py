"""Every load under every disturbance, and each recorded profile under its own."""

from benchmarks.contests.catalog import CONTESTS, SLA_MS, sla_of
from benchmarks.disturbed.rows import DISTURBED, H100, H100_MS, LOADS, PAPER_MS, all_rows
from replicas.profiles.profile_file import load_profile, named_profiles


def test_rows_are_loads_times_disturbances_and_two_loads_of_each_recording() -> None:
    rows = all_rows()
    recorded = [name for name, file in named_profiles().items() if name in file.recordings]
    assert len(rows) == len(LOADS) * len(DISTURBED) + 2 * len(recorded)
    assert len({row.id for row in rows}) == len(rows)
    assert {row.load.profile for row in rows[len(LOADS) * len(DISTURBED) :]} == set(recorded)


def test_the_slas_are_those_of_the_other_benches() -> None:
    contest = next(contest for contest in CONTESTS if contest.profile == H100)
    assert sla_of(contest, load_profile(H100)).itl_ms == H100_MS
    assert SLA_MS == PAPER_MS
