"""``make bench-scale``: the way of a request over 1, 2, 4 and 8 emulated replicas.

Prints tables, writes docs/results/scale.md, and ends with one line of JSON. Nothing else should run
on the machine.
"""

import argparse
import json
import shlex
import sys
from collections.abc import Sequence

from tqdm import tqdm

from benchmarks.report.document import markdown_table, write_page
from benchmarks.report.rows import Row, Section, exactly, rows_table, shown
from benchmarks.scale.measure import ANSWER_TOKENS, CLIENT, SHORT_STREAMS, STREAMS, Scale, scales

REPLICAS = (1, 2, 4, 8)
ONE_EACH = ("HAProxy", "LLMRouter", "Serve controller", "batch controller", "fallback proxy")


def main() -> None:
    parser = argparse.ArgumentParser(prog="make bench-scale", description=__doc__)
    parser.add_argument("--replicas", nargs="+", type=int, choices=range(1, 65), default=REPLICAS)
    parser.add_argument("--no-page", action="store_true", help="print only")
    args = parser.parse_args()
    numbers = sorted(set(args.replicas))
    found = list(tqdm(scales(numbers), total=len(numbers), desc="replicas", file=sys.stderr))
    result = section(found)
    print(rows_table(result.rows))
    print(*result.tables, sep="\n\n")
    if not args.no_page:
        write_page(result.name, result.markdown(_command()))
    print(json.dumps({"bench": "scale", "rows": [row.to_json() for row in result.rows]}))


def _command() -> str:
    arguments = shlex.join(sys.argv[1:])
    return f"make bench-scale ARGS='{arguments}'" if arguments else "make bench-scale"


def section(found: Sequence[Scale]) -> Section:
    """All numbers of replicas side by side."""
    rows: list[Row] = []
    for one in found:
        n, long_answers, short = one.replicas, one.long_answers, one.short_answers
        per_cpu = exactly(long_answers.tokens / long_answers.server_cpu_s)
        what = f"tokens per CPU second of all but the client, {n} replicas"
        rows.append(Row(f"tokens_per_cpu_s_{n}", what, "tokens/s", per_cpu))
        what = f"requests of one token, {n} replicas"
        value = exactly(short.requests / short.seconds)
        rows.append(Row(f"requests_per_s_{n}", what, "requests/s", value))
    last = found[-1]
    what = f"router decisions per second of one core, {last.replicas} replicas"
    rows.append(Row("decisions_per_core_s", what, "1/s", exactly(_decisions(last))))
    return Section(
        "scale",
        "the way of a request over more replicas",
        "Emulated accelerators (the paper's figure 3: 27 ms a step and 0.23 ms for each running"
        " request), everything else real: HAProxy, one LLMRouter with HeadroomRouter, replicas,"
        " engines, both controllers and the client share this machine's cores. Long"
        f" answers: {STREAMS} streams of {ANSWER_TOKENS} tokens on each replica. Short ones:"
        f" {SHORT_STREAMS} clients that ask for one token again and again. Where all cores are"
        " taken, tokens per CPU second is what counts, not tokens per second; a process is at its"
        " end where it takes a whole core.",
        tuple(rows),
        (_long(found), _per_thousand(found), _short(found), _idle(found)),
        max_tokens=None,
    )


def _decisions(one: Scale) -> float:
    load = one.short_answers
    return load.requests / load.cpu_s["LLMRouter"] if load.cpu_s.get("LLMRouter") else 0.0


def _head(first: str, found: Sequence[Scale]) -> tuple[str, ...]:
    return (first, *(f"{one.replicas}" for one in found))


def _kinds(found: Sequence[Scale]) -> list[str]:
    return list(dict.fromkeys(kind for one in found for kind in one.long_answers.cpu_s))


def _long(found: Sequence[Scale]) -> str:
    loads = [one.long_answers for one in found]
    lines = [
        ("tokens/s", *(shown(load.tokens / load.seconds) for load in loads)),
        ("cores taken", *(shown(sum(load.cpu_s.values()) / load.seconds) for load in loads)),
        (
            "tokens per CPU second, client left out",
            *(shown(load.tokens / load.server_cpu_s) for load in loads),
        ),
        ("client waited for a core", *(f"{load.waited_frac:.1%}" for load in loads)),
    ]
    return markdown_table(_head("long answers, by replicas", found), lines)


def _per_thousand(found: Sequence[Scale]) -> str:
    lines = [
        (
            kind,
            *(
                f"{1e6 * one.long_answers.cpu_s.get(kind, 0.0) / one.long_answers.tokens:.0f}"
                for one in found
            ),
        )
        for kind in _kinds(found)
    ]
    return markdown_table(_head("CPU ms per 1,000 tokens, by replicas", found), lines)


def _short(found: Sequence[Scale]) -> str:
    loads = [one.short_answers for one in found]
    lines = [("requests/s", *(shown(load.requests / load.seconds) for load in loads))]
    lines += [
        (
            f"CPU ms per request: {kind}",
            *(f"{1000 * load.cpu_s.get(kind, 0.0) / max(load.requests, 1):.2f}" for load in loads),
        )
        for kind in ("HAProxy", "LLMRouter", "replica", "EngineCore", CLIENT)
    ]
    lines.append(
        ("router decisions per second of one core", *(shown(_decisions(one)) for one in found))
    )
    return markdown_table(_head("answers of one token, by replicas", found), lines)


def _idle(found: Sequence[Scale]) -> str:
    def share(one: Scale, kind: str) -> str:
        spent, seconds = one.idle
        number = 1 if kind in ONE_EACH else max(one.replicas, 1)
        return f"{spent.get(kind, 0.0) / seconds / number:.3f}"

    kinds = (*ONE_EACH, "replica", "EngineCore")
    lines = [(kind, *(share(one, kind) for one in found)) for kind in kinds]
    return markdown_table(_head("cores of each, nothing asked, by replicas", found), lines)


if __name__ == "__main__":
    main()
