"""`make tables`: the papers' tables and studies, rebuilt, into docs/results."""

import argparse
import json
from typing import Any

from benchmarks.papers import batching_study, dynamic_batching, serving_study
from benchmarks.papers.cases import run_cases
from benchmarks.report.document import PAGES, write_page

PARTS = {"paper": dynamic_batching, "batching": batching_study, "serving": serving_study}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--workers", type=int, help="processes (default: one per core)")
    args = parser.parse_args()
    PAGES.mkdir(parents=True, exist_ok=True)
    rows: list[dict[str, Any]] = []
    for name in args.only:
        part = PARTS[name]
        results = run_cases(part.cases(), args.workers)
        command = f"make tables ARGS='--only {name}'"
        text = f"{part.text(results)}\n\nCommand: `{command}`"
        if name == "paper":
            text = f"# The papers' tables, rebuilt\n\n{text}"
        write_page(f"tables-{name}", text)
        print(text, end="\n\n")
        for key, result in sorted(results.items()):
            searched = result.summary.capacity_per_s
            value = result.summary.output_tokens_per_s if searched is None else searched
            unit = "tokens/s" if searched is None else "requests/s"
            rows.append({"id": "/".join(key), "value": value, "unit": unit, "target": None})
    print(json.dumps({"bench": "tables", "rows": rows}))


if __name__ == "__main__":
    main()
