"""Terrace's manager for vLLM beside vLLM's own, in one run: time a chunk, and hit rates on traces.

    python vllm_manager.py [--chunks 100000] [--repeat 5] [--traces DIR] [--hit-chunks 1000,3000] [--device-chunks 1000]
                           [--window 4]

Needs vLLM. Each round times all managers one after the other; the figures are medians over the rounds. The traces are files
*.jsonl or *.jsonl.gz of requests with "hash_ids", one chunk each. Requests come one at a time, and say where their chunks end, as
vLLM's do. Of each trace:

    host            host memory of this many chunks alone
    behind device   the same below a device's prefix cache of --device-chunks; hits of both
    window          the same for a model with two KV cache groups: full attention, and a window of --window chunks
    in steps of 8   host memory alone; prompts are computed and stored so many chunks at a time

Terrace's eviction depends a little on the names of the chunks: its figures are the worst of four namespaces.
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
from collections import OrderedDict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")

import numpy as np
from vllm.v1.kv_offload.base import LookupResult, ReqContext, ScheduleEndContext, make_offload_key
from vllm.v1.kv_offload.cpu.manager import CPUOffloadingManager

from terrace_kv.vllm.chains import Window
from terrace_kv.vllm.manager import TerraceOffloadingManager

CHUNK_BYTES = 4096
STEP = ScheduleEndContext(new_req_ids=(), preempted_req_ids=())


class Terrace(TerraceOffloadingManager):
    """Terrace's manager over memory of its own; nothing is copied."""

    def __init__(self, chunks: int, policy: str, namespace: int = 0, window: int = 0) -> None:
        memory = mmap.mmap(-1, chunks * CHUNK_BYTES)
        view = memoryview(np.frombuffer(memory, dtype=np.int8).reshape(chunks, CHUNK_BYTES))
        windows = {1: Window(1, window)} if window else {}
        super().__init__({"policy": policy}, view, 0, bytes([namespace]) * 32, {0: 1}, windows=windows)


Maker = Callable[[int, int, int], Any]  # of a manager, from numbers: of chunks, of a namespace, and the chunks of a window
MAKERS: dict[str, Maker] = {
    "vllm lru": lambda chunks, _namespace, _window: CPUOffloadingManager(chunks, "lru"),
    "vllm arc": lambda chunks, _namespace, _window: CPUOffloadingManager(chunks, "arc"),
    "terrace adaptive": lambda chunks, namespace, window: Terrace(chunks, "adaptive", namespace, window),
    "terrace lru": lambda chunks, namespace, window: Terrace(chunks, "lru", namespace, window),
}
NAMESPACES = 4


def keys(first: int, count: int) -> list[bytes]:
    return [make_offload_key(hashlib.sha256(n.to_bytes(8, "little")).digest(), 0) for n in range(first, first + count)]


def begin(manager: Any, name: str, chain: list[bytes], groups: int = 1) -> ReqContext:
    context = ReqContext(req_id=name)
    for group in range(groups):
        for i, key in enumerate(of_group(group, chain)):
            context.set_offload_key_position(key, i + 1)
    manager.on_new_request(context)
    return context


def of_group(group: int, chain: list[bytes]) -> list[bytes]:
    return chain if group == 0 else [key[:-1] + bytes([group]) for key in chain]


def store(manager: Any, some: list[bytes], context: ReqContext) -> float:
    """Returns the time of prepare_store()."""
    begun = time.perf_counter()
    output = manager.prepare_store(some, context)
    taken = time.perf_counter() - begun
    if output is not None and output.keys_to_store:
        manager.complete_store(set(output.keys_to_store), context)
    return taken


def load(manager: Any, some: list[bytes], context: ReqContext) -> None:
    manager.prepare_load(some, context)
    manager.complete_load(set(some), context)


def end(manager: Any, context: ReqContext) -> None:
    manager.on_request_finished(context)
    manager.on_schedule_end(STEP)
    list(manager.take_events())


def times(chunks: int, repeat: int, behind: int, batch: int = 32, calls: int = 200) -> None:
    """Each request loads the same first chunks, and stores a batch of new ones behind them."""
    under_test = {name: make(chunks, 0, 0) for name, make in MAKERS.items()}
    first = keys(1 << 40, behind)
    made = 0

    def request(manager: Any, new: list[bytes]) -> tuple[float, float]:
        context = begin(manager, "a request", first + new)
        begun = time.perf_counter()
        for key in first:
            manager.lookup(key, context)
        for key in new:
            manager.lookup(key, context)
        looked_up = time.perf_counter() - begun
        if first:
            load(manager, first, context)
        stored = store(manager, new, context)
        end(manager, context)
        return stored / len(new), looked_up / (len(first) + len(new))

    for manager in under_test.values():
        if first:
            context = begin(manager, "the first", first)
            store(manager, first, context)
            end(manager, context)
        for new in range(0, chunks, batch):
            request(manager, keys(new, batch))
    made = chunks
    rounds: dict[str, list[tuple[float, float]]] = {name: [] for name in under_test}
    for _ in range(repeat):
        batches = [keys(made + i * batch, batch) for i in range(calls)]
        made += calls * batch
        for name, manager in under_test.items():
            figures = [request(manager, new) for new in batches]
            rounds[name].append(tuple(statistics.median(each) for each in zip(*figures)))
    print(f"{chunks} chunks, all full; microseconds a chunk, {batch} new chunks behind {behind}, medians of {repeat} rounds")
    for name, each in rounds.items():
        stored, looked_up = (statistics.median(column) * 1e6 for column in zip(*each))
        print(f"  {name:18}  prepare_store {stored:.2f}  lookup {looked_up:.2f}")


