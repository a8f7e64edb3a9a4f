"""The names for the chunks of a vLLM engine and for their store."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import asdict
from types import FrameType
from typing import Any, NamedTuple

import vllm

from .. import identity
from .chains import Window

_FORMAT = 1  # the layout of a row is vLLM's, without a header
_RUNTIME_ADAPTERS = "VLLM_ALLOW_RUNTIME_LORA_UPDATING"
# Fields of vLLM's configuration that decide the bytes of a chunk, beside the files that it names. A field that this version lacks
# is None.
_LEAVES = (
    "attention_config.backend",
    "cache_config.kv_cache_dtype_skip_layers",
    "cache_config.mamba_cache_dtype",
    "cache_config.mamba_ssm_cache_dtype",
    "load_config.load_format",
    "lora_config.enable_tower_connector_lora",
    "lora_config.lora_dtype",
    "lora_config.target_modules",
    "model_config.code_revision",
    "model_config.disable_sliding_window",
    "model_config.dtype",
    "model_config.hf_overrides",
    "model_config.max_model_len",
    "model_config.model_class_overrides",
    "model_config.model_impl",
    "model_config.quantization",
    "model_config.quantization_config",
    "model_config.revision",
    "speculative_config.method",
)


def chunk_namespace(
    config: Any,
    chunk_bytes: int,
    weights_revision: str | None,
    attention_backend: str | None,
    adapters: Sequence[str] | None = None,
) -> tuple[bytes, dict[str, Any]]:
    """The namespace of an engine's keys, and the fields from which it was made.

    Args:
        config: vLLM's OffloadingConfig.
        weights_revision: The operator's name for the weights and everything else that vLLM loads. None: the files are read.
        adapters: The paths of all LoRA adapters, or None.

    Raises:
        ValueError: Something that decides the bytes cannot be named; the sentence names it.
    """
    parallel = asdict(config.parallel)
    for place in ("rank", "data_parallel_index", "data_parallel_size", "data_parallel_rank_local"):
        parallel.pop(place, None)  # replicas compute the same blocks
    if isinstance(adapters, str):
        raise ValueError("adapters is a text; give a list of the paths of all adapters")
    whole = _engine_config()
    model = config.model.name
    fields = {
        "format": _FORMAT,
        "order": "prefix",  # chunks with the former names may stand alone
        "vllm": vllm.__version__,
        "model": model,
        "model_config": identity.config_digest(model),
        "weights": identity.weights_revision(_leaf(whole, "model_config.model_weights") or model, weights_revision),
        "loaded": None if weights_revision is not None else _loaded(whole, model, adapters is not None),
        "adapters": {path: identity.contents(f"the adapter {path}", path) for path in sorted(adapters or ())},
        "leaves": {name: _text(_leaf(whole, name)) for name in _LEAVES},
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


class Groups(NamedTuple):
    """The KV cache groups of known kind, by number."""

    full: dict[int, int]
    """Full attention: the tokens of a chunk."""
    windows: dict[int, Window]
    """Windows and states: vLLM keeps only the chunks to which a later token attends."""


def groups_of(config: Any) -> Groups:
    """Reads the kinds of the KV cache groups.

    Args:
        config: vLLM's OffloadingConfig.
    """
    described = getattr(_on_stack("kv_cache_config", "kv_cache_groups"), "kv_cache_groups", ())
    groups = Groups({}, {})
    for group in config.groups:
        tokens = group.tokens_per_block * config.cache.blocks_per_chunk
        if hasattr(group, "sliding_window_size_in_chunks"):  # since vLLM 0.33
            window = group.sliding_window_size_in_chunks or 0
        else:
            window = _window(described[group.group_id].kv_cache_spec if group.group_id < len(described) else None, tokens)
        if window == 0:
            groups.full[group.group_id] = tokens
        elif window is not None:
            groups.windows[group.group_id] = Window(tokens, window)
    return groups


def _window(spec: Any, tokens: int) -> int | None:
    """The number of chunks to which a token attends in a group of this kind; 0: to all before it. None: the kind is unknown."""
    kinds = {each.__name__ for each in type(spec).__mro__}
    if "FullAttentionSpec" in kinds:
        return 0
    if "MambaSpec" in kinds:
        return 1
    attended = getattr(spec, "sliding_window", None) or getattr(spec, "attention_chunk_size", None)
    return None if attended is None else -(-attended // tokens)


def _engine_config() -> Any:
    """vLLM's own configuration, or None."""
    return _on_stack("vllm_config", "lora_config")


