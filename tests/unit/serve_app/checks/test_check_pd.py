"""``brimful check`` on prefill and decode apart."""

from typing import Any

import pytest

from serve_app.checks.findings import Findings
from serve_app.checks.quick import quick_check
from tests.pd_configs import pd_args
from tests.serve_configs import APP, DIRECT, HERE, config, entry, put

ARGS = "applications[0].args"


def data(**args: Any) -> Any:
    return put(config(), (*APP, "args"), {**pd_args(), **args})


@pytest.mark.parametrize("target", [HERE, DIRECT], ids=["plain", "direct"])
def test_a_sound_pair_is_described_by_its_roles(check, target):
    found = check(data(), target)
    assert found.problems == []
    assert found.summary == [
        "llm at /: prefill: model m, policy adaptive, 2000 ms to the first token at p99, 1 to 64"
        " running, 1 replica; decode: model m, policy adaptive, 50 ms between tokens and 2000 ms to"
        " the first token at p99, 1 to 64 running, 1 replica"
    ]


@pytest.mark.parametrize(
    ("path", "value", "line"),
    [
        (
            ("llm_configs",),
            [entry()],
            f"{ARGS}: llm_configs is not allowed beside prefill_config and decode_config: an"
            " application serves whole engines, or one model with prefill and decode apart; make"
            " each its own application",
        ),
        (
            ("prefill_config", "model_loading_config", "model_id"),
            "n",
            f"{ARGS}.prefill_config.model_loading_config.model_id: 'n' is not allowed:"
            " decode_config has 'm', and both are of one model",
        ),
        (
            ("decode_config", "batching", "lease_s"),
            0,
            f"{ARGS}.decode_config.batching.lease_s: 0 is not allowed: Input should be greater"
            " than or equal to 1",
        ),
        (
            ("decode_config", "engine_kwargs", "max_num_seq"),
            3,
            f"{ARGS}.decode_config.engine_kwargs: unknown key 'max_num_seq'; did you mean"
            " 'max_num_seqs'?",
        ),
        (("prefill",), {}, f"{ARGS}: unknown key 'prefill'; did you mean 'prefill_config'?"),
    ],
)
def test_each_wrong_input_gets_one_line(check, path, value, line):
    assert check(put(data(), (*APP, "args", *path), value)).problems == [line]


def test_the_quick_check_says_what_the_whole_one_says(check):
    wrong = put(data(), (*APP, "args", "prefill_config", "batching"), {"sla": {"itl_ms": 5}})
    early = Findings()
    quick_check([wrong], early)
    assert early.problems == check(wrong).problems
    assert len(early.problems) == 1


def test_an_override_is_known_by_its_half(check):
    known = [{"name": f"{half}:m", "num_replicas": 2} for half in ("Prefill", "Decode")]
    assert check(put(data(), (*APP, "deployments"), known)).problems == []
    (said,) = check(put(data(), (*APP, "deployments"), [{"name": "BrimfulServer:m"}])).problems
    assert "no deployment of this application" in said