def requests(file: Path) -> Iterator[list[bytes]]:
    made: dict[int, bytes] = {}
    opened = gzip.open if file.suffix == ".gz" else open
    for line in opened(file, "rt"):
        ids = json.loads(line)["hash_ids"]
        for each in ids:
            if each not in made:
                made[each] = make_offload_key(hashlib.sha256(each.to_bytes(8, "little")).digest(), 0)
        yield [made[each] for each in ids]


class Device:
    """The prefix cache of a device: a chunk that a request uses is the last to go, and of one request the end goes first."""

    def __init__(self, chunks: int) -> None:
        self._chunks = chunks
        self._there: OrderedDict[bytes, None] = OrderedDict()

    def leading(self, chain: list[bytes]) -> int:
        return next((i for i, key in enumerate(chain) if key not in self._there), len(chain))

    def use(self, chain: list[bytes]) -> None:
        kept = chain[: self._chunks]
        for key in kept:
            self._there.pop(key, None)
        while len(self._there) + len(kept) > self._chunks:
            self._there.popitem(last=False)
        for key in reversed(kept):
            self._there[key] = None


def leading_hits(manager: Any, chain: list[bytes], context: ReqContext) -> int:
    """As the scheduler asks for full attention: up to the first miss."""
    return next((i for i, key in enumerate(chain) if manager.lookup(key, context) is not LookupResult.HIT), len(chain))


def window_hits(manager: Any, chain: list[bytes], context: ReqContext, window: int) -> int:
    """As the scheduler asks for a window: from the end, until enough neighbours are there."""
    run = 0
    for i in range(len(chain) - 1, -1, -1):
        run = run + 1 if manager.lookup(chain[i], context) is LookupResult.HIT else 0
        if run == window:
            return i + window
    return run


def hit_rate(manager: Any, file: Path, device_chunks: int = 0, window: int = 0, step_chunks: int = 1 << 30) -> float:
    """The share of chunks that a request finds. It stores `step_chunks` at a time, as an engine that computes prompts in steps."""
    device = Device(device_chunks)
    found = asked = 0
    for number, chain in enumerate(requests(file)):
        context = begin(manager, str(number), chain, 2 if window else 1)
        on_device = device.leading(chain)
        hits = on_device + leading_hits(manager, chain[on_device:], context)
        windowed = of_group(1, chain)
        if window:
            hits = window_hits(manager, windowed[:hits], context, window)
        if hits > on_device:
            load(manager, chain[on_device:hits] + (windowed[max(0, hits - window) : hits] if window else []), context)
        stored_from = hits if hits > on_device else 0
        for begin_step in range(stored_from, len(chain), step_chunks):
            step = slice(begin_step, begin_step + step_chunks)
            store(manager, chain[step] + (windowed[step] if window else []), context)
        device.use(chain)
        end(manager, context)
        found += hits
        asked += len(chain)
    return found / asked


def print_hit_rates(file: Path, chunks: int, device_chunks: int, window: int) -> None:
    for what, options in {
        "host": {},
        f"behind device of {device_chunks}": {"device_chunks": device_chunks},
        f"window of {window}": {"window": window},
        "in steps of 8": {"step_chunks": 8},
    }.items():
        rates = {}
        for name, make in MAKERS.items():
            namespaces = range(NAMESPACES if name == "terrace adaptive" else 1)
            made = (make(chunks, i, options.get("window", 0)) for i in namespaces)
            rates[name] = min(hit_rate(manager, file, **options) for manager in made)
        print(f"{file.name}, {chunks} chunks, {what}: " + ", ".join(f"{name} {rate:.4f}" for name, rate in rates.items()), flush=True)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--chunks", type=int, default=100_000)
    arguments.add_argument("--repeat", type=int, default=5)
    arguments.add_argument("--traces", type=Path, default=os.environ.get("TERRACE_TRACES"))
    arguments.add_argument("--hit-chunks", default="1000,3000")
    arguments.add_argument("--device-chunks", type=int, default=1000)
    arguments.add_argument("--window", type=int, default=4)
    given = arguments.parse_args()
    for behind in (0, 1000):
        times(given.chunks, given.repeat, behind)
    if given.traces is None:
        print("no hit rates: --traces names no folder, and neither does TERRACE_TRACES")
        return
    for file in sorted(Path(given.traces).glob("*.jsonl*")):
        for chunks in map(int, given.hit_chunks.split(",")):
            print_hit_rates(file, chunks, given.device_chunks, given.window)


if __name__ == "__main__":
    main()
