"""Everything that decides the bytes of a page. It is part of the names of the blocks, so that pages with other bytes are
misses."""

from __future__ import annotations

import importlib.metadata
import sys
from collections.abc import Mapping
from typing import Any

from ..identity import config_digest, contents, namespace, weights_revision
from . import updates
from .pages import PoolPages

# Fields of SGLang's configuration that decide the bytes, beside the weights. A field that a version of SGLang does not have is
# None.
_LEAVES = (
    "attention_backend",
    "context_length",
    "decode_attention_backend",
    "dsa_decode_backend",
    "dsa_prefill_backend",
    "dtype",
    "json_model_override_args",
    "kv_cache_dtype",
    "linear_attn_backend",
    "load_format",
    "mamba_ssm_dtype",
    "model_impl",
    "model_loader_extra_config",
    "prefill_attention_backend",
    "quantization",
    "quantization_param_path",
    "revision",
    "speculative_algorithm",
    "speculative_draft_model_path",
    "speculative_draft_model_revision",
    "weight_version",
)
# Fields that name files or models. The contents of these decide the bytes, too.
_PATHS = (
    "decrypted_config_file",
    "decrypted_draft_config_file",
    "kt_weight_path",
    "modelopt_checkpoint_restore_path",
    "quantization_param_path",
    "speculative_draft_model_path",
    "uno_lora_path",
)
_NOT_OF_FILES = ("remote", "remote_instance")  # value of load_format


def base_fields(config: Any, revision: str | None) -> dict[str, Any]:
    """The fields that all pools share. Reads the weights of a local model and all other files that SGLang loads at its start,
    unless the operator has named them.

    Args:
        config: SGLang's HiCacheStorageConfig.
        revision: The operator's name for the weights, or None.

    Raises:
        ValueError: The weights cannot be named, or changes at run time are not noticed.
    """
    updates.watch([each for each in _leaf("lora_paths") or () if hasattr(each, "lora_id")])
    model = str(_leaf("model_path") or config.model_name or "")
    if not model and revision is None:
        raise ValueError("SGLang names no model; state weights_revision in the extra config")
    if (_leaf("enable_lora") or _adapters()) and not _adapters_name_pages():
        raise ValueError("this version of SGLang names pages by tokens alone, also with LoRA adapters; use it without adapters")
    fields = {leaf: _text(_leaf(leaf)) for leaf in _LEAVES}
    if updates.mark() is not None:
        fields |= weights_now()  # only this process finds the pages
    return fields | {
        "sglang": _version(),
        "model": model,
        "model_config": config_digest(model) if model else None,
        "weights": weights_revision(model, revision),
        "loaded": None if revision is not None else _loaded(model),
        "tp_size": config.tp_size,
        "pp": [config.pp_rank, config.pp_size],
        "attn_cp": [config.attn_cp_rank, config.attn_cp_size],
        "dcp": [config.dcp_rank, config.dcp_size, config.logical_page_size],
    }


def _loaded(model: str) -> dict[str, Any]:
    """The files that SGLang loads beside the weights of the model, named by their contents, because SGLang's own names are only
    paths.

    An adapter that is loaded later has a random id, which is in the names of its pages.
    """
    load_format = _text(_leaf("load_format"))
    if load_format in _NOT_OF_FILES:
        raise ValueError(f"load_format is {load_format}, so that the weights come from elsewhere; state weights_revision")
    paths = {leaf: str(path) for leaf in _PATHS if (path := _leaf(leaf)) and str(path) != model}
    for adapter in _adapters():
        paths[f"the adapter {adapter}"] = adapter
    return {what: contents(what, path) for what, path in sorted(paths.items())}


def _adapters() -> list[str]:
    """The paths of --lora-paths, in any of the forms that SGLang has for them."""
    given = _leaf("lora_paths") or ()
    paths = given.values() if isinstance(given, dict) else given
    found: list[str] = []
    for each in paths:
        if isinstance(each, str):
            found.append(each.split("=", 1)[-1])
        else:
            found.append(str(each["lora_path"] if isinstance(each, dict) else each.lora_path))
    return found


def _adapters_name_pages() -> bool:
    """True if SGLang's names of pages include the id of the adapter, as in 0.5.23."""
    return hasattr(sys.modules.get("sglang.srt.mem_cache.utils"), "storage_namespace_seed")


def weights_now() -> dict[str, str | None]:
    """Two names of the weights in memory, of which at least one is another after a change at run time."""
    return {"weight_version": weight_version(), "changed": updates.mark()}


def weights_are(base: Mapping[str, Any]) -> bool:
    """True if the weights in memory are still those of base_fields() or weights_now()."""
    return all(base.get(name) == value for name, value in weights_now().items())


def weight_version() -> str | None:
    """SGLang's name for the weights in memory; an update at run time that gives a name changes it."""
    return _text(_leaf("weight_version"))


def store_label(base: dict[str, Any], config: Any) -> str:
    """The owner of the store, for people (`terrace store stat`), from base_fields()."""
    return f"SGLang {base['sglang']}, model {base['model'] or 'unknown'}, weights {base['weights']}, rank {config.tp_rank}"


def pool_namespace(base: dict[str, Any], pages: PoolPages, block_bytes: int, tp_rank: int | None) -> bytes:
    """The namespace for the blocks of one pool. `tp_rank` is None if all ranks have the same bytes."""
    pool = pages.pool
    geometry = ("layout", "dtype", "layer_num", "start_layer", "end_layer", "head_num", "head_dim", "storage_format_tag")
    return namespace(
        "sglang",
        {
            **base,
            "pool": pages.name,
            "kind": type(pool).__name__,
            "page_tokens": pages.page_tokens,
            "pieces": list(pages.sizes),
            "block_bytes": block_bytes,
            "tp_rank": tp_rank,
            **{name: _text(getattr(pool, name, None)) for name in geometry},
        },
    )


def store_name(config: Any, tp_rank: int, block_bytes: int) -> str:
    """The name of a rank's store inside the directory: two ranks on one host never have the same.

    Example: "tp1of2-65536"; with everything: "dp3-pp0of2-cp1of4-dcp0of2-tp2of4-65536".
    """
    replica = _data_parallel_rank(config)
    parts = [f"dp{replica}"] if replica else []
    for name, rank, size in (
        ("pp", config.pp_rank, config.pp_size),
        ("cp", config.attn_cp_rank, config.attn_cp_size),
        ("dcp", config.dcp_rank, config.dcp_size),
    ):
        if size > 1:
            parts.append(f"{name}{rank}of{size}")
    return "-".join([*parts, f"tp{tp_rank}of{config.tp_size}", str(block_bytes)])


def _data_parallel_rank(config: Any) -> int:
    """Without attention data parallelism, HiCacheStorageConfig.dp_rank is 0 on all replicas; then the launcher's number
    distinguishes them.
    """
    runtime = sys.modules.get("sglang.srt.runtime_context")
    launched = None
    if runtime is not None:
        try:
            launched = runtime.get_parallel().dp_rank
        except (AttributeError, RuntimeError, ValueError):
            pass  # nothing is published, or this version has no such name
    return int(launched if launched is not None else config.dp_rank)


def _leaf(name: str) -> Any:
    """A value of SGLang's configuration; None if this process has no configuration, or this version has no such name."""
    runtime = sys.modules.get("sglang.srt.runtime_context")
    if runtime is None:
        return None
    try:
        return runtime.get_context().config_leaf(name)
    except (AttributeError, ValueError):
        return None


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


def _version() -> str | None:
    try:
        return importlib.metadata.version("sglang")
    except importlib.metadata.PackageNotFoundError:
        return None
