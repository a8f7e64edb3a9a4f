"""The options of the back end: the JSON object of --hicache-storage-backend-extra-config."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .._options import capacity_of, paths_of, refuse_unknown

_OWN = ("path", "capacity", "weights_revision", "mla")
# Options of a Store that are passed on unchanged; the library checks their values.
_STORE = ("admin", "shared", "floor", "label", "stripe_size", "accept_lost", "io", "io_threads", "flush_interval")
# Options that SGLang itself reads from the same object.
_SGLANG = (
    "backend_name",
    "module_path",
    "class_name",
    "interface_v1",
    "allocator",
    "file_storage_path",
    "prefetch_threshold",
    "prefetch_timeout_base",
    "prefetch_timeout_per_ki_token",
    "hicache_storage_pass_prefix_keys",
    "tp_lcm_size",
)
_MLA = ("shared", "copies")


@dataclass(frozen=True)
class Options:
    """The options, checked."""

    path: tuple[str, ...]
    """The directory of the stores, or several directories, each on its own disk."""
    capacity: int | str
    """The disk space of this rank."""
    weights_revision: str | None
    """The operator's name for the weights. None: the weights are read."""
    mla_copies: bool
    """For KV that is equal on all ranks: each rank keeps its own copy, instead of one rank for all."""
    store: Mapping[str, Any]
    """Further options of the Store."""


def parse(extra_config: Mapping[str, Any] | None) -> Options:
    """Checks the options.

    Raises:
        ValueError: A name or a value is wrong; the sentence says which, and what would be right.
    """
    given = dict(extra_config or {})
    refuse_unknown("extra config", given, (*_OWN, *_STORE, *_SGLANG), "TerraceStorage")
    return Options(
        path=paths_of("extra config", given.get("path")),
        capacity=capacity_of("extra config", given.get("capacity"), "of one rank"),
        weights_revision=_revision(given.get("weights_revision")),
        mla_copies=_mla(given.get("mla", "shared")) == "copies",
        store={name: given[name] for name in _STORE if name in given},
    )


def _revision(revision: Any) -> str | None:
    if revision is not None and (not isinstance(revision, str) or not revision):
        raise ValueError('extra config: "weights_revision" must be a text that changes whenever the weights do')
    return revision


def _mla(mla: Any) -> str:
    if mla not in _MLA:
        raise ValueError(f'extra config: "mla" must be one of {", ".join(_MLA)}, and is {mla!r}')
    return str(mla)
