"""plan_groups: block sizes and counts for a model."""

import pytest

from terrace_kv import (
    Attention,
    Cache,
    Chain,
    InvalidArgument,
    KvType,
    LayerShape,
    Root,
    Scales,
    plan_groups,
)

FULL = LayerShape(layers=4, kv_heads=2, head_size=16, type=KvType.INT8, scales=Scales.OWN_GROUP)
WINDOW = LayerShape(layers=2, kind=Attention.SLIDING_WINDOW, block_tokens=32, span_tokens=32, kv_heads=2, head_size=16)


def test_a_cache_starts_with_the_plan_of_a_model_with_two_kinds_of_attention() -> None:
    plan = plan_groups([FULL, WINDOW], tokens=256, chunk_tokens=32, device_bytes=1 << 20, host_bytes=2 << 20, ranks=2)
    assert [group["kind"] for group in plan.config["group"]] == ["full", "full", "sliding-window"]
    sizes = [pool["block-bytes"] for pool in plan.config["pool"]]
    assert sizes == [4 * 16 * 2 * 2 * 16, 4 * 16 * 2 * 2 * 4, 2 * 32 * 2 * 2 * 16 * 2]
    assert [pool["null-block"] for pool in plan.config["pool"]] == [False, False, True]
    assert sum(pool["device-blocks"] * size // 2 for pool, size in zip(plan.config["pool"], sizes)) == plan.device_used <= 1 << 20
    assert plan.sequences > 0 and plan.host_used <= 2 << 20
    with Cache(plan.config) as cache:
        assert [cache.blocks_for(256, group) for group in range(3)] == [16, 16, 8]
        with cache.acquire(Chain(Root(), 16, range(256))) as request:
            assert [len(request.block_table(group)) for group in range(3)] == [16, 16, 8], "keys are for 16 tokens"
            request.release(0)


def test_a_latent_is_whole_on_every_rank() -> None:
    plan = plan_groups([LayerShape(layers=61, latent_size=576)], tokens=4096, device_bytes=40 << 30, ranks=8)
    assert plan.config["rank-payload"] == "replicated" and plan.config["ranks"] == 8
    assert plan.config["pool"][0]["block-bytes"] == 61 * 576 * 2 * 16


def test_what_does_not_fit_is_said() -> None:
    llama = LayerShape(layers=32, kv_heads=8, head_size=128)
    with pytest.raises(InvalidArgument, match="a sequence of 4096 tokens needs 512MiB on the device, and there are 100MiB"):
        plan_groups([llama], tokens=4096, device_bytes=100 << 20)
    with pytest.raises(InvalidArgument, match="at least one kind of layer"):
        plan_groups([], tokens=4096, device_bytes=100 << 20)
    with pytest.raises(ValueError, match="tokens is -1"):
        plan_groups([llama], tokens=-1, device_bytes=100 << 20)
