"""Arguments of applications with prefill and decode apart."""

from typing import Any

from tests.serve_configs import entry


def pd_entry(kv_role: str = "kv_both", **blocks: Any) -> dict[str, Any]:
    """One of the two, without a block of ours but those in ``blocks``."""
    plain = {key: one for key, one in entry().items() if key not in ("batching", "scaling")}
    plain["engine_kwargs"] |= {
        "kv_transfer_config": {"kv_connector": "NixlConnector", "kv_role": kv_role}
    }
    plain["deployment_config"] = {"num_replicas": 1}
    return plain | blocks


def pd_args() -> dict[str, Any]:
    """A pair without a fault, with an SLA for both halves."""
    batching = {"sla": {"itl_ms": 50, "ttft_ms": 2000}, "lease_s": 7}
    return {
        "prefill_config": pd_entry("kv_producer"),
        "decode_config": pd_entry("kv_consumer", batching=batching),
    }
