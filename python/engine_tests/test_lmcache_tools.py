"""TerraceL2Adapter in LMCache's own tools: its check of an adapter, its benchmark, and its storage manager."""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "lmcache_adapter"))

pytest.importorskip("lmcache", reason="LMCache is not installed; tools/check --engines installs it")

import lmcache_under_test as under_test  # noqa: E402
import torch  # noqa: E402
from lmcache.v1.distributed.api import (  # noqa: E402
    GroupedObjectKeys,
    MemoryLayoutDesc,
    ObjectKey,
    PrefetchTaskSpec,
)
from lmcache.v1.distributed.config import (  # noqa: E402
    EvictionConfig,
    L1ManagerConfig,
    L1MemoryManagerConfig,
    StorageManagerConfig,
)
from lmcache.v1.distributed.l2_adapters.config import parse_args_to_l2_adapters_config  # noqa: E402
from lmcache.v1.distributed.storage_manager import StorageManager  # noqa: E402
from lmcache_under_test import key, params  # noqa: E402

LAYOUT = MemoryLayoutDesc([torch.Size([2, 3, 128, 64])], [torch.bfloat16])
CHUNKS = 12


def spec(path: Path, plugin: dict[str, Any] | None = None, **options: Any) -> str:
    """The value of --l2-adapter."""
    return json.dumps(
        {
            "type": "plugin",
            "module_path": "terrace_kv.lmcache",
            "class_name": "TerraceL2Adapter",
            "adapter_params": params(path, capacity="64MiB", block_bytes="64KiB", **options),
            **(plugin or {}),
        }
    )


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs a program of LMCache."""
    environment = {**os.environ, "LMCACHE_LOG_LEVEL": "WARNING", "LMCACHE_TRACK_USAGE": "false"}
    return subprocess.run(
        [sys.executable, "-P", "-m", *arguments], env=environment, capture_output=True, text=True, timeout=300, check=False
    )


# ---- its check, and its benchmark


@pytest.mark.parametrize(("elements", "dtype"), [("1024", "float32"), ("50001", "bfloat16")])
def test_the_check_of_lmcache_passes(tmp_path: Path, elements: str, dtype: str) -> None:
    for _start in ("first", "again"):
        done = run(
            "lmcache.v1.basic_check", "--mode", "test_l2_adapter", "--l2-adapter", spec(tmp_path), "--num-keys", "20",
            "--obj-size", elements, "--kv-dtype", dtype,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        passed = re.findall(r"^\| (LOOKUP \(absent\)|STORE|LOOKUP \(exist\)|LOAD) .* (\d+/\d+) \|", done.stdout, re.MULTILINE)
        assert dict(passed) == dict.fromkeys(("LOOKUP (absent)", "STORE", "LOOKUP (exist)", "LOAD"), "20/20"), done.stdout


def bench(path: Path, *arguments: str) -> dict[str, Any]:
    """The sections of the benchmark's report, by operation."""
    report = path.parent / "report.json"
    done = run(
        "lmcache.cli.main", "bench", "l2", "--l2-adapter", spec(path), "--num-keys", "8", "--in-flight", "3", "--rounds", "2",
        "--data-size-kb", "160", "--lookup-max-hit-rate", "1", "--format", "json", "--output", str(report), *arguments,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    sections = json.loads(report.read_text())["metrics"].values()
    return {each["operation"]: each for each in sections if "operation" in each}


def test_the_benchmark_of_lmcache_verifies_what_it_reads(tmp_path: Path) -> None:
    measured = bench(tmp_path / "kv", "--no-skip-verify")
    assert set(measured) == {"Store", "Lookup", "Load"}
    for each in measured.values():
        assert (each["total_success"], each["total_keys"], each["rounds_timed_out"]) == (48, 48, 0), each


def test_the_benchmark_finds_and_loads_what_an_earlier_process_stored(tmp_path: Path) -> None:
    for only, operation in (("store", "Store"), ("lookup", "Lookup"), ("load", "Load")):
        measured = bench(tmp_path / "kv", "--only", only)
        assert measured[operation]["total_success"] == 48, (only, measured)


# ---- its storage manager


def manager(path: Path, plugin: dict[str, Any] | None = None) -> Any:
    """LMCache's storage manager with memory for CHUNKS objects, which it gives up when they are stored."""
    size = (CHUNKS + 4) * LAYOUT.shapes[0].numel() * 2
    l1 = L1ManagerConfig(L1MemoryManagerConfig(size, False, shm_name=""))
    adapters = parse_args_to_l2_adapters_config(argparse.Namespace(l2_adapter=[spec(path, plugin)]))
    return StorageManager(StorageManagerConfig(l1, EvictionConfig("LRU"), adapters))


def chunk(number: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(number)
    return torch.randn(LAYOUT.shapes[0], generator=generator).to(LAYOUT.dtypes[0])


def until(done: Callable[[], bool]) -> None:
    for _ in range(6000):
        if done():
            return
        time.sleep(0.01)
    raise AssertionError("it does not happen")


def adapter_of(made: Any) -> Any:
    ((_descriptor, adapter),) = made.l2_adapters()
    return getattr(adapter, "inner_adapter", adapter)


def write(made: Any, keys: list[ObjectKey], blocks: int = 2) -> None:
    """Writes chunks, and waits until all their blocks are stored; then LMCache's own memory gives them up."""
    before = adapter_of(made).report_status()["statistics"]["stored"]
    for at, memory in made.reserve_write(keys, LAYOUT).items():
        memory.tensor.copy_(chunk(int.from_bytes(at.chunk_hash, "big")))
    made.finish_write(keys)
    until(lambda: adapter_of(made).report_status()["statistics"]["stored"] == before + blocks * len(keys))
    until(lambda: not made.report_status()["store_controller"]["in_flight_task_count"])
    made.clear(force=True)


def prefetch(made: Any, keys: list[ObjectKey]) -> list[torch.Tensor]:
    """The leading chunks that LMCache has, or gets from the adapter."""
    group = GroupedObjectKeys(keys=keys, object_group_id=0, layout_desc=LAYOUT)
    handle = made.submit_prefetch_task(PrefetchTaskSpec(key_groups=[group]))
    assert made.wait_prefetch_status(handle, 60.0)
    found = made.query_prefetch_status(handle).hit_cells[0].popcount()
    if not found:
        return []
    with made.read_prefetched_results(keys[:found]) as memories:
        tensors = [memory.tensor.clone() for memory in memories]
    made.finish_read_prefetched(keys[:found])
    return tensors


@pytest.mark.gate
def test_the_storage_manager_gets_its_chunks_back_after_a_restart(tmp_path: Path) -> None:
    keys = [key(n) for n in range(CHUNKS)]
    first = manager(tmp_path)
    write(first, keys)
    got = prefetch(first, keys)
    assert len(got) == CHUNKS and all(torch.equal(each, chunk(n)) for n, each in enumerate(got))
    until(lambda: adapter_of(first).report_status()["locked_objects"] == 0)
    assert first.report_status()["l2_adapters"][0]["is_healthy"]
    first.close()
    second = manager(tmp_path)
    adapter_of(second).delete(keys[5:6])
    got = prefetch(second, keys)
    assert len(got) == 5 and all(torch.equal(each, chunk(n)) for n, each in enumerate(got))
    assert prefetch(second, [key(n, cache_salt="somebody else") for n in range(CHUNKS)]) == []
    second.close()


def test_a_serialiser_of_lmcache_works(tmp_path: Path) -> None:
    plugin = {"serde": {"type": "fp8"}}
    keys = [key(n) for n in range(CHUNKS // 2)]
    for start in (1, 2):
        made = manager(tmp_path, plugin)
        if start == 1:
            write(made, keys, blocks=1)
        got = prefetch(made, keys)
        assert len(got) == len(keys)
        for n, each in enumerate(got):
            want = chunk(n).to(torch.float8_e4m3fn).to(torch.bfloat16)
            assert torch.equal(each, want), "the bytes are not those that LMCache has serialised"
        made.close()
    plain = manager(tmp_path)
    assert prefetch(plain, keys) == [], "serialised bytes are none of this layout"
    plain.close()


def test_the_eviction_of_lmcache_keeps_below_its_watermark(tmp_path: Path) -> None:
    size = LAYOUT.shapes[0].numel() * 2
    made = manager(tmp_path, {"eviction": {"eviction_policy": "LRU", "trigger_watermark": 0.05, "eviction_ratio": 0.5}})
    capacity = adapter_of(made).get_usage().total_capacity_bytes
    most = int(0.05 * capacity) // size
    for first in range(0, 3 * most, CHUNKS):
        write(made, [key(n) for n in range(first, first + CHUNKS)])
    until(lambda: adapter_of(made).get_usage().usage_fraction < 0.05)
    assert 0 < adapter_of(made).report_status()["known_objects"] <= most
    made.close()
