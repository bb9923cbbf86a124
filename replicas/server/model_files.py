"""The replica fetches model files itself if it needs only its own node.

Ray Serve LLM fetches them in a task on each node. The task's process imports vLLM, which takes as
long as in the replica. Afterwards it stays in memory, even for a model in a local folder.
"""

import asyncio

import ray
from ray.llm._internal.common.callbacks.base import CallbackBase
from ray.llm._internal.serve.utils.node_initialization_utils import initialize_remote_node

from replicas.server.startup import REPLICA


class FetchedByReplica(CallbackBase):
    """Ray Serve LLM's own code for one node, called here; for several nodes its tasks stay."""

    async def on_before_node_init(self) -> None:
        bundles = ray.util.placement_group_table(self.ctx.placement_group)["bundles_to_node_id"]
        if set(bundles.values()) != {ray.get_runtime_context().get_node_id()}:
            return
        path = await asyncio.to_thread(initialize_remote_node, self.llm_config)
        self.llm_config.get_engine_config().hf_model_id = path
        self.ctx.run_init_node = False

    async def on_after_node_init(self) -> None:
        REPLICA.ends("model files")
