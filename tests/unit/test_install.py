"""``make install``: what of pip's configuration reaches uv."""

import os
from pathlib import Path

import pytest

from tools.install import (
    InstallError,
    pin,
    pip_config_list,
    pip_settings,
    uv_environment,
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


def test_of_several_sections_the_one_that_wins_in_pip_counts() -> None:
    assert pip_settings(LISTED) == {
        "find-links": "/wheels",
        "cert": "/etc/ca.crt",
        "extra-index-url": "file:///a/simple file:///b/simple",
        "index-url": "https://mirror/simple",
        "no-index": "true",
    }


def test_uv_is_given_the_same_sources() -> None:
    assert uv_options(pip_settings(LISTED)) == [
        *("--default-index", "https://mirror/simple"),
        *("--index", "file:///a/simple", "--index", "file:///b/simple"),
        *("--find-links", "/wheels"),
        "--no-index",
        *("--index-strategy", "unsafe-best-match"),
    ]


def test_where_pip_is_not_configured_uv_is_told_nothing() -> None:
    assert uv_options(pip_settings("")) == []
    assert uv_environment({}, {"A": "1"}) == {"A": "1"}


def test_what_is_set_for_uv_stays() -> None:
    settings = {"cert": "/etc/ca.crt", "timeout": "180"}
    assert uv_environment(settings, {"SSL_CERT_FILE": "/mine"}) == {
        "SSL_CERT_FILE": "/mine",
        "UV_HTTP_TIMEOUT": "180",
    }


def test_a_certificate_that_names_the_client_is_uvs_too() -> None:
    settings = pip_settings("global.client-cert='/etc/client.pem'")
    assert uv_environment(settings, {}) == {"SSL_CLIENT_CERT": "/etc/client.pem"}


def test_uv_waits_whole_seconds() -> None:
    assert uv_environment({"timeout": "15.5"}, {}) == {"UV_HTTP_TIMEOUT": "16"}


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
