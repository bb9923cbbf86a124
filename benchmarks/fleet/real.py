"""``make bench-elastic ARGS=--real``: the simulated fleet beside a real one of this machine."""

import json

from benchmarks.fleet.deployed import Real, measure
from benchmarks.fleet.real_page import real_page
from benchmarks.fleet.trial import Trial
from benchmarks.report.document import ROOT, write_page

KEPT = ROOT / ".cache" / "elastic-real.json"


def run(trial: Trial, *, kept: bool, write: bool) -> None:
    """Measure, simulate, print.

    Args:
        kept: take the real run that was measured last.
        write: docs/results/elastic-real.md as well.

    Raises:
        BrimfulError: the real run did not come to what is compared, or none was kept.
    """
    if kept:
        real = Real.read(KEPT)
    else:
        real = measure(trial)
        real.write(KEPT)
    page = real_page(real, trial)
    text = page.markdown("make bench-elastic ARGS='--real --write'")
    print(text)
    if write:
        write_page("elastic-real", text)
    rows = [row.to_json() for row in page.rows]
    print(json.dumps({"bench": "elastic-real", "rows": rows}))
