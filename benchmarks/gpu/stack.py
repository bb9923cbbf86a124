"""The whole stack on one card: ``serve deploy``, HTTP, batching blocks in turn on one engine.

python -m benchmarks.gpu.stack --out DIR [--budget-s 200] [--itl-ms 25] [--rates 45 85]
"""

import argparse
import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import ray

from benchmarks.gpu.budget import Budget
from benchmarks.gpu.stack_card import MODEL, STOP_S, URL, Batching, CardStack, keep_logs
from benchmarks.gpu.stack_client import ready, send_from
from benchmarks.report.document import ROOT
from serve_app.demo.client import Ask
from serve_app.launch.local_cluster import local_cluster
from simulator.workloads.catalog import load_workload
from simulator.workloads.traffic import draw_requests

WORKLOAD = "exponential:257,62"
PROMPT_IDS = 400  # of the tokenizer's 512: none of the special ones
AFTER_S = 25.0  # how long the last answers of a run may take after its arrivals
# HAProxy's two others, fixed by default: another cluster on this machine may have them.
PORTS = {"RAY_SERVE_HAPROXY_METRICS_PORT": "9131", "RAY_SERVE_HAPROXY_STATS_PORT": "8431"}
CARD = {
    **PORTS,
    "VLLM_TARGET_DEVICE": "cuda",
    "VLLM_USE_FLASHINFER_SAMPLER": "0",
    "RAY_worker_niceness": "0",
    "RAY_SERVE_HAPROXY_NBTHREAD": "4",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / ".cache" / "gpu-stack")
    parser.add_argument("--budget-s", type=float, default=200.0)
    parser.add_argument("--itl-ms", type=float, default=25.0)
    parser.add_argument("--rates", type=float, nargs="+", default=[45.0, 85.0], help="requests/s")
    parser.add_argument("--seconds", type=float, default=15.0, help="of a run's arrivals")
    parser.add_argument("--clients", type=int, help="processes that send; 6, or 1 with --tiny")
    parser.add_argument("--eager", action="store_true", help="without CUDA graphs")
    parser.add_argument("--tiny", action="store_true", help="the tiny model on CPU")
    args = parser.parse_args()
    args.clients = args.clients or (1 if args.tiny else 6)
    args.out.mkdir(parents=True, exist_ok=True)
    budget = Budget(args.budget_s)
    with local_cluster(
        PORTS if args.tiny else CARD,
        directory=ROOT,
        logs=args.out,
        cpus=2 if args.tiny else 14,
        gpus=0 if args.tiny else 1,
    ) as cluster:
        stack = CardStack(cluster, args.out, tiny=args.tiny, eager=args.eager)
        try:
            stack.start(budget)
            run_all(stack, args, budget)
        finally:
            ray.shutdown()
            keep_logs(args.out)
    print(f"left out: {', '.join(budget.left_out) or 'nothing'}; {budget.left_s:.0f} s left")


def run_all(stack: CardStack, args: argparse.Namespace, budget: Budget) -> None:
    """A warm-up, then each rate under each batching block in turn; then the status."""
    adaptive = {"policy": "adaptive", "sla": {"itl_ms": args.itl_ms}}
    limits = {"max_running": {"max": stack.most(512)}, "static": {"max_num_batched_tokens": 512}}
    turn: list[tuple[str, Batching]] = [
        ("adaptive", adaptive),
        ("static-512", {"policy": "static", **limits}),
        ("default", {"policy": "static"}),
        ("adaptive-again", adaptive),
    ]
    runs = [(f"warm_{max(args.rates):g}", max(args.rates), adaptive)]
    runs += [(f"{name}_{rate:g}", rate, block) for rate in args.rates for name, block in turn]
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(args.clients, mp_context=spawn) as pool:
        for future in [pool.submit(ready) for _ in range(args.clients)]:
            future.result(60)
        for name, rate, block in runs:
            if not budget.room(args.seconds + 5.0 + STOP_S, name):
                continue
            stack.go_by(block)
            most_s = min(args.seconds + AFTER_S, budget.left_s - STOP_S / 2)
            sent = send_from(pool, args.clients, URL, MODEL, asks_at(rate, args.seconds), most_s)
            stack.rows_of(name, sent, args.itl_ms)
    stack.keep_status()


def asks_at(rate: float, seconds: float) -> list[Ask]:
    """Requests of ``WORKLOAD`` as they come, with prompts of token ids."""
    count = max(round(rate * seconds), 1)
    drawn = draw_requests(load_workload(WORKLOAD), count, rate, None, 0)
    return [
        Ask(
            [20 + (7 * k + i * i) % PROMPT_IDS for i in range(r.input_tokens)],
            r.output_tokens,
            at_s=r.arrival_s,
        )
        for k, r in enumerate(drawn)
    ]


if __name__ == "__main__":
    main()
