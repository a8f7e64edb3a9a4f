"""What a call of terrace_kv.Store costs the thread that makes it: processor time a key, of batches of 32.

    python store_calls.py [--directory DIR] [--block-bytes 65536] [--batch 32] [--rounds 300]

Each round times every call once; the figures are medians over the rounds. The names are new bytes in each round, so that nothing
is remembered from call to call.
"""

from __future__ import annotations

import argparse
import hashlib
import mmap
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from terrace_kv import Store


def names(first: int, count: int) -> list[bytes]:
    return [hashlib.sha256(n.to_bytes(8, "little")).digest() for n in range(first, first + count)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--directory", type=Path, help="of the store (default: a temporary one)")
    parser.add_argument("--block-bytes", type=int, default=65536)
    parser.add_argument("--batch", type=int, default=32, help="keys of a call")
    parser.add_argument("--rounds", type=int, default=300)
    args = parser.parse_args()
    taken: dict[str, list[int]] = {}

    def timed(name: str, call: Callable[[], object]) -> None:
        start = time.thread_time_ns()
        call()
        taken.setdefault(name, []).append(time.thread_time_ns() - start)

    capacity = 2 * args.block_bytes * args.batch * args.rounds + (1 << 30)
    with tempfile.TemporaryDirectory(dir=args.directory) as directory:
        memory = mmap.mmap(-1, args.block_bytes * args.batch)
        memory[:] = bytes(range(256)) * (len(memory) // 256)
        rows = list(range(args.batch))
        with Store(directory, capacity, args.block_bytes) as store:
            region = store.register(memory)
            for number in range(args.rounds):
                some = names(number * args.batch, args.batch)
                timed("submit_put", lambda: store.submit_put(2 * number, some, region, rows))
                store.drain()
                store.poll()
                made = store.keys(some)
                timed("contains_many", lambda: store.contains_many(some))
                timed("contains_many, keys made before", lambda: store.contains_many(made))
                timed("leading", lambda: store.leading(some))
                timed("submit_get", lambda: store.submit_get(2 * number + 1, some, region, rows))
                store.drain()
                (result,) = store.poll()
                assert result.ok
            region.close()
            print(store.io())
    print(f"{args.batch} keys a call, blocks of {args.block_bytes} bytes; microseconds a key (median, 90th percentile)")
    for name, each in taken.items():
        each.sort()
        per_key = [value / 1000 / args.batch for value in (statistics.median(each), each[len(each) * 9 // 10])]
        print(f"{name:32} {per_key[0]:6.2f} {per_key[1]:6.2f}")


if __name__ == "__main__":
    main()
