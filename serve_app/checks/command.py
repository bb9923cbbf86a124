"""``brimful check FILE``: validate a Serve config or RayService manifest before anything starts."""

import argparse
import json
import os
import sys
import warnings
from dataclasses import asdict
from pathlib import Path
from typing import Any

from controller.errors import ConfigError
from serve_app.checks.findings import Findings, Target
from serve_app.source import read_documents

ABOUT = (
    "Every mistake in a Serve config or a RayService manifest, all at once and before anything"
    " starts: each with its key, its value and what is allowed. Exit status: 0 none, 2 some."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``brimful check``."""
    parser.description = ABOUT
    parser.add_argument(
        "files", nargs="+", type=Path, metavar="FILE", help="Serve config or RayService manifest"
    )
    parser.add_argument(
        "--no-paths",
        action="store_true",
        help="the cluster is elsewhere: do not look for model folders on this machine",
    )
    parser.add_argument("--json", action="store_true", help="one JSON object, for scripts")


def run(args: argparse.Namespace) -> int:
    """Print one summary line per application and ``ok``; with ``--json`` all that was found.

    Raises:
        ConfigError: with every problem of every file; not with ``--json``.
    """
    target = Target(env=dict(os.environ), local_paths=not args.no_paths)
    checked = [(path, check_file(path, target)) for path in args.files]
    if args.json:
        ok = not any(findings.problems for _, findings in checked)
        files = [{"file": str(path), **asdict(findings)} for path, findings in checked]
        print(json.dumps({"ok": ok, "files": files}))
        return 0 if ok else 2
    problems = []
    for path, findings in checked:
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
    with findings.collecting(), warnings.catch_warnings(record=True) as caught:
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
    told = (str(w.message) for w in caught if issubclass(w.category, FutureWarning))
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