def _on_stack(name: str, attribute: str) -> Any:
    """The value of this variable of vLLM's connector, or None. The connector makes specs and tiers in its constructor, so its
    variables are on the stack. The arguments that it passes do not include adapters, draft models and kinds of attention."""
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        found = frame.f_locals.get(name)
        if hasattr(found, attribute):
            return found
        frame = frame.f_back
    return None


def _leaf(whole: Any, name: str) -> Any:
    value = whole
    for part in name.split("."):
        value = getattr(value, part, None)
    return value


def _text(value: Any) -> str | None:
    return None if value is None or callable(value) else str(value)


def _loaded(whole: Any, model: str, adapters_named: bool) -> dict[str, Any]:
    """The files that vLLM loads beside the weights of the model, named by their contents, because vLLM's own names are only
    paths."""
    if whole is None:
        raise ValueError("vLLM's configuration is not to be seen here, so nothing tells what it loads; state weights_revision")
    if callable(_leaf(whole, "model_config.hf_overrides")):
        raise ValueError("hf_overrides is a function, and nothing tells what it does; state weights_revision")
    if _leaf(whole, "load_config.load_format") == "tensorizer":
        raise ValueError("load_format is tensorizer, so that the weights come from elsewhere; state weights_revision")
    if whole.lora_config is not None:
        if os.environ.get(_RUNTIME_ADAPTERS, "0").strip().lower() in ("1", "true"):
            raise ValueError(
                f"LoRA adapters may come while the engine runs ({_RUNTIME_ADAPTERS}), and vLLM names chunks by name and path of "
                "the adapter alone; state weights_revision, and change it whenever an adapter changes under its name"
            )
        if not adapters_named:
            raise ValueError(
                "LoRA is on, and vLLM names chunks by name and path of the adapter alone; give the paths of all adapters as the "
                "list adapters, or state weights_revision and change it whenever an adapter changes"
            )
    paths = {f"the adapter for {kind}": path for kind, path in (_leaf(whole, "lora_config.default_mm_loras") or {}).items()}
    draft = _leaf(whole, "speculative_config.draft_model_config.model")
    if draft and draft != model:
        paths["the draft model"] = draft
    if scales := _leaf(whole, "model_config.multimodal_config.mm_encoder_fp8_scale_path"):
        paths["mm_encoder_fp8_scale_path"] = scales
    loaded: dict[str, Any] = {what: identity.contents(what, str(path)) for what, path in sorted(paths.items())}
    if hf_config := _leaf(whole, "model_config.hf_config_path"):
        loaded["hf_config_path"] = identity.config_digest(str(hf_config))
    return loaded


def store_label(fields: dict[str, Any]) -> str:
    """The owner of the store, for people (`terrace store stat`), from the fields of chunk_namespace()."""
    return f"vLLM {fields['vllm']}, model {fields['model']}, weights {fields['weights']}"


def store_name(config: Any, chunk_bytes: int) -> str:
    """The directory of an engine's store inside the path. Chunks of another size need another store. Each replica of a
    data-parallel engine needs its own store, because only one process at a time can open a store."""
    parallel = config.parallel
    replica = f"-dp{parallel.data_parallel_index}" if parallel.data_parallel_size > 1 else ""
    return f"vllm-{chunk_bytes}{replica}"
