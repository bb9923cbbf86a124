"""The table of a replay: in 80 columns nothing is cut, and ``--wide`` has every column."""

from dataclasses import replace

import pytest

from controller.config import Sla
from simulator.replay.measure import Spread, Summary
from simulator.replay.table import print_table

LONG = "paper:memory=exact,alpha=16,delta=4,max_num_seqs=1024,max_num_batched_tokens=8192"
SLA = Sla(itl_ms=50, ttft_ms=2000)


def summary(policy: str, *, finished: int = 100_000) -> Summary:
    """A run with large numbers everywhere."""
    wide = Spread(1234.5, 23456.7, 123456.7, 34567.8, 45678.9)
    return Summary(
        policy=policy,
        requests=100_000,
        finished=finished,
        duration_s=86_400.0,
        output_tokens_per_s=12_345.6,
        preemptions=123_456,
        mean_running=1023.4,
        kv_peak_frac=1.0,
        itl_ms=wide,
        tpot_ms=wide,
        ttft_ms=wide,
        e2e_ms=wide,
        scheduling_delay_ms=wide,
        late_share_cold=0.1234,
        late_share_after=0.0123,
        stalls=1234,
        longest_gap_ms=123_456.7,
        j=1234.567,
        sla_attainment=1.0,
        goodput_per_s=123.45,
        steps=1_000_000,
        step_model_mape=12.34,
        capacity_per_s=123.45,
    )


def printed(capsys: pytest.CaptureFixture[str], *, wide: bool) -> str:
    """A table of two policies; not every request of the second was finished."""
    print_table([summary("static"), summary(LONG, finished=99_999)], SLA, wide=wide)
    return capsys.readouterr().out


def test_in_80_columns_nothing_is_cut(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    text = printed(capsys, wide=False)
    assert max(map(len, text.splitlines())) <= 80
    assert "…" not in text
    for word in ("34,567.8", "12,346", "100.0%", "123456", "123.45", "un-"):
        assert word in text
    first_column = "".join(line[:16] for line in text.splitlines())
    assert "memory=exact,alpha=16" in "".join(first_column.split())


def test_stalls_have_a_column_where_there_are_some(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    stalled = replace(summary("static"), capacity_per_s=None)
    smooth = replace(stalled, stalls=0, j=0.523)
    for one, shown in ((stalled, ("stalls", "1,234", "1,235")), (smooth, ("running", "0.52"))):
        print_table([one], SLA, wide=False)
        text = capsys.readouterr().out
        assert max(map(len, text.splitlines())) <= 80 and "…" not in text
        assert all(word in text for word in shown)
    assert "stalls" not in text
