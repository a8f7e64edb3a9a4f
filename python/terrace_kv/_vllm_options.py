"""The options of Terrace in vLLM's configuration, checked without vLLM: `python -m terrace_kv check JSON`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ._options import capacity_of, paths_of, refuse_unknown

STORAGE = (
    "floor", "label", "stripe_size", "accept_lost", "bandwidth", "io", "io_threads", "flush_interval", "guard", "retries",
    "retry_delay", "retry_delay_max", "retries_waiting_max", "breaker_failures", "breaker_window", "breaker_probe",
    "breaker_probe_max",
)  # fmt: skip
"""Options of the table [storage] that are passed on; the library checks their values."""
_TIER = (
    "path", "capacity", "weights_revision", "attention_backend", "adapters", "weights_fixed", "enable_kv_events", "locality", "shared",
    "shared_probe_timeout", "prefill_speed", "shutdown_timeout", "admin",
)  # fmt: skip
_VLLM = ("type", "module_path", "backpressure")  # options of a tier that vLLM reads itself
_SPEC = (
    "path", "capacity", "shared", "weights_revision", "weights_fixed", "keep_storage", "attention_backend", "adapters",
    "prefill_speed", "tenants", "config",
)  # fmt: skip
_NOT_WITH_SPEC = ("secondary_tiers", "eviction_policy", "cache_policy_module_path", "store_threshold")
_DECIDED_BY_VLLM = (
    "pool", "group", "rank", "storage", "shared", "caching", "engine-owns-slots", "hash-unit", "request-units-max"
)  # fmt: skip


def check_tier(given: Mapping[str, Any]) -> None:
    """Raises ValueError for a wrong option of TerraceTier."""
    refuse_unknown("tier", given, (*_TIER, *STORAGE), "TerraceTier")
    paths_of("tier", given.get("path"))
    capacity_of("tier", given.get("capacity"), "of all directories")


def check_spec(extra: Mapping[str, Any]) -> None:
    """Raises ValueError for a wrong option of TerraceOffloadingSpec in kv_connector_extra_config."""
    given = extra.get("terrace", {})
    refuse_unknown("terrace", given, _SPEC, "TerraceOffloadingSpec")
    if ("path" in given) != ("capacity" in given):
        raise ValueError("terrace: path and capacity belong together; give both, or none for host memory alone")
    if "path" in given:
        paths_of("terrace", given["path"])
        capacity_of("terrace", given["capacity"], "of all directories")
    for name in _NOT_WITH_SPEC:
        if extra.get(name):
            raise ValueError(f"{name} belongs to vLLM's own manager, and has no meaning with TerraceOffloadingSpec")


def check_scheduler(given: Mapping[str, Any]) -> None:
    """Raises ValueError for an option that TerraceScheduler does not take in the "terrace" of --additional-config."""
    for name in _DECIDED_BY_VLLM:
        if name in given:
            raise ValueError(f"TerraceScheduler: {name} in additional_config: vLLM decides it, or its offloading connector")


def problems(text: str) -> Iterator[str]:
    """What is wrong with the value of vLLM's --kv-transfer-config, of its kv_connector_extra_config alone, or of
    --additional-config. No file is opened, and no model."""
    try:
        given = json.loads(text)
    except ValueError as error:
        yield f"this is no JSON: {error}"
        return
    if not isinstance(given, dict):
        yield "this is no JSON object"
        return
    extra = given.get("kv_connector_extra_config", given)
    if extra is not given and given.get("kv_connector") != "OffloadingConnector":
        yield f'kv_connector is {given.get("kv_connector")!r}, must be "OffloadingConnector"'
    spec = extra.get("spec_name")
    if spec is None and set(given) == {"terrace"}:
        yield from _scheduler_problems(given["terrace"])
    elif spec not in ("TerraceOffloadingSpec", "TieringOffloadingSpec"):
        yield f'spec_name is {spec!r}, must be "TerraceOffloadingSpec", or "TieringOffloadingSpec" with a tier of type "terrace"'
    else:
        if not isinstance(extra.get("cpu_bytes_to_use"), (int, float)):
            yield 'cpu_bytes_to_use must be the bytes of host memory; for example "cpu_bytes_to_use": 34359738368'
        yield from _spec_problems(extra) if spec == "TerraceOffloadingSpec" else _tier_problems(extra)


def _spec_problems(extra: Mapping[str, Any]) -> Iterator[str]:
    yield from _raised(check_spec, extra)
    config = extra.get("terrace", {}).get("config", {})
    tables = {name: value for name, value in config.items() if name not in ("storage", "shared", "admin")}
    yield from _raised(_open, {"pool": [{"block-bytes": 4096, "device-blocks": 1, "host-blocks": 2}]}, tables, "OffloadCache")
    names = [name.replace("-", "_") for name in config.get("storage", {})]
    yield from _raised(refuse_unknown, "terrace.config.storage", names, ("name", "stripe", *STORAGE), "the table [storage]")


def _tier_problems(extra: Mapping[str, Any]) -> Iterator[str]:
    tiers = [each for each in extra.get("secondary_tiers", ()) if each.get("type") in ("terrace", "TerraceTier")]
    if not tiers:
        yield 'secondary_tiers has no tier of type "terrace"'
    for tier in tiers:
        yield from _raised(check_tier, {name: value for name, value in tier.items() if name not in _VLLM})


def _scheduler_problems(given: Mapping[str, Any]) -> Iterator[str]:
    yield from _raised(check_scheduler, given)
    tables = {name: value for name, value in given.items() if name not in (*_DECIDED_BY_VLLM, "admin")}
    yield from _raised(_open, {"pool": [{"block-bytes": 1, "device-blocks": 2, "host-blocks": 0}]}, tables, "Cache")


def _open(pool: dict[str, Any], given: Mapping[str, Any], kind: str) -> None:
    """Makes a small cache with the options, which checks them."""
    import terrace_kv

    getattr(terrace_kv, kind)({**given, **pool}).close()


def _raised(check: Callable[..., None], *arguments: Any) -> Iterator[str]:
    try:
        check(*arguments)
    except Exception as error:
        yield str(error)
