"""Terrace's manager for vLLM beside vLLM's own, in one run: time a chunk, and hit rates on traces.

    python vllm_manager.py [--chunks 100000] [--repeat 5] [--traces DIR] [--hit-chunks 3000]

Needs vLLM. Each round times all managers one after the other; the figures are medians over the rounds. The traces are files
*.jsonl or *.jsonl.gz of requests with "hash_ids", one chunk each.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import mmap
import os
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")

import numpy as np
from vllm.v1.kv_offload.base import LookupResult, ReqContext, ScheduleEndContext, make_offload_key
from vllm.v1.kv_offload.cpu.manager import CPUOffloadingManager

from terrace_kv.vllm.manager import TerraceOffloadingManager

CHUNK_BYTES = 4096
STEP = ScheduleEndContext(new_req_ids=(), preempted_req_ids=())


class Terrace(TerraceOffloadingManager):
    """Terrace's manager over memory of its own; nothing is copied."""

    def __init__(self, chunks: int, policy: str) -> None:
        memory = mmap.mmap(-1, chunks * CHUNK_BYTES)
        view = memoryview(np.frombuffer(memory, dtype=np.int8).reshape(chunks, CHUNK_BYTES))
        super().__init__({"policy": policy}, view, 0, bytes(32))


def managers(chunks: int) -> dict[str, Any]:
    return {
        "vllm lru": CPUOffloadingManager(chunks, "lru"),
        "vllm arc": CPUOffloadingManager(chunks, "arc"),
        "terrace adaptive": Terrace(chunks, "adaptive"),
        "terrace lru": Terrace(chunks, "lru"),
    }


def keys(first: int, count: int) -> list[bytes]:
    return [make_offload_key(hashlib.sha256(n.to_bytes(8, "little")).digest(), 0) for n in range(first, first + count)]


def times(chunks: int, repeat: int, batch: int = 32) -> None:
    under_test = managers(chunks)
    made = {name: 0 for name in under_test}

    def store(name: str, some: list[bytes]) -> float:
        manager = under_test[name]
        context = ReqContext(req_id=str(made[name]))
        manager.on_new_request(context)
        begin = time.perf_counter()
        output = manager.prepare_store(some, context)
        taken = time.perf_counter() - begin
        manager.complete_store(set(output.keys_to_store), context)
        manager.on_request_finished(context)
        manager.on_schedule_end(STEP)
        list(manager.take_events())
        return taken

    for name in under_test:
        for first in range(0, chunks, batch):
            store(name, keys(first, batch))
        made[name] = chunks
    rounds: dict[str, dict[str, list[float]]] = {name: {"prepare_store": [], "lookup": []} for name in under_test}
    for _ in range(repeat):
        for name, manager in under_test.items():
            batches = [keys(made[name] + i * batch, batch) for i in range(200)]
            made[name] += 200 * batch
            stores = [store(name, some) / batch for some in batches]
            context = ReqContext(req_id="look-ups")
            manager.on_new_request(context)
            begin = time.perf_counter()
            for some in batches:
                for key in some:
                    manager.lookup(key, context)
            look_up = (time.perf_counter() - begin) / (200 * batch)
            rounds[name]["prepare_store"].append(statistics.median(stores))
            rounds[name]["lookup"].append(look_up)
    print(f"{chunks} chunks, all full; microseconds a chunk, {batch} chunks a call, medians of {repeat} rounds")
    for name, figures in rounds.items():
        print(f"  {name:18}" + "".join(f"  {what} {statistics.median(each) * 1e6:.2f}" for what, each in figures.items()))


def requests(file: Path) -> Iterator[list[bytes]]:
    made: dict[int, bytes] = {}
    opened = gzip.open if file.suffix == ".gz" else open
    for line in opened(file, "rt"):
        ids = json.loads(line)["hash_ids"]
        for each in ids:
            if each not in made:
                made[each] = make_offload_key(hashlib.sha256(each.to_bytes(8, "little")).digest(), 0)
        yield [made[each] for each in ids]


def hit_rate(manager: Any, file: Path) -> float:
    """The share of chunks that a request finds, as the scheduler asks: up to the first miss."""
    found = asked = 0
    for number, chain in enumerate(requests(file)):
        context = ReqContext(req_id=str(number))
        for position, key in enumerate(chain):
            context.set_offload_key_position(key, position + 1)
        manager.on_new_request(context)
        hits = 0
        for key in chain:
            if manager.lookup(key, context) is not LookupResult.HIT:
                break
            hits += 1
        if hits:
            manager.prepare_load(chain[:hits], context)
            manager.complete_load(set(chain[:hits]), context)
        output = manager.prepare_store(chain[hits:], context) if hits < len(chain) else None
        if output is not None and output.keys_to_store:
            manager.complete_store(set(output.keys_to_store), context)
        manager.on_request_finished(context)
        manager.on_schedule_end(STEP)
        list(manager.take_events())
        found += hits
        asked += len(chain)
    return found / asked


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--chunks", type=int, default=100_000)
    arguments.add_argument("--repeat", type=int, default=5)
    arguments.add_argument("--traces", type=Path, default=os.environ.get("TERRACE_TRACES"))
    arguments.add_argument("--hit-chunks", type=int, default=3000)
    given = arguments.parse_args()
    times(given.chunks, given.repeat)
    if given.traces is None:
        print("no hit rates: --traces names no folder, and neither does TERRACE_TRACES")
        return
    for file in sorted(Path(given.traces).glob("*.jsonl*")):
        rates = {name: hit_rate(manager, file) for name, manager in managers(given.hit_chunks).items()}
        print(f"{file.name}, {given.hit_chunks} chunks: " + ", ".join(f"{name} {rate:.4f}" for name, rate in rates.items()))


if __name__ == "__main__":
    main()
