"""``python -m benchmarks NAME [--only ...] [--small]``: every bench by its name."""

import sys
from importlib import import_module

from replicas.server.proxies import go_past

BENCHES = {
    "results": ("contests.__main__", "`adaptive` versus static engines and published schedulers"),
    "tables": ("papers.dynamic_batching", "tables and figures of the paper, rebuilt"),
    "elastic": ("fleet.__main__", "replicas that follow demand"),
    "pd": ("pd.__main__", "prefill and decode apart"),
    "gpu": ("gpu.__main__", "step times and control on a card"),
    "overload": ("overload.__main__", "up to ten times what a fleet carries"),
    "faults": ("faults.__main__", "processes killed under requests"),
    "path": ("path.__main__", "the serving path versus bare vLLM"),
    "scheduler": ("cost.scheduler", "scheduler overhead a step"),
    "controller": ("cost.controller", "the controller with 1,000 replicas"),
}


def main(argv: list[str]) -> int:
    """Run one bench; without a name, list them."""
    name, *rest = argv or ["--help"]
    if name not in BENCHES:
        width = max(map(len, BENCHES))
        print(__doc__, *(f"  {n:{width}}  {what}" for n, (_, what) in BENCHES.items()), sep="\n")
        return 0 if name in ("-h", "--help") else 2
    go_past()
    sys.argv = [f"python -m benchmarks {name}", *rest]
    return import_module(f"benchmarks.{BENCHES[name][0]}").main() or 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
