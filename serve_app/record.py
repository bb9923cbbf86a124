"""``brimful record``: each step of a running replica, with its duration, as a profile file."""

import argparse
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from tqdm import tqdm

from controller.errors import BrimfulError
from controller.records import EngineLimits
from replicas.profiles.profile_file import ProfileFile
from replicas.profiles.recorded import LEAST_STEPS, MOST_STEPS, RecordedEntry, RecordedSteps
from serve_app.options import add_address, add_group, add_out, add_replica, number, require_folder
from serve_app.snapshot import ANSWER_S, connect, engines_of, listed, read_snapshot

PERIOD_S = 1.0
MOST_S = 1000.0  # seconds: with steps of 1 ms, as many as a profile file may hold
BAR = "{n:.0f} of {total:.0f} s{postfix}"
ABOUT = (
    "Record a running replica: what each step of its engine computed and how long it took, as a"
    " profile file with machine, model, versions and load. `brimful replay --profile FILE` replays"
    " it. Nothing is restarted; steps cost the same before and after."
)

Call = Callable[..., Any]
"""A replica: a method's name and arguments for its answer, or a BrimfulError."""
Steps = dict[str, list[int]]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = ABOUT
    parser.add_argument(
        "--seconds",
        type=number(f"seconds from 1 to {MOST_S:g}", 1, MOST_S),
        required=True,
        help="duration, s; requests must arrive meanwhile",
    )
    add_out(parser, "JSON, overwritten")
    add_replica(parser)
    add_group(parser, "a replica of this group")
    add_address(parser)


def run(args: argparse.Namespace) -> int:
    """Record, and write the file.

    Raises:
        BrimfulError: there is no cluster, no controller or no such replica, or too few steps ran.
    """
    require_folder(args.out)
    connect(args.address)
    replica_id, engine, others = choose(read_snapshot(), args.replica, args.group)
    more = f", the first of {others + 1}" if others else ""
    print(f"recording replica {replica_id}{more}", file=sys.stderr)
    call = caller(replica_id)
    facts = call("facts")
    with tqdm(total=args.seconds, unit=" s", file=sys.stderr, bar_format=BAR) as bar:

        def tell(passed_s: float, steps: int) -> None:
            bar.set_postfix_str(f"{steps:,} steps", refresh=False)
            bar.update(min(passed_s, args.seconds) - bar.n)

        steps = record(call, args.seconds, tell)
    recording = RecordedEntry(
        **facts,
        load="",
        kv_capacity_tokens=engine.kv_tokens,
        max_num_seqs=engine.max_num_seqs,
        max_num_batched_tokens=engine.max_num_batched_tokens,
        steps=RecordedSteps(**steps),
    )
    name = facts["model"].partition(",")[0]
    source = f"brimful record, {args.seconds:g} s, {datetime.now(UTC):%Y-%m-%d}"
    file = ProfileFile(source=source, recordings={name: recording})
    args.out.write_text(file.model_dump_json(exclude_defaults=True) + "\n")
    count = len(steps["duration_us"])
    print(f"{args.out}: {count:,} steps of {replica_id}, as {name}", file=sys.stderr)
    return 0


def choose(
    snapshot: dict[str, Any], replica_id: str | None, group: str | None
) -> tuple[str, EngineLimits, int]:
    """The replica to record: its id, its engine's settings, how many others match.

    Raises:
        BrimfulError: no replica matches; names the present ones.
    """
    found = engines_of(snapshot, group)
    if replica_id is not None and replica_id not in found:
        raise BrimfulError(f"--replica: {replica_id!r} does not exist; {listed('replicas', found)}")
    chosen = replica_id or min(found)
    return chosen, found[chosen], 0 if replica_id else len(found) - 1


def caller(replica_id: str) -> Call:
    """A replica of the cluster that ``connect`` joined.

    Raises:
        BrimfulError: Ray Serve has no replica with this id.
    """
    import ray
    from ray.exceptions import RayError
    from ray.serve._private.constants import SERVE_NAMESPACE

    from serve_app.replica_calls import ask, find_replica

    known = find_replica(replica_id)

    def call(method: str, *args: Any) -> Any:
        try:
            actor = ray.get_actor(known.to_full_id_str(), SERVE_NAMESPACE)
            answer = ask(actor, known.deployment_id.app_name, method, *args)
            return ray.get(answer, timeout=ANSWER_S)
        except (ValueError, RayError) as error:
            said = f"replica {replica_id} does not answer ({type(error).__name__})"
            raise BrimfulError(said) from None

    return call


def record(
    call: Call,
    seconds: float,
    tell: Callable[[float, int], None],
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Steps:
    """The steps of a replica in the next ``seconds``, by column.

    Args:
        tell: called repeatedly with the seconds that passed and the number of steps.

    Raises:
        BrimfulError: it does not answer, is already being recorded, or ran too few steps.
    """
    owner = uuid4().hex
    steps: Steps | None = call("steps", owner, True)
    if steps is None:
        raise BrimfulError(
            "the replica is recorded already, or was until less than 30 s ago; wait until that"
            " has ended"
        )
    begin_s = clock()
    try:
        while (passed_s := clock() - begin_s) < seconds and _count(steps) < MOST_STEPS:
            sleep(min(PERIOD_S, seconds - passed_s))
            _extend(steps, call("steps", owner, True))
            tell(clock() - begin_s, _count(steps))
    finally:
        _extend(steps, call("steps", owner, False))
    if (count := _count(steps)) < LEAST_STEPS:
        raise BrimfulError(
            f"only {count} steps ran in {seconds:g} s, and {LEAST_STEPS} are needed: send requests"
            " while it records, or record for longer"
        )
    return {name: column[:MOST_STEPS] for name, column in steps.items()}


def _count(steps: Steps) -> int:
    return len(steps["duration_us"])


def _extend(steps: Steps, more: Steps | None) -> None:
    for name, column in (more or {}).items():
        steps[name] += column
