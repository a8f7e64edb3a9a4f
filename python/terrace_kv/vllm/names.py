"""What the chunks of a vLLM engine mean, and where their store lies."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import vllm

from .. import identity

_FORMAT = 1  # a row as vLLM lays it out, without a header


def chunk_namespace(
    config: Any, chunk_bytes: int, weights_revision: str | None, attention_backend: str | None
) -> tuple[bytes, dict[str, Any]]:
    """The namespace of an engine's keys, and the fields that it was made of.

    `config` is vLLM's OffloadingConfig. Raises ValueError if the weights cannot be named.
    """
    parallel = asdict(config.parallel)
    for place in ("rank", "data_parallel_index", "data_parallel_size", "data_parallel_rank_local"):
        parallel.pop(place, None)  # replicas compute the same blocks
    fields = {
        "format": _FORMAT,
        "vllm": vllm.__version__,
        "model": config.model.name,
        "model_config": identity.config_digest(config.model.name),
        "weights": identity.weights_revision(config.model.name, weights_revision),
        "dtype": config.model.dtype,
        "groups": [asdict(group) for group in config.groups],
        "cache": asdict(config.cache),
        "parallel": parallel,
        "layout": config.kv_cache_layout,
        "canonical_layout": config.canonical_layout,
        "replicated_layout": config.replicated_layout,
        "chunk_bytes": chunk_bytes,
        "attention_backend": attention_backend,
    }
    return identity.namespace("vllm", fields), fields


def store_name(config: Any, chunk_bytes: int) -> str:
    """The directory of an engine's store inside the path. Chunks of another size need another store, and so does each replica
    of a data-parallel engine, because one process at a time has a store."""
    parallel = config.parallel
    replica = f"-dp{parallel.data_parallel_index}" if parallel.data_parallel_size > 1 else ""
    return f"vllm-{chunk_bytes}{replica}"
