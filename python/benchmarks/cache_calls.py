"""What the calls of terrace_kv.Cache cost an engine: a step of many running requests, and acquire of a long known prompt.

    python cache_calls.py [--requests 256] [--tokens 128000] [--block-tokens 16] [--rounds 400]

Microseconds as the caller sees them, medians and 99th percentiles over the rounds. In the step, each request has got one token,
and has computed the one before; the call appends, commits, extends and writes the new entries of the block tables. The keys of the
long prompt are known (Chain): hashing is not in the time. Blocks have 64 bytes, so that no copy takes time.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

from terrace_kv import Cache, Chain, Root, Step


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=256)
    parser.add_argument("--tokens", type=int, default=128_000)
    parser.add_argument("--block-tokens", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=400)
    args = parser.parse_args()
    root = Root(model_digest=b"benchmark")
    taken: dict[str, list[float]] = {}

    def timed(name: str, call: Callable[[], object]) -> object:
        start = time.perf_counter_ns()
        result = call()
        taken.setdefault(name, []).append((time.perf_counter_ns() - start) / 1000)
        return result

    prompt_blocks = args.tokens // args.block_tokens
    output_blocks = 4 + 2 * args.rounds // args.block_tokens
    blocks = 2 * prompt_blocks + args.requests * output_blocks + 1000
    with Cache({"pool": [{"block-bytes": 64, "device-blocks": blocks}]}) as cache:
        long = Chain(root, args.block_tokens, range(args.tokens))
        with cache.acquire(long) as request:
            request.commit(long.keys)
            request.release(0)
        for number in range(args.rounds):
            request = timed("acquire", lambda: cache.acquire(long))
            timed("table", lambda: request.block_table())  # noqa: B023
            timed("release", lambda: request.release(0))  # noqa: B023
            cache.poll()

        chains = [Chain(root, args.block_tokens, [number, *range(31 + number % args.block_tokens)]) for number in range(args.requests)]
        requests = [cache.acquire(chain) for chain in chains]
        step = Step(args.requests, output_blocks)
        step.requests[:] = [request.id for request in requests]
        step.computed[:] = [len(chain) for chain in chains]
        step.token_counts[:] = 1
        for number in range(args.rounds):
            step.tokens[:] = number
            assert timed("step", lambda: cache.step(step, args.requests))
            timed("end_step", cache.end_step)
            timed("poll", cache.poll)
            step.computed += 1
        for request in requests:
            request.release(0)
    print(f"{'call':10}{'median':>9}{'p99':>9}   microseconds")
    for name, values in taken.items():
        print(f"{name:10}{statistics.median(values):9.1f}{sorted(values)[len(values) * 99 // 100]:9.1f}")


if __name__ == "__main__":
    main()
