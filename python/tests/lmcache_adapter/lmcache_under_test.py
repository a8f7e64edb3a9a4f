"""LMCache's classes for the tests of terrace_kv.lmcache. Without LMCache, a test module that imports this one is skipped."""

from __future__ import annotations

import importlib.util
import logging
import os
import random
import select
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

os.environ.setdefault("LMCACHE_TRACK_USAGE", "false")
os.environ.setdefault("LMCACHE_LOG_LEVEL", "WARNING")

if importlib.util.find_spec("lmcache") is None:
    pytest.skip("LMCache is not installed", allow_module_level=True)

import torch
from lmcache.v1.distributed.api import MemoryLayoutDesc, ObjectKey
from lmcache.v1.distributed.internal_api import L2AdapterListener
from lmcache.v1.distributed.l2_adapters import create_l2_adapter
from lmcache.v1.distributed.l2_adapters.plugin_l2_adapter import PluginL2AdapterConfig
from lmcache.v1.memory_management import MemoryFormat, MemoryObjMetadata, TensorMemoryObj
from lmcache.v1.platform import consume_fd
from terrace_kv.lmcache.layouts import logger

BLOCK = 4096
MODEL = "org/model"


def params(path: Path, /, **changes: Any) -> dict[str, Any]:
    """The adapter's options; None removes one."""
    given = {"path": str(path), "capacity": "4MiB", "weights_revision": "1", "block_bytes": BLOCK, **changes}
    return {name: value for name, value in given.items() if value is not None}


def open_adapter(path: Path, /, **changes: Any) -> Any:
    """An adapter, made as LMCache makes it."""
    spec = {"module_path": "terrace_kv.lmcache", "class_name": "TerraceL2Adapter", "adapter_params": params(path, **changes)}
    return create_l2_adapter(PluginL2AdapterConfig.from_dict(spec))


def key(number: int, **changes: Any) -> ObjectKey:
    """The key of a chunk."""
    return ObjectKey(**{"chunk_hash": number.to_bytes(16, "big"), "model_name": MODEL, "kv_rank": 0x01000100, **changes})


def keys(count: int, first: int = 0) -> list[ObjectKey]:
    return [key(number) for number in range(first, first + count)]


def content(number: int, size: int) -> bytes:
    """Bytes that no other chunk has."""
    return random.Random(number).randbytes(size)


class Memory:
    """An object of LMCache in the middle of other memory, at an address that need not be aligned."""

    def __init__(self, data: bytes, shape: Sequence[int] | None = None, dtype: torch.dtype = torch.uint8, at: int = 64) -> None:
        self._whole = torch.full((at + len(data) + 64,), 0xA5, dtype=torch.uint8)
        raw = self._whole[at : at + len(data)]
        raw.copy_(torch.frombuffer(bytearray(data), dtype=torch.uint8))
        size = torch.Size(shape or [len(data) // dtype.itemsize])
        meta = MemoryObjMetadata(size, dtype, raw.data_ptr(), len(data), 1, fmt=MemoryFormat.KV_2LTD)
        self.object = TensorMemoryObj(raw, meta, None)
        self._at = at

    def bytes(self) -> bytes:
        return bytes(self.object.byte_array)

    def surroundings_are_untouched(self) -> bool:
        around = [self._whole[: self._at], self._whole[self._at + self.object.get_size() :]]
        return all(bool((part == 0xA5).all()) for part in around)


def memories(count: int, size: int, first: int = 0) -> list[Memory]:
    return [Memory(content(number, size)) for number in range(first, first + count)]


def blank(count: int, size: int) -> list[Memory]:
    return [Memory(bytes(size)) for _ in range(count)]


def objects(given: Sequence[Memory]) -> list[TensorMemoryObj]:
    return [each.object for each in given]


def hint(size: int) -> dict[int, MemoryLayoutDesc]:
    """LMCache's layout of group 0, for objects of bytes."""
    return {0: MemoryLayoutDesc([torch.Size([size])], [torch.uint8])}


def _wait(descriptor: int) -> None:
    poller = select.poll()
    poller.register(descriptor, select.POLLIN)
    assert poller.poll(60_000), "no task has ended"
    consume_fd(descriptor)


def store(adapter: Any, given: list[ObjectKey], memory: Sequence[Memory]) -> Any:
    """Stores, and returns the L2StoreResult."""
    task = adapter.submit_store_task(given, objects(memory))
    results: dict[int, Any] = {}
    while task not in results:
        _wait(adapter.get_store_event_fd())
        results |= adapter.pop_completed_store_tasks()
    return results[task]


def look_up(adapter: Any, given: list[ObjectKey], hints: dict[int, MemoryLayoutDesc] | None = None) -> list[bool]:
    """Looks up and locks."""
    task = adapter.submit_lookup_and_lock_task(given, hints or {})
    while (found := adapter.query_lookup_and_lock_result(task)) is None:
        _wait(adapter.get_lookup_and_lock_event_fd())
    assert adapter.query_lookup_and_lock_result(task) is None, "a result is returned once"
    return [found.test(i) for i in range(len(given))]


def load(adapter: Any, given: list[ObjectKey], memory: Sequence[Memory]) -> list[bool]:
    task = adapter.submit_load_task(given, objects(memory))
    while (loaded := adapter.query_load_result(task)) is None:
        _wait(adapter.get_load_event_fd())
    assert adapter.query_load_result(task) is None, "a result is returned once"
    return [loaded.test(i) for i in range(len(given))]


class Listener(L2AdapterListener):  # type: ignore[misc]
    """What LMCache's eviction is told of."""

    def __init__(self) -> None:
        self.stored: list[ObjectKey] = []
        self.sizes: list[int] = []
        self.accessed: list[ObjectKey] = []
        self.deleted: list[ObjectKey] = []

    def on_l2_keys_stored(self, keys: list[ObjectKey], sizes: list[int]) -> None:
        self.stored += keys
        self.sizes += sizes

    def on_l2_keys_accessed(self, keys: list[ObjectKey]) -> None:
        self.accessed += keys

    def on_l2_keys_deleted(self, keys: list[ObjectKey]) -> None:
        self.deleted += keys


def damage(directory: Path, block: bytes) -> None:
    """Changes a byte in the middle of the block with this content on the disk."""
    (file,) = directory.glob("*/blocks-*")
    data = bytearray(file.read_bytes())
    at = data.find(block)
    assert at >= 0
    data[at + len(block) // 2] ^= 1
    file.write_bytes(bytes(data))


class Log(logging.Handler):
    """The messages of the adapter."""

    def __init__(self) -> None:
        super().__init__()
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.said.append(record.getMessage())
