"""Block sizes and counts from the shape of a model and a memory budget."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import byref
from dataclasses import dataclass, fields
from enum import IntEnum
from typing import Any

from . import _interface
from ._library import check, lib


class Attention(IntEnum):
    """To which tokens a token attends."""

    FULL = 0
    SLIDING_WINDOW = 1
    CHUNKED_LOCAL = 2
    RECURRENT = 3
    CROSS = 4


class KvType(IntEnum):
    """The type of one value in the KV of a model."""

    FLOAT32 = 0
    FLOAT16 = 1
    BFLOAT16 = 2
    FLOAT8 = 3
    INT8 = 4
    INT4 = 5


class Scales(IntEnum):
    """Where the scales of quantised values are."""

    NONE = 0
    INSIDE_BLOCK = 1
    OWN_GROUP = 2
    """In their own blocks, in the group after that of the values."""


@dataclass(frozen=True)
class LayerShape:
    """Layers of the same shape. Counts are for the whole model, before it is divided among ranks. Set `kv_heads` and `head_size`,
    or `latent_size`, or (of recurrent layers) `state_bytes`."""

    layers: int
    kind: Attention = Attention.FULL
    block_tokens: int = 16
    span_tokens: int = 0
    """Of the window or chunk."""
    optional: bool = False
    """The group never shortens a hit, as for the layers of a draft model."""
    kv_heads: int = 0
    head_size: int = 0
    """Values of K in one head, and of V unless `value_head_size` is set."""
    value_head_size: int = 0
    latent_size: int = 0
    """Values for one token of MLA, K and V together."""
    state_bytes: int = 0
    """The state of one layer."""
    type: KvType = KvType.BFLOAT16
    scales: Scales = Scales.NONE
    scale_type: KvType = KvType.FLOAT32
    values_per_scale: int = 0
    """0: one scale for all values of a head."""


@dataclass(frozen=True)
class GroupPlan:
    """The result of plan_groups()."""

    config: dict[str, Any]
    """Options for a Cache: ranks, rank-payload, and the tables pool and group."""
    sequences: int
    """Typical sequences that fit the device at the same time."""
    device_used: int
    """Bytes on one rank."""
    host_used: int
    """Bytes of all ranks together."""


def plan_groups(
    layers: Sequence[LayerShape],
    *,
    tokens: int,
    device_bytes: int,
    host_bytes: int = 0,
    ranks: int = 1,
    chunk_tokens: int = 0,
    encoder_tokens: int = 0,
    staging_blocks: int = 0,
    block_unit: int = 1,
) -> GroupPlan:
    """Derives block sizes from the shapes of the layers, and block counts from the memory, so that all pools become full at the
    same time if sequences are typical.

        plan = plan_groups([LayerShape(layers=32, kv_heads=8, head_size=128)], tokens=4096, device_bytes=40 << 30)
        cache = Cache({**plan.config, "storage": {"where": "none"}})

    Args:
        tokens: Of a typical sequence, prompt and output together.
        device_bytes: Memory of one rank.
        host_bytes: Memory of all ranks together, staging included.
        ranks: Tensor-parallel ranks.
        chunk_tokens: The most tokens of a step.
        encoder_tokens: Of a typical sequence, for cross attention.
        staging_blocks: Staging slots of each pool; 0 if there is no storage.
        block_unit: Block sizes must be a multiple of it: 4096 with file storage.

    Raises:
        InvalidArgument: It does not fit. The sentence says what would.
    """
    shapes = (_interface.LayerShape * len(layers))(
        *(_interface.LayerShape(**{field.name: getattr(each, field.name) for field in fields(each)}) for each in layers)
    )
    order = _interface.PlanOrder(
        layers=shapes,
        layer_count=len(layers),
        device_bytes=device_bytes,
        host_bytes=host_bytes,
        block_unit=block_unit,
        ranks=ranks,
        tokens=tokens,
        chunk_tokens=chunk_tokens,
        encoder_tokens=encoder_tokens,
        staging_blocks=staging_blocks,
    )
    groups, pools = (_interface.PlannedGroup * (2 * len(layers)))(), (_interface.PlannedPool * (2 * len(layers)))()
    plan = _interface.GroupPlan()
    check(lib.terrace_plan_groups(byref(order), groups, pools, byref(plan)))
    config = {
        "ranks": max(ranks, 1),
        "rank-payload": "replicated" if plan.replicated else "sharded",
        "pool": [_options(pool) | {"null-block": bool(pool.null_block)} for pool in pools[: plan.pool_count]],
        "group": [
            _options(group) | {"kind": Attention(group.kind).name.lower().replace("_", "-"), "optional": bool(group.optional)}
            for group in groups[: plan.group_count]
        ],
    }
    return GroupPlan(config, plan.sequences, plan.device_used, plan.host_used)


def _options(planned: ctypes.Structure) -> dict[str, Any]:
    """The fields as options of a configuration."""
    return {name.replace("_", "-"): getattr(planned, name) for name, *_ in planned._fields_ if name != "reserved"}
