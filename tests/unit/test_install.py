"""``make install``: what of pip's configuration reaches uv."""

import os
from pathlib import Path

import pytest

from tools.install import (
    InstallError,
    pin,
    pip_config_list,
    pip_settings,
    uv_options,
)

LISTED = """\
:env:.find-links='/wheels'
global.cert='/etc/ca.crt'
global.extra-index-url='file:///a/simple file:///b/simple'
global.find-links='/elsewhere'
install.index-url='https://mirror/simple'
install.no-index='true'
freeze.timeout='10'
"""


def test_uv_is_given_the_same_sources() -> None:
    assert uv_options(pip_settings(LISTED)) == [
        *("--default-index", "https://mirror/simple"),
        *("--index", "file:///a/simple", "--index", "file:///b/simple"),
        *("--find-links", "/wheels"),
        "--no-index",
        *("--index-strategy", "unsafe-best-match"),
    ]


def test_a_pip_that_is_to_be_quiet_says_how_it_is_configured(tmp_path: Path) -> None:
    config = tmp_path / "pip.conf"
    config.write_text("[install]\nquiet = 2\nfind-links =\n  /a\n  /b\n")
    others = {name: value for name, value in os.environ.items() if not name.startswith("PIP_")}
    for quiet in ({}, {"PIP_QUIET": "1"}):
        listed = pip_config_list({**others, "PIP_CONFIG_FILE": str(config), **quiet})
        assert pip_settings(listed)["find-links"].split() == ["/a", "/b"]


def test_a_pin_is_read_from_the_lock(tmp_path: Path) -> None:
    lock = tmp_path / "requirements.lock"
    lock.write_text("torchx==1\ntorch==2.13.0+cpu\n")
    assert pin(lock, "torch") == "torch==2.13.0+cpu"
    with pytest.raises(InstallError, match="has no pin of uv"):
        pin(lock, "uv")
