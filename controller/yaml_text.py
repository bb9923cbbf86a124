"""YAML that people write: any problem is a ``yaml.YAMLError``, in one line."""

from typing import Any

import yaml

from controller.validation import shown


class Loader(yaml.SafeLoader):
    """PyYAML's loader, whose own one raises other errors for values that do not parse.

    A month 13 in a date is such a value, or a number of 5,000 digits.
    """

    # A date stays a date: lm-format-enforcer, a backend of vLLM's structured outputs, makes it a
    # text for all of PyYAML's loaders.
    yaml_constructors = yaml.SafeLoader.yaml_constructors | {
        "tag:yaml.org,2002:timestamp": yaml.SafeLoader.construct_yaml_timestamp
    }

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep)
        except (ValueError, LookupError, TypeError, AttributeError):
            kind = node.tag.rpartition(":")[2]
            raise yaml.constructor.ConstructorError(
                None, None, f"{shown(node.value)} is not allowed as {kind}", node.start_mark
            ) from None


def problem_of(error: yaml.YAMLError) -> str:
    """The problem in one line, with its place if known."""
    if not isinstance(error, yaml.MarkedYAMLError):
        return f"not valid YAML: {' '.join(str(error).split())}"
    mark = error.problem_mark or error.context_mark
    place = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
    return f"{place}not valid YAML: {error.problem}"
