"""Notices that the weights in the memory of this process change, or an adapter under its id.

SGLang may change them without a name for the new ones, and tells neither a storage back end nor a linker. Its own classes write the
weights, in the process of the scheduler, which is that of this module. So their functions are wrapped.
"""

from __future__ import annotations

import functools
import secrets
import sys
from collections.abc import Callable
from typing import Any

from ..identity import contents

_RUNNER = "sglang.srt.model_executor.model_runner"
WEIGHTS = (
    "sglang.srt.model_executor.model_runner_components.weight_updater",
    "WeightUpdater",
    ("update_weights_from_disk", "load_weights_from_distributed", "update_weights_from_tensor", "update_weights_from_ipc"),
)
ADAPTERS = ("sglang.srt.lora.lora_manager", "LoRAManager", ("load_lora_adapter", "load_lora_adapter_from_tensors"))

_mark: str | None = None
_loaded: dict[str, Any] = {}  # by id of an adapter that was loaded: a name for its contents; None: there is none


def mark() -> str | None:
    """None as long as all weights are those of the start. Otherwise another text after each change."""
    return _mark


def watch(adapters: list[Any]) -> None:
    """Notices changes from now on. Outside of a server there are none.

    Args:
        adapters: The adapters that the server has loaded at its start, as SGLang's LoRARef.

    Raises:
        ValueError: This version of SGLang changes weights by other functions.
    """
    if _RUNNER not in sys.modules:
        return
    for adapter in adapters:
        _loaded.setdefault(adapter.lora_id, _name(adapter.lora_path))
    for (module, owner, names), wrapped in ((WEIGHTS, _changes_weights), (ADAPTERS, _loads_adapter)):
        kind = getattr(sys.modules.get(module), owner, None)
        for name in names:
            function = getattr(kind, name, None)
            if function is None:
                raise ValueError(f"this version of SGLang has no {owner}.{name}, so weights that change at run time are not noticed")
            if not hasattr(function, "_terrace"):
                noticed = wrapped(function)
                noticed._terrace = True  # type: ignore[attr-defined]
                setattr(kind, name, noticed)


def _change() -> None:
    global _mark
    _mark = secrets.token_hex(16)


def _changes_weights(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*arguments: Any, **options: Any) -> Any:
        _change()  # also if the function fails: then the weights may be in part those of before
        return function(*arguments, **options)

    return call


def _loads_adapter(function: Callable[..., Any]) -> Callable[..., Any]:
    from_tensors = function.__name__.endswith("_from_tensors")

    @functools.wraps(function)
    def call(manager: Any, lora_ref: Any, *arguments: Any, **options: Any) -> Any:
        # SGLang names pages by the id of the adapter, which it keeps when it loads one again: the same files, or others.
        found = None if from_tensors else _name(lora_ref.lora_path)
        if lora_ref.lora_id in _loaded and (found is None or found != _loaded[lora_ref.lora_id]):
            _change()
        _loaded[lora_ref.lora_id] = found
        return function(manager, lora_ref, *arguments, **options)

    return call


def _name(path: str) -> Any:
    try:
        return contents("the adapter", path)
    except (OSError, ValueError):
        return None
