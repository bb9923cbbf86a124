"""Where the replica's node is the only one it needs, model files are fetched by the replica itself.

Ray Serve LLM fetches them in a task of its own on each node. Its process imports vLLM anew, which
takes as long as in the replica, waits for work afterwards with all that in memory, and is there
even where the model is a local folder and nothing is to be fetched.
"""

import asyncio

import ray
from ray.llm._internal.common.callbacks.base import CallbackBase
from ray.llm._internal.serve.utils.node_initialization_utils import initialize_remote_node

from replicas.server.startup import REPLICA


class FetchedByReplica(CallbackBase):
    """Ray Serve LLM's own code for one node, called here; several nodes are left to its tasks."""

    async def on_before_node_init(self) -> None:
        bundles = ray.util.placement_group_table(self.ctx.placement_group)["bundles_to_node_id"]
        if set(bundles.values()) != {ray.get_runtime_context().get_node_id()}:
            return
        path = await asyncio.to_thread(initialize_remote_node, self.llm_config)
        self.llm_config.get_engine_config().hf_model_id = path
        self.ctx.run_init_node = False

    async def on_after_node_init(self) -> None:
        REPLICA.ends("model files")
