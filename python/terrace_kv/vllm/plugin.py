"""The entry point for vLLM's plug-ins: registers short names for the classes of this package."""

from __future__ import annotations


def register() -> None:
    """Registers "terrace" as a type of secondary tier, and the spec "TerraceOffloadingSpec". vLLM calls it in each of its
    processes; a second call does nothing."""
    from vllm.v1.kv_offload.factory import OffloadingSpecFactory
    from vllm.v1.kv_offload.tiering.factory import SecondaryTierFactory

    if "terrace" not in SecondaryTierFactory._registry:
        SecondaryTierFactory.register_tier("terrace", "terrace_kv.vllm.tier", "TerraceTier")
    if "TerraceOffloadingSpec" not in OffloadingSpecFactory._registry:
        OffloadingSpecFactory.register_spec("TerraceOffloadingSpec", "terrace_kv.vllm.spec", "TerraceOffloadingSpec")
