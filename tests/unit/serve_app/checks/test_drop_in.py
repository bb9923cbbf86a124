"""Example files of Ray and KubeRay, by their import_path alone: served here, or told what differs.

They are read from checkouts, where there are some:

    git clone --depth 1 https://github.com/ray-project/ray
    git clone --depth 1 https://github.com/ray-project/kuberay
    RAY_SOURCE=ray KUBERAY_SOURCE=kuberay pytest tests/unit/serve_app/checks/test_drop_in.py

The same without a checkout: ``ray_documented.yaml``, whose cases are written anew.
"""

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from serve_app.checks.command import check_file
from serve_app.checks.findings import BUILDER, Target

SAYS = yaml.safe_load(Path(__file__).with_name("drop_in.yaml").read_text())
# Their builders, and the module that one example still has from before there were these.
THEIRS = re.compile(
    r"ray\.serve\.llm:build_(?:openai|pd_openai|dp_openai)_app"
    r"|ray\.llm\._internal\.serve\.deployments\.prefill_decode_disagg\S*:build_app"
)
# Each page's own variables for Ray's processes are no part of its file.
PLAIN = Target(env={}, local_paths=False)
FOLDERS = {
    "RAY_SOURCE": ("doc/source/llm", "doc/source/serve"),
    "KUBERAY_SOURCE": ("ray-operator/config/samples",),
}


def examples(source: Path, folders: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """The path and the text of every example, with our builder in place of theirs."""
    for folder in folders:
        for path in sorted((source / folder).rglob("*.yaml")):
            text = path.read_text()
            if THEIRS.search(text):
                yield path.relative_to(source).as_posix(), THEIRS.sub(BUILDER, text)


@pytest.mark.parametrize("source", FOLDERS)
def test_every_example_is_served_or_told_what_differs(source: str, tmp_path: Path) -> None:
    if source not in os.environ:
        pytest.skip(f"{source} names no checkout")
    found = {}
    for name, text in examples(Path(os.environ[source]), FOLDERS[source]):
        path = tmp_path / "example.yaml"
        path.write_text(text)
        findings = check_file(path, PLAIN)
        closed = [note for note in findings.notes if "closed (404)" in note]
        found[name] = findings.problems + closed
    assert found
    assert {name: told for name, told in found.items() if told} == SAYS[source]
