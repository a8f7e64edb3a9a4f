"""The options of the adapter: the object "adapter_params" of LMCache's --l2-adapter."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from lmcache.v1.distributed.l2_adapters.config import L2AdapterConfigBase

from .._options import capacity_of, paths_of, refuse_unknown

_WHERE = "adapter_params"
_OWN = ("path", "capacity", "weights_revision", "block_bytes", "timeout")
# Options of a Store that are passed on unchanged; the library checks their values.
_STORE = ("admin", "floor", "label", "stripe_size", "accept_lost", "io", "io_threads", "flush_interval")
_TIMEOUT = 30.0
_TIMEOUT_MAX = 240.0  # LMCache gives memory to others 300 s after it was locked for a store
_UNITS = {"": 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20}
_BLOCK_BYTES_MAX = 512 << 20


class TerraceL2AdapterConfig(L2AdapterConfigBase):  # type: ignore[misc]
    """The options, checked. LMCache makes one by from_dict().

    Attributes:
        path: The directory of the store, or several directories, each on its own disk.
        capacity: The disk space of all directories.
        weights_revision: The operator's name for the weights of all models.
        block_bytes: The size of a block of the store. None: it is chosen by the first object.
        timeout: The longest time in seconds for one store or load task.
        store: Further options of the Store.
    """

    def __init__(
        self,
        path: tuple[str, ...],
        capacity: int | str,
        weights_revision: str,
        block_bytes: int | None = None,
        timeout: float = _TIMEOUT,
        store: Mapping[str, Any] | None = None,
    ) -> None:
        self.path = path
        self.capacity = capacity
        self.weights_revision = weights_revision
        self.block_bytes = block_bytes
        self.timeout = timeout
        self.store = dict(store or {})

    @classmethod
    def from_dict(cls, d: dict[str, Any]) -> TerraceL2AdapterConfig:
        """Checks the options.

        Raises:
            ValueError: A name or a value is wrong; the sentence says which, and what would be right.
        """
        refuse_unknown(_WHERE, d, (*_OWN, *_STORE), "TerraceL2Adapter")
        return cls(
            path=paths_of(_WHERE, d.get("path")),
            capacity=capacity_of(_WHERE, d.get("capacity"), "of all objects"),
            weights_revision=_revision(d.get("weights_revision")),
            block_bytes=_block_bytes(d.get("block_bytes")),
            timeout=_timeout(d.get("timeout", _TIMEOUT)),
            store={name: d[name] for name in _STORE if name in d},
        )

    @classmethod
    def help(cls) -> str:
        """The options, for LMCache's command line."""
        return (
            "Terrace L2 adapter, adapter_params:\n"
            "- path (str or list): directory of the store, or one on each disk (required)\n"
            '- capacity (int or str): disk space, such as "500GiB" (required)\n'
            "- weights_revision (str): a name that changes whenever the weights of a model do (required)\n"
            "- block_bytes (int or str): size of a block on disk (default: by the first object)\n"
            f"- timeout (float): longest time in seconds for a store or load task (default {_TIMEOUT:g})\n"
            f"- {', '.join(_STORE)}: as in [storage] and [admin] of docs/configuration.md"
        )


def _revision(revision: Any) -> str:
    if not isinstance(revision, str) or not revision:
        raise ValueError(
            f'{_WHERE}: "weights_revision" must be a text that changes whenever the weights of a model do, because LMCache names '
            'models by their path alone; for example "weights_revision": "2026-11-28"'
        )
    return revision


def _block_bytes(size: Any) -> int | None:
    if size is None:
        return None
    text = None if isinstance(size, bool) else re.fullmatch(r"(\d{1,12}) ?(|B|KiB|MiB)", str(size))
    found = 0 if text is None else int(text[1]) * _UNITS[text[2]]
    if not 0 < found <= _BLOCK_BYTES_MAX or found % 4096:
        raise ValueError(
            f'{_WHERE}: "block_bytes" is {size!r}, must be a multiple of 4096 up to 512 MiB; for example "block_bytes": "2MiB"'
        )
    return found


def _timeout(seconds: Any) -> float:
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 0 < seconds <= _TIMEOUT_MAX:
        raise ValueError(
            f'{_WHERE}: "timeout" is {seconds!r}, must be a number of seconds up to {_TIMEOUT_MAX:g}; for example {_TIMEOUT:g}'
        )
    return float(seconds)
