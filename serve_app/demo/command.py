"""``brimful demo``: two real engines, the same requests with control off, on, and tuned by hand."""

import argparse
import asyncio
import contextlib
import shutil
import tempfile
import threading
import time
from pathlib import Path

import ray
from rich.console import Console

from controller.errors import ConfigError
from serve_app.demo.calibrate import StepTimes, calibrate, make_load
from serve_app.demo.client import send
from serve_app.demo.model import MODELS, SMALL, TINY, TUNED_ON, DemoModel
from serve_app.demo.plot import draw
from serve_app.demo.report import OFF, ON, TUNED, Phase, client_table
from serve_app.demo.stack import Stack, one_phase, small_model_obstacle
from serve_app.launch.local_cluster import local_cluster
from serve_app.options import number

WARM_UP_S = 8.0  # with control on: the policy has seen no step under this SLA yet
WIDTH = 80


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``brimful demo``."""
    parser.add_argument(
        "--seconds",
        type=number("a number from 1 to 3600", 1, 3600),
        default=20.0,
        help="duration of each of the three runs (off, on, tuned by hand), s (default:"
        " %(default)g)",
    )
    parser.add_argument(
        "--model",
        choices=MODELS,
        help="default: smollm2, a real model; tiny if this machine is too small for it",
    )
    parser.add_argument(
        "--plot",
        type=Path,
        default=Path(".cache/demo.png"),
        metavar="FILE",
        help="file of the plot (default: %(default)s)",
    )
    parser.add_argument("--keep", action="store_true", help="keep the engines running until Ctrl-C")


def run(args: argparse.Namespace) -> int:
    """Run the whole demo; 0 if every answer was complete."""
    console = Console()
    if not console.is_terminal:
        console = Console(width=WIDTH)  # a log has no width of its own
    model, reason = _choose(args.model)
    stack = Stack(model)
    directory = Path(
        tempfile.mkdtemp(prefix="brimful-demo-")
    )  # keeps its last line if something goes wrong
    console.print(f"[1/7] {model.title} in {model.folder}{reason} ...", soft_wrap=True)
    model.make(model.folder)
    console.print(f"[2/7] Starting Ray and {stack.replicas} vLLM engines (usually 60 s) ...")
    with contextlib.ExitStack() as exits:
        stack.start(exits.enter_context(local_cluster(logs=directory)), directory, console)
        times, sla_ms = _calibrate(console, stack)
        phases = _phases(console, stack, times, sla_ms, args.seconds)
        held = _report(console, phases, sla_ms, args.plot)
        if args.keep:
            stack.go_by(stack.adaptive(sla_ms))
            _keep(console, stack)
        ray.shutdown()
        console.print("[7/7] Stopping Ray and both engines (usually 10 s) ...")
    shutil.rmtree(directory)
    console.print("Stopped.")
    return 0 if held else 1


def _choose(name: str | None) -> tuple[DemoModel, str]:
    """The model that was asked for, or that this machine can serve; and why not the real one."""
    if name is not None:
        return MODELS[name], ""
    reason = small_model_obstacle()
    return (SMALL, "") if reason is None else (TINY, f" ({SMALL.title} needs more: {reason})")


def _calibrate(console: Console, stack: Stack) -> tuple[StepTimes, float]:
    console.print("[3/7] Timing tokens at the client, control off (usually 15 s) ...")
    stack.switch(enforce=False)
    times = calibrate(stack.base_url, stack.model, stack.replicas)
    sla_ms = times.sla_ms(stack.model.sla_gaps)
    console.print(
        f"      a token every {times.few_s * 1000:.0f} ms in a small batch,"
        f" {times.many_s * 1000:.0f} in a larger one; {stack.model.long_prompt.prompt_tokens}"
        f" prompt tokens\n      take {times.long_prompt_s(stack.model) * 1000:.0f} ms:"
        f" the SLA is {sla_ms:g} ms between two tokens"
    )
    return times, sla_ms


def _phases(
    console: Console, stack: Stack, times: StepTimes, sla_ms: float, seconds: float
) -> tuple[Phase, Phase, Phase]:
    warm_up, load = (
        make_load(stack.model, times, sla_ms, stack.replicas, duration_s, seed)
        for duration_s, seed in ((WARM_UP_S, 0), (seconds, 1))
    )
    tuned = stack.model.tuned
    console.print(f"[4/7] Warming up with the same kind of load ({WARM_UP_S:g} s) ...")
    stack.go_by(stack.adaptive(sla_ms))
    stack.switch(enforce=True)
    asyncio.run(send(stack.base_url, stack.model.name, warm_up.asks))
    console.print(
        f"[5/7] {load.streams} streams, {load.long_prompts} prompts of"
        f" {stack.model.long_prompt.prompt_tokens} tokens: control off, then on ..."
    )
    begin_s = time.perf_counter()
    stack.switch(enforce=False)
    off = one_phase(stack, load, OFF, begin_s)
    stack.switch(enforce=True)
    on = one_phase(stack, load, ON, begin_s)
    console.print(
        f"[6/7] The same, static: {tuned.cap} running requests,"
        f" {tuned.token_budget} tokens a step\n"
        f"      (found before for this load on {TUNED_ON}) ...",
        soft_wrap=True,
    )
    stack.go_by(stack.static(tuned))
    return off, on, one_phase(stack, load, TUNED, begin_s)


def _report(
    console: Console, phases: tuple[Phase, Phase, Phase], sla_ms: float, plot: Path
) -> bool:
    """Print the report; returns whether every answer was whole."""
    console.print()
    console.print(client_table(phases, sla_ms))
    try:
        draw(phases, sla_ms, plot)
        console.print(f"Cap, prompt tokens and ITL over time: {plot.absolute()}", soft_wrap=True)
    except ConfigError as error:  # the figures do not need it
        console.print(f"No picture: {error}", soft_wrap=True)
    broken = [answer for phase in phases for answer in phase.answers if not answer.whole]
    for one in broken[:1]:
        console.print(
            f"{len(broken)} answers were incomplete: {one.status}: {one.error or one.text:.200}"
        )
    return not broken


def _keep(console: Console, stack: Stack) -> None:
    model = stack.model.name
    console.print(
        "\nThe engines run until Ctrl-C or SIGTERM. Try, in another terminal:\n\n"
        f"  curl {stack.base_url}/completions -H 'content-type: application/json' \\\n"
        f"""    -d '{{"model": "{model}", "prompt": "The river", "max_tokens": 16}}'\n\n"""
        "  from openai import OpenAI\n"
        f'  client = OpenAI(base_url="{stack.base_url}", api_key="none")\n'
        "  print(client.completions.create(\n"
        f'      model="{model}", prompt="The river", max_tokens=16))\n',
        markup=False,
        highlight=False,
    )
    try:
        threading.Event().wait()
    except KeyboardInterrupt:
        console.print()
