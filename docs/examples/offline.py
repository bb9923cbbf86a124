"""Offline generation whose batch sizes itself: ``vllm.LLM``, no Ray, no server.

    python docs/examples/offline.py MODEL
    python docs/examples/offline.py MODEL --itl-ms 50 --requests 1000

Prints once a second what the replica decides for itself, and the throughput at the end.
"""

import argparse
import time

from vllm import LLM, SamplingParams

from controller.records import EngineReport
from replicas.engine.channel import read_report

PROMPTS = (
    "Write a short poem about a river that fills a jar to the brim.",
    "How many replicas does the queue need?",
    "Explain to a child why a bus that waits for more passengers is late, and what to do about it.",
)


def main() -> None:
    args = parse_args()
    batching = {
        "policy": "adaptive",
        "sla": {"itl_ms": args.itl_ms},  # None: KV memory alone limits the batch
    }
    llm = LLM(
        args.model,
        scheduler_cls="replicas.scheduler.DynamicBatchScheduler",
        additional_config={"brimful": {"batching": batching}},
        max_num_seqs=args.max_num_seqs,  # the batch never grows past it, so set it high
        enforce_eager=args.enforce_eager,
    )
    prompts = [PROMPTS[i % len(PROMPTS)] for i in range(args.requests)]
    params = SamplingParams(max_tokens=args.output_tokens, ignore_eos=True, seed=0)

    llm.enqueue(prompts, params, use_tqdm=False)
    print(" time  cap  set by   running  waiting   KV  preempted  ITL p99")
    started_s, next_s, tokens = time.monotonic(), 0.0, 0
    while llm.llm_engine.has_unfinished_requests():
        for output in llm.llm_engine.step():
            if output.finished:
                tokens += len(output.outputs[0].token_ids)
        elapsed_s = time.monotonic() - started_s
        if elapsed_s >= next_s:
            print(row(elapsed_s, read_report(llm)), flush=True)
            next_s = elapsed_s + 1.0
    elapsed_s = time.monotonic() - started_s
    last = read_report(llm)
    print(row(elapsed_s, last))
    print(f"{last.finished} requests, {tokens} tokens, {tokens / elapsed_s:.0f} tokens/s")


def row(elapsed_s: float, report: EngineReport) -> str:
    """One line of the table."""
    p99_s = report.itl.percentile_s(99)
    itl = "-" if p99_s is None else f"{p99_s * 1000:.0f} ms"
    return (
        f"{elapsed_s:4.0f}s {report.max_running:4d}  {report.reason:<8}{report.running:8d}"
        f" {report.waiting:8d} {report.kv_frac:4.0%} {report.preemptions:10d} {itl:>8}"
    )


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", help="directory or name of a model")
    parser.add_argument("--itl-ms", type=float, help="keep the time between tokens below this")
    parser.add_argument("--requests", type=int, default=256)
    parser.add_argument("--output-tokens", type=int, default=128)
    parser.add_argument("--max-num-seqs", type=int, default=512)
    parser.add_argument("--enforce-eager", action="store_true", help="start faster, run slower")
    return parser.parse_args()


if __name__ == "__main__":
    main()
