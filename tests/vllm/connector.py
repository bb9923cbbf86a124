"""What the tests' KV connectors have in common: nothing is moved."""

from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorBase_V1


class IdleConnector(KVConnectorBase_V1):
    """Only how many tokens it has of a prompt is left to say."""

    def update_state_after_alloc(self, request, blocks, num_external_tokens):
        pass

    def build_connector_meta(self, scheduler_output):
        return None

    def start_load_kv(self, forward_context, **kwargs):
        pass

    def wait_for_layer_load(self, layer_name):
        pass

    def save_kv_layer(self, layer_name, kv_layer, attn_metadata, **kwargs):
        pass

    def wait_for_save(self):
        pass
