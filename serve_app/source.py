"""Read YAML strictly: syntax errors, keys written twice and keys that are dates have their line."""

import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from controller.data_file import text_of
from controller.errors import ConfigError
from controller.validation import join
from controller.yaml_text import Loader, problem_of

STDIN = Path("-")
MOST_NODES = 100_000  # a large manifest has some thousand
DATE = "tag:yaml.org,2002:timestamp"
MERGE = "tag:yaml.org,2002:merge"


def read_documents(path: Path) -> list[Any]:
    """The YAML documents of a file (``-``: of standard input), empty ones left out.

    Raises:
        ConfigError: the file cannot be read, is not YAML, repeats a key, or holds nothing.
    """
    text = text_of(_piped if path == STDIN else path.read_bytes, "")
    return parse_documents(text)


@cache
def _piped() -> bytes:
    """Standard input, which can be read once and is checked twice."""
    return sys.stdin.buffer.read()


def parse_documents(text: str) -> list[Any]:
    """The YAML documents of a text, empty ones left out.

    Raises:
        ConfigError: as ``read_documents``; lines are counted from 1 in ``text``.
    """
    try:
        trees = [tree for tree in yaml.compose_all(text, Loader) if tree is not None]
        wrong = [line for tree in trees for line in _loops(tree)]
        # Not in a tree with a loop, which has no end.
        wrong = wrong or [line for tree in trees for line in _faults(tree, "", set())]
        if wrong:
            raise ConfigError(wrong)
        documents = [document for document in yaml.load_all(text, Loader) if document is not None]
    except yaml.YAMLError as error:
        raise ConfigError([problem_of(error)]) from None
    except RecursionError:
        raise ConfigError(["nested too deeply to be read"]) from None
    except ConfigError:
        raise
    except ValueError as error:  # an escape of a character beyond U+10FFFF
        raise ConfigError([f"not valid YAML: {error}"]) from None
    if not documents:
        raise ConfigError(["empty: there is nothing to check"])
    return documents


def _loops(tree: yaml.Node) -> list[str]:
    """Finds an alias of a value that contains it, and aliases that make the document huge."""
    sizes: dict[int, int] = {}
    open_: set[int] = set()
    found: list[str] = []

    def size(node: yaml.Node) -> int:
        if id(node) in open_:
            mark = node.start_mark
            found.append(f"line {mark.line + 1}: what is anchored here holds an alias of itself")
            return 1
        if id(node) not in sizes:
            open_.add(id(node))
            sizes[id(node)] = 1 + sum(map(size, _children(node)))
            open_.remove(id(node))
        return sizes[id(node)]

    nodes = size(tree)
    if not found and nodes > MOST_NODES:
        found.append(f"its aliases unfold to {nodes:,} values; {MOST_NODES:,} are allowed")
    return found


def _children(node: yaml.Node) -> list[yaml.Node]:
    if isinstance(node, yaml.MappingNode):
        return [part for pair in node.value for part in pair]
    return list(node.value) if isinstance(node, yaml.SequenceNode) else []


def _faults(node: yaml.Node, place: str, seen_nodes: set[int]) -> Iterator[str]:
    """Keys that are written twice or are dates."""
    if id(node) in seen_nodes:  # an alias
        return
    seen_nodes.add(id(node))
    if isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            yield from _faults(item, join(place, [index]), seen_nodes)
    elif isinstance(node, yaml.MappingNode):
        first_lines: dict[str, int] = {}
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                continue
            if key.tag == MERGE:
                yield from _faults(value, place, seen_nodes)
                continue
            inner, line = join(place, [key.value]), key.start_mark.line + 1
            if key.value in first_lines:
                yield f"line {line}: {inner}: set twice, first on line {first_lines[key.value]}"
            first_lines.setdefault(key.value, line)
            if key.tag == DATE:
                yield f"line {line}: {inner}: a date is no key; quote it"
            yield from _faults(value, inner, seen_nodes)
