"""One of two ranks, for test_sglang_linker_pools: serves prompts, and prints where the pages came from.

    python sglang_linker_rank.py RANK DIRECTORY
"""

from __future__ import annotations

import json
import sys
from typing import Any

import sglang_under_test  # noqa: F401
import torch
from sglang_linker_engine import PAGE, engine

from terrace_kv import Busy

PROMPT = list(range(PAGE * 10))


def main(rank: int, directory: str) -> None:
    torch.distributed.init_process_group("gloo", init_method=f"file://{directory}/meeting", rank=rank, world_size=2)
    results = []
    # Rank 1 has room for 6 pages, and rank 0 for all.
    with engine("mha", ranks=torch.distributed.group.WORLD, host_capacity=32768 * (6 if rank else 32)) as made:
        results.append(made.serve(PROMPT))
        made.drop_device()
        results.append(made.serve(PROMPT))
        made.drop_device()
        load = made.linker._cache.load

        def refuse(*_arguments: Any, **_options: Any) -> None:
            raise Busy(1, "this rank cannot load")

        if rank == 1:
            made.linker._cache.load = refuse
        results.append(made.serve(PROMPT))
        made.linker._cache.load = load
        results.append(made.serve(PROMPT))
        served = [[each.device, each.loaded, each.computed, each.aborted] for each in results]
        print(json.dumps({"served": served, "stored": made.stored, "wrong": made.wrong}))
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
