"""The options of TerraceLinker: the object linker_extra_config of --unified-cache-external-linker-config."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .._options import capacity_of, paths_of, refuse_unknown

_WHERE = "linker_extra_config"
_OWN = ("host_capacity", "path", "capacity", "weights_revision", "weights_fixed", "load_timeout", "config")


@dataclass(frozen=True)
class LinkerOptions:
    """The options, checked."""

    host_capacity: int | str
    """The host memory of this rank."""
    path: tuple[str, ...]
    """The directory of the stores, or several directories, each on its own disk. Empty: there is no disk."""
    capacity: int | str
    """The disk space of this rank."""
    weights_revision: str | None
    """The operator's name for the weights. None: the weights are read."""
    weights_fixed: bool
    """True if the weights never change while the engine runs. Then a reset of SGLang's cache drops nothing."""
    load_timeout: float
    """The longest time in seconds that a load may take."""
    config: Mapping[str, Any]
    """Further options of the cache."""


def parse(extra_config: Mapping[str, Any] | None) -> LinkerOptions:
    """Checks the options.

    Raises:
        ValueError: A name or a value is wrong; the sentence says which, and what would be right.
    """
    given = dict(extra_config or {})
    refuse_unknown(_WHERE, given, _OWN, "TerraceLinker")
    host_capacity = given.get("host_capacity")
    if isinstance(host_capacity, bool) or not isinstance(host_capacity, (int, str)):
        raise ValueError(f'{_WHERE}: "host_capacity" must be the host memory of one rank; for example "host_capacity": "32GiB"')
    if ("path" in given) != ("capacity" in given):
        raise ValueError(f'{_WHERE}: "path" and "capacity" belong together; give both, or none for host memory alone')
    revision = given.get("weights_revision")
    if revision is not None and (not isinstance(revision, str) or not revision):
        raise ValueError(f'{_WHERE}: "weights_revision" must be a text that changes whenever the weights do')
    config = given.get("config", {})
    if not isinstance(config, dict):
        raise ValueError(f'{_WHERE}: "config" must be an object with options of docs/configuration.md')
    return LinkerOptions(
        host_capacity=host_capacity,
        path=paths_of(_WHERE, given["path"]) if "path" in given else (),
        capacity=capacity_of(_WHERE, given["capacity"], "of one rank") if "path" in given else 0,
        weights_revision=revision,
        weights_fixed=_flag(given, "weights_fixed"),
        load_timeout=_seconds(given.get("load_timeout", 30)),
        config=config,
    )


def _flag(given: Mapping[str, Any], name: str) -> bool:
    value = given.get(name, False)
    if not isinstance(value, bool):
        raise ValueError(f'{_WHERE}: "{name}" must be true or false, and is {value!r}')
    return value


def _seconds(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not (0 < value < math.inf):
        raise ValueError(f'{_WHERE}: "load_timeout" must be a number of seconds above 0, and is {value!r}')
    return float(value)
