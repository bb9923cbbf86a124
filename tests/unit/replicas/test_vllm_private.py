"""What is private of vLLM is listed in full, and which versions are tested."""

import ast
import re
from pathlib import Path

import pytest

from replicas.workarounds.vllm_private import (
    ATTRIBUTES,
    ROOT,
    SCHEDULER,
    Thing,
    missing,
)
from replicas.workarounds.vllm_source import VllmSource
from replicas.workarounds.vllm_versions import NEWEST, OLDEST, doubt_of, is_tested

# Ours, on the scheduler.
OURS = {"now_s", "wall_s", "governor", "exchange", "configure", "_reader", "_cap_name"}
OURS |= {"_awaits_first_token", "guard"}
SCHEDULERS = [
    ROOT / "replicas/engine/scheduler.py",
    ROOT / "replicas/engine/loads_first.py",
    ROOT / "replicas/engine/lost_sessions.py",
    ROOT / "replicas/workarounds/grammar_faults.py",
]


def listed(owner: str) -> set[str]:
    return set(re.sub(r"@\S+", "", ATTRIBUTES[owner]).replace("|", " ").split())


def read_of(names: set[str], tree: ast.AST) -> set[str]:
    """Attributes that are read of variables, or of our own fields, of these names."""
    found = set()
    for node in ast.walk(tree):
        if not isinstance(node, ast.Attribute):
            continue
        holder = node.value
        name = getattr(holder, "id", None) or getattr(holder, "attr", None)
        if name in names:
            found.add(node.attr)
    return found


def test_what_the_engine_reads_of_the_scheduler_is_listed() -> None:
    used = set()
    for path in (ROOT / "replicas/engine").glob("*.py"):
        used |= read_of({"scheduler", "_scheduler"}, ast.parse(path.read_text()))
    assert used - OURS - listed(SCHEDULER) == set()


@pytest.mark.parametrize("path", SCHEDULERS, ids=lambda path: path.stem)
def test_what_the_scheduler_reads_of_itself_is_listed_or_its_own(path: Path) -> None:
    tree = ast.parse(path.read_text())
    own = {n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)}
    own |= {
        t.id
        for n in ast.walk(tree)
        if isinstance(n, ast.Assign | ast.AnnAssign)
        for t in ast.walk(n)
        if isinstance(t, ast.Name)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            own.add(node.attr)
    calls = {
        n.func.attr
        for n in ast.walk(tree)
        if isinstance(n, ast.Call)
        and isinstance(n.func, ast.Attribute)
        and isinstance(n.func.value, ast.Call)
        and getattr(n.func.value.func, "id", None) == "super"
    }
    assert (read_of({"self"}, tree) - own) | calls <= listed(SCHEDULER)


@pytest.fixture
def source(tmp_path: Path) -> VllmSource:
    files = {
        "__init__.py": "NAMES = {'LLM': '.a:LLM'}\ndef __getattr__(name): ...\n",
        "a.py": "class Base:\n"
        "    def kept(self):\n        self.late: int = 1\n        self.set = 2\n",
        "b/__init__.py": "from .c import Leaf as Other\nfrom vllm.a import Base\n",
        "b/c.py": "try:\n    from vllm.a import Base\nexcept ImportError: ...\n"
        "class Leaf(Base):\n    field: int\n    CONST = OTHER = 1\n",
        "lost.py": "def wanted(): ...\n",
    }
    for name, text in files.items():
        path = tmp_path / "vllm" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return VllmSource(tmp_path / "vllm")


@pytest.mark.parametrize(
    "thing",
    [
        *("vllm.a", "vllm.b", "vllm.b:c", "vllm:LLM", "vllm.b:Other.field", "vllm.b.c:Leaf.CONST"),
        *("vllm.b.c:Leaf.OTHER", "vllm.b:Other.kept", "vllm.b:Other.late", "vllm.a:Base.set"),
    ],
)
def test_what_is_there_is_found(source: VllmSource, thing: str) -> None:
    assert source.has(thing)


@pytest.mark.parametrize(
    "thing",
    ["vllm.z", "vllm.a:Leaf", "vllm:Other", "vllm.a:Base.field", "vllm.b:Other.no", "vllm.z:Base"],
)
def test_what_is_not_there_is_not_found(source: VllmSource, thing: str) -> None:
    assert not source.has(thing)


def test_what_is_missing_is_named_with_where_it_is_now(source: VllmSource) -> None:
    things = [
        Thing(("vllm.a:Base.kept",)),
        Thing(("vllm.a:Base.old", "vllm.a:Base.set")),
        Thing(("vllm.a:Leaf",)),
        Thing(("vllm.a:nothing",)),
        Thing(("vllm.moved.lost",)),
        Thing(("vllm.a:Base.later",), (0, 29)),
    ]
    found = ["vllm.a:Leaf (now in vllm.b.c)", "vllm.a:nothing (gone)"]
    found += ["vllm.moved.lost (now in vllm.lost)"]
    assert missing(things, "0.28.3", source) == found
    assert missing(things, "0.29.0", source) == [*found, "vllm.a:Base.later (gone)"]
    assert missing(things, "dev", source) == [*found, "vllm.a:Base.later (gone)"]


@pytest.mark.parametrize("release", [OLDEST, NEWEST, "0.29.0+cpu", "0.30.1", "0.33.7", "0.25.0rc1"])
def test_between_the_oldest_and_the_newest_nothing_is_doubted(release: str, tmp_path: Path) -> None:
    assert is_tested(release)
    assert doubt_of(release, VllmSource(tmp_path)) is None


@pytest.mark.parametrize("release", ["0.24.9", "0.34.0", "0.34.0.dev3+gabc", "1.0.0", "dev", ""])
def test_others_are(release: str) -> None:
    assert not is_tested(release)
