"""Requests and managers of the installed vLLM, without a model."""

from __future__ import annotations

from typing import Any

import torch
from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_manager import KVCacheManager
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec, SlidingWindowSpec
from vllm.v1.request import Request

BLOCK = 16
init_none_hash(sha256)


def full(block: int = BLOCK) -> FullAttentionSpec:
    return FullAttentionSpec(block_size=block, num_kv_heads=1, head_size=1, dtype=torch.float32)


def sliding(window: int, block: int = BLOCK) -> SlidingWindowSpec:
    return SlidingWindowSpec(block_size=block, num_kv_heads=1, head_size=1, dtype=torch.float32, sliding_window=window)


def own_manager(blocks: int, *specs: Any, hash_block: int = BLOCK, **options: Any) -> KVCacheManager:
    groups = [KVCacheGroupSpec([f"layer.{i}"], spec) for i, spec in enumerate(specs or (full(),))]
    largest = max(group.kv_cache_spec.block_size for group in groups)
    return KVCacheManager(
        # 0 is what vLLM has for prefix_cache_retention_interval, if nothing is said.
        KVCacheConfig(num_blocks=blocks, kv_cache_tensors=[], kv_cache_groups=groups, prefix_cache_retention_interval=0),
        max_model_len=4096,
        scheduler_block_size=largest,
        hash_block_size=hash_block,
        **{"log_stats": True, **options},
    )


def a_request(name: str, tokens: list[int], hash_block: int = BLOCK, **options: Any) -> Request:
    given = SamplingParams(max_tokens=1000, extra_args=options.pop("extra", None))
    given.update_from_generation_config({}, 1 << 20)
    return Request(
        request_id=name,
        prompt_token_ids=tokens,
        sampling_params=given,
        pooling_params=None,
        block_hasher=get_request_block_hasher(hash_block, sha256),
        **options,
    )


def tokens(count: int, first: int = 0) -> list[int]:
    return list(range(first, first + count))
