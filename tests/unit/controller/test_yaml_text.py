"""The loader that people's YAML is read with."""

import datetime

import pytest
import yaml

from controller.yaml_text import Loader

TIMESTAMP = "tag:yaml.org,2002:timestamp"


def test_a_date_is_a_date_whatever_another_library_makes_of_it(monkeypatch):
    # As lm-format-enforcer does, which vLLM imports for structured outputs.
    text = yaml.SafeLoader.yaml_constructors["tag:yaml.org,2002:str"]
    monkeypatch.setitem(yaml.SafeLoader.yaml_constructors, TIMESTAMP, text)
    assert yaml.safe_load("2001-12-13") == "2001-12-13"
    assert yaml.load("2001-12-13", Loader) == datetime.date(2001, 12, 13)
    with pytest.raises(yaml.YAMLError, match="is not allowed as timestamp"):
        yaml.load("2001-13-45", Loader)
