"""``brimful shadow``: what captured requests would have seen with control and without."""

import argparse
import json
import sys
from pathlib import Path

from controller.config import BatchingConfig
from controller.errors import BrimfulError
from controller.models.step_time import StepModel
from controller.records import EngineLimits, ReplicaReport
from replicas.profiles.profile import LinearCost, StepProfile
from replicas.profiles.profile_file import load_profile
from serve_app.options import add_address, add_replica, add_wide
from serve_app.record import choose
from serve_app.snapshot import connect, read_snapshot
from simulator.replay.command import load_vllm, progress
from simulator.replay.measure import summarise
from simulator.replay.table import print_table
from simulator.workloads.files import read_requests

ABOUT = (
    "Replay what `brimful capture` wrote of one replica twice: under vLLM's own limits as its"
    " engine was started, and under the replica's batching block. Step times are by the model that"
    " the replica has learned, which knows no pauses, or by --profile: what `brimful record` wrote"
    " has them. Before `enforce: true` is set, this is what to look at."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = ABOUT
    parser.add_argument("file", type=Path, help="JSONL, by `brimful capture`")
    add_replica(parser)
    parser.add_argument("--profile", metavar="SPEC", help="NAME or FILE.json[:NAME] of step times")
    add_wide(parser)
    parser.add_argument("--json", action="store_true", help="a JSON object for each")
    add_address(parser)


def run(args: argparse.Namespace) -> int:
    """Replay, print.

    Raises:
        BrimfulError: there is no cluster, no such replica, it has learned no step times yet, or
            it speculates.
        ConfigError: naming what is wrong with the file.
    """
    connect(args.address)
    snapshot = read_snapshot()
    name, engine, _ = choose(snapshot, args.replica, None)
    known = next(g["replicas"][name] for g in snapshot["groups"].values() if name in g["replicas"])
    report: ReplicaReport = known["report"]
    batching: BatchingConfig = known["batching"]
    if engine.tokens_per_decode > 1:
        raise BrimfulError(
            f"replica {name} speculates; how many drafts would be accepted is not known here"
        )
    requests = read_requests(args.file, replica=name)
    if args.profile:
        profile = load_profile(args.profile).with_kv_tokens(engine.kv_tokens or None)
    else:
        profile = profile_of(name, report.model, engine)
    load_vllm()
    from simulator.replay.engine import Scenario, replay
    from simulator.virtual.plan import EngineOptions, Plan

    options = EngineOptions(
        max_num_seqs=engine.max_num_seqs,
        max_num_batched_tokens=engine.max_num_batched_tokens,
        block_size=engine.block_tokens,
        long_prefill_token_threshold=engine.long_prompt_tokens,
        enable_prefix_caching=any(r.prefix for r in requests),
    )
    off = batching.model_copy(update={"policy": "static", "enforce": False})
    on = batching.model_copy(update={"enforce": True})
    plans = [
        Plan("vLLM's own", off, options),
        Plan(on.policy, on, options),
    ]
    summaries = []
    for plan in plans:
        with progress(plan.spec, len(requests)) as advance:
            trace = replay(requests, plan, Scenario(profile), progress=advance)
        summaries.append(summarise(plan.spec, trace, batching.sla))
    if args.json:
        for summary in summaries:
            print(json.dumps(summary.to_json()), flush=True)
        return 0
    print(f"{len(requests):,} requests of replica {name}", file=sys.stderr)
    print_table(summaries, batching.sla, wide=args.wide)
    return 0


def profile_of(name: str, model: StepModel | None, engine: EngineLimits) -> StepProfile:
    """An accelerator with a replica's learned step times.

    Raises:
        BrimfulError: the replica has no model yet.
    """
    if model is None:
        raise BrimfulError(
            f"replica {name} has learned no step times yet: send requests, or name a --profile"
        )
    cost = LinearCost(model.c0, model.c1, model.c2, model.c3, model.c4, model.mixed_s)
    return StepProfile(
        name,
        "learned by a running replica",
        engine.kv_tokens or 1_000_000,
        engine.max_num_seqs,
        engine.max_num_batched_tokens,
        cost,
    )
