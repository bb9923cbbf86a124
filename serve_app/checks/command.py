"""``brimful check FILE``: validate a Serve config or RayService manifest before anything starts."""

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from controller.errors import ConfigError
from replicas.server.startup import gc_paused
from serve_app.checks.findings import Findings, Target
from serve_app.checks.quick import quick_check
from serve_app.source import read_documents

FOUND = 2  # exit status
LOGGING = "VLLM_LOGGING_LEVEL"
ABOUT = (
    "Find every mistake in a Serve config or a RayService manifest before anything starts:"
    " each with its key, its value and what is allowed. Exit status: 0 if there is no mistake,"
    " else 2. To change a running application: `brimful apply` (`serve deploy` restarts every"
    " replica)."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``brimful check``."""
    parser.description = ABOUT
    parser.add_argument(
        "files",
        nargs="+",
        type=Path,
        metavar="FILE",
        help="Serve config, or manifest with a RayService (may have several documents); `-`:"
        " standard input, such as from `kubectl kustomize`",
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="check only YAML and Brimful's blocks, not the keys of Ray Serve and vLLM; takes"
        " a second",
    )


def run(args: argparse.Namespace) -> int:
    """Print one summary line per application and ``ok``.

    Findings that need neither Ray nor vLLM are printed first, before these are imported.

    Raises:
        ConfigError: with every problem of every file.
    """
    target = Target(env=dict(os.environ), local_paths=True)
    early = {path: quick_file(path) for path in args.files}
    if args.quick:
        found = [f"{path}: {one}" for path in early for one in early[path].problems]
        if found:
            raise ConfigError(found)
        print("ok so far: keys of Ray Serve and vLLM were not checked")
        return 0
    if not sound(args.files, target, early):
        return FOUND
    print("ok")
    return 0


def sound(
    files: Sequence[Path], target: Target, early: Mapping[Path, Findings], *, named: bool = True
) -> bool:
    """Print the findings on these files; returns whether nothing is wrong.

    Args:
        early: what ``quick_file`` found in each.
        named: whether each line begins with the file's name.

    Raises:
        ConfigError: with every problem that was not among ``early``.
    """
    at = {path: f"{path}: " if named else "" for path in files}
    for path, found in early.items():
        for problem in found.problems:
            print(f"error: {at[path]}{problem}", file=sys.stderr, flush=True)
    problems = []
    for path, findings in _checked(files, target):
        told = early[path].problems
        problems += [f"{at[path]}{one}" for one in findings.problems if one not in told]
        for note in findings.notes:
            print(f"note: {at[path]}{note}", file=sys.stderr)
        for line in [] if findings.problems else findings.summary:
            print(f"{at[path]}{line}")
    if problems:
        raise ConfigError(problems)
    return not any(found.problems for found in early.values())


def _checked(files: Sequence[Path], target: Target) -> list[tuple[Path, Findings]]:
    with gc_paused():  # a fifth of what the imports take
        return [(path, check_file(path, target)) for path in files]


def quick_file(path: Path) -> Findings:
    """Findings on one file without Ray and vLLM; never raises for its contents."""
    findings = Findings()
    with findings.collecting():
        quick_check(read_documents(path), findings)
    return findings


def check_file(path: Path, target: Target) -> Findings:
    """All findings on one file; never raises for its contents."""
    findings = Findings()
    with findings.collecting():
        documents = read_documents(path)
        import_models()
        from serve_app.checks.manifest import check_documents
        from serve_app.checks.serve import check_serve

        if any(isinstance(one, dict) and "kind" in one for one in documents):
            check_documents(documents, findings)
        elif len(documents) > 1:
            findings.add([f"{len(documents)} YAML documents; Ray Serve reads the first one only"])
        else:
            check_serve(documents[0], "", target, findings)
    return findings


def import_models() -> None:
    """Raise an error if Ray Serve LLM or vLLM, which describe the keys, are not installed."""
    if "serve_app.checks.values" in sys.modules:
        return
    quiet = LOGGING not in os.environ
    if quiet:
        os.environ[LOGGING] = "ERROR"
    print("Reading what Ray Serve LLM and vLLM accept (5 to 20 s) ...", file=sys.stderr, flush=True)
    try:
        import serve_app.checks.values  # noqa: F401
    except ImportError as error:
        raise ConfigError(
            [f"cannot check it: {error}; install Brimful with its `gpu` or `cpu` extra"]
        ) from None
    finally:
        if quiet:  # anything started from here on logs what it does
            del os.environ[LOGGING]
