"""``brimful check FILE``: validate a Serve config or RayService manifest before anything starts."""

import argparse
import os
import sys
import warnings
from pathlib import Path
from typing import Any

from controller.errors import ConfigError
from serve_app.checks.findings import Findings, Target
from serve_app.checks.source import read_documents


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``brimful check``."""
    parser.add_argument(
        "files", nargs="+", type=Path, metavar="FILE", help="Serve config or RayService manifest"
    )
    parser.add_argument(
        "--no-paths",
        action="store_true",
        help="the cluster is elsewhere: do not look for model folders on this machine",
    )


def run(args: argparse.Namespace) -> int:
    """Print one summary line per application and ``ok``.

    Raises:
        ConfigError: with every problem of every file.
    """
    target = Target(env=dict(os.environ), local_paths=not args.no_paths)
    problems = []
    for path in args.files:
        findings = check_file(path, target)
        problems += [f"{path}: {problem}" for problem in findings.problems]
        for note in findings.notes:
            print(f"note: {path}: {note}", file=sys.stderr)
        for line in [] if findings.problems else findings.summary:
            print(f"{path}: {line}")
    if problems:
        raise ConfigError(problems)
    print("ok")
    return 0


def check_file(path: Path, target: Target) -> Findings:
    """Everything there is to say about one file; never raises for what is in it."""
    findings = Findings()
    with findings.collecting(), warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always", FutureWarning)  # Ray says so where it will refuse later
        documents = read_documents(path)
        _import_models()
        from serve_app.checks.manifest import check_documents, is_manifest
        from serve_app.checks.serve import check_serve

        if any(is_manifest(document) for document in documents):
            check_documents(documents, findings)
        elif len(documents) > 1:
            findings.add([f"{len(documents)} YAML documents; Ray Serve reads the first one only"])
        else:
            check_serve(documents[0], "", target, findings)
    told = (str(w.message) for w in heard if issubclass(w.category, FutureWarning))
    findings.notes.extend(dict.fromkeys(told))
    return findings


def _import_models() -> Any:
    """Ray Serve LLM and vLLM describe what they take; without them nothing can be checked."""
    if "serve_app.checks.shapes" in sys.modules:
        return
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    print("Reading what Ray Serve LLM and vLLM accept (5 to 20 s) ...", file=sys.stderr, flush=True)
    try:
        import serve_app.checks.shapes  # noqa: F401
    except ImportError as error:
        raise ConfigError(
            [f"cannot check it: {error}; install Brimful with its `gpu` or `cpu` extra"]
        ) from None
