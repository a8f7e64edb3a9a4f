"""TerraceStorage with several host pools: the v2 calls of SGLang."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("numpy")

from sglang_under_test import (
    PoolHitPolicy,
    PoolName,
    PoolTransfer,
    attach,
    buffers,
    config,
    fill,
    flat,
    indices,
    keys,
    make_pool,
)

ALL, TRAILING = PoolHitPolicy.ALL_PAGES, PoolHitPolicy.TRAILING_PAGES


def hybrid(tmp_path: Path, **changes: Any) -> tuple[Any, dict[str, Any]]:
    """A back end with pools of KV, of an indexer without addresses, and of a recurrent state."""
    kinds = {"kv": ("mha", "page_first"), "indexer": ("flat", "layer_first"), "mamba": ("mamba", "page_first")}
    pools = {name: make_pool(kind, layout, 16) for name, (kind, layout) in kinds.items()}
    for seed, pool in enumerate(pools.values()):
        fill(pool, seed)
    storage = attach(config(tmp_path, **changes), pools["kv"], indexer=pools["indexer"], mamba=pools["mamba"])
    return storage, pools


def transfer(pools: dict[str, Any], name: str, names: list[str], pages: list[int], policy: Any = ALL) -> PoolTransfer:
    return PoolTransfer(PoolName(name), host_indices=indices(pools[name], pages), keys=names, hit_policy=policy)


def test_pages_of_several_pools_come_back(tmp_path: Path) -> None:
    storage, pools = hybrid(tmp_path)
    names = keys(4)
    pages = [1, 2, 3, 4]
    want = {name: [flat(pool, page) for page in pages] for name, pool in pools.items()}
    assert storage.batch_set_v2([transfer(pools, name, names, pages) for name in pools]) == dict.fromkeys(pools, [True] * 4)
    storage.close()
    for pool in pools.values():
        for buffer in buffers(pool):
            buffer[:] = 0
    storage = attach(config(tmp_path), pools["kv"], indexer=pools["indexer"], mamba=pools["mamba"])
    others = [8, 6, 7, 5]
    assert storage.batch_get_v2([transfer(pools, name, names, others) for name in pools]) == dict.fromkeys(pools, [True] * 4)
    assert {name: [flat(pool, page) for page in others] for name, pool in pools.items()} == want
    assert storage.batch_get_v1(names, indices(pools["kv"], pages)) == [True] * 4
    assert [flat(pools["kv"], page) for page in pages] == want["kv"]
    storage.close()


def test_equal_keys_of_two_pools_are_two_pages(tmp_path: Path) -> None:
    storage, pools = hybrid(tmp_path)
    assert storage.batch_set_v2([transfer(pools, "indexer", keys(2), [0, 1])])["indexer"] == [True, True]
    assert storage.batch_get_v2([transfer(pools, "mamba", keys(2), [0, 1])])["mamba"] == [False, False]
    assert storage.batch_exists(keys(2)) == 0
    storage.close()


def test_a_prefix_needs_all_pages_of_a_pool(tmp_path: Path) -> None:
    storage, pools = hybrid(tmp_path)
    names = keys(6)
    assert all(storage.batch_set_v1(names[:5], indices(pools["kv"], [0, 1, 2, 3, 4])))
    storage.batch_set_v2([transfer(pools, "indexer", [names[0], names[1], names[3]], [0, 1, 3])])
    found = storage.batch_exists_v2(names, [PoolTransfer(PoolName.INDEXER)])
    assert found.kv_hit_pages == 2 and found.restorable_prefix_pages == [1, 2]
    assert found.extra_pool_hit_pages == {"kv": 5, "indexer": 2}
    storage.close()


def test_a_prefix_needs_the_last_pages_of_a_window(tmp_path: Path) -> None:
    storage, pools = hybrid(tmp_path)
    names = keys(6)
    assert all(storage.batch_set_v1(names, indices(pools["kv"], list(range(6)))))
    storage.batch_set_v2([transfer(pools, "mamba", [names[i] for i in (0, 1, 3, 4)], [0, 1, 3, 4], TRAILING)])
    one = PoolTransfer(PoolName.MAMBA, keys=names[-1:], hit_policy=TRAILING)
    two = PoolTransfer(PoolName.MAMBA, keys=names[-2:], hit_policy=TRAILING)
    assert storage.batch_exists_v2(names, [one]).restorable_prefix_pages == [1, 2, 4, 5]
    assert storage.batch_exists_v2(names, [two]).restorable_prefix_pages == [1, 2, 5]
    assert storage.batch_exists_v2(names, [two]).kv_hit_pages == 5
    storage.batch_set_v2([transfer(pools, "indexer", names[:4], [0, 1, 2, 3])])
    both = storage.batch_exists_v2(names, [two, PoolTransfer(PoolName.INDEXER)])
    assert both.restorable_prefix_pages == [1, 2] and both.kv_hit_pages == 2
    assert both.extra_pool_hit_pages == {"kv": 6, "mamba": 5, "indexer": 4}
    storage.close()


def test_hits_are_what_the_policies_say(tmp_path: Path) -> None:
    """Random pages in three pools, against the definition."""
    storage, pools = hybrid(tmp_path)
    chance = random.Random(1)
    for round_number in range(30):
        names = keys(8, 100 * round_number)
        there: dict[str, list[bool]] = {}
        for name in pools:
            there[name] = [chance.random() < 0.8 for _ in names]
            chosen = [i for i in range(8) if there[name][i]]
            storage.batch_set_v2([transfer(pools, name, [names[i] for i in chosen], chosen)])
        window = chance.randint(1, 3)
        found = storage.batch_exists_v2(
            names,
            [PoolTransfer(PoolName.INDEXER), PoolTransfer(PoolName.MAMBA, keys=names[-window:], hit_policy=TRAILING)],
        )
        want = [
            pages
            for pages in range(1, 9)
            if all(there["kv"][:pages]) and all(there["indexer"][:pages]) and all(there["mamba"][max(0, pages - window) : pages])
        ]
        assert found.restorable_prefix_pages == want
        assert found.kv_hit_pages == max(want, default=0)
    storage.close()


def test_a_pool_of_indices_alone_has_its_other_pools_pages(tmp_path: Path) -> None:
    anchor, states = make_pool("logical"), make_pool("mamba")
    fill(states, 1)
    storage = attach(config(tmp_path), anchor, mamba=states)
    pools = {"mamba": states}
    names = keys(4)
    assert storage.batch_set_v1(names, indices(anchor, [0, 1, 2, 3])) == [True] * 4
    assert storage.batch_get_v1(names, indices(anchor, [0, 1, 2, 3])) == [True] * 4
    assert storage.batch_exists(names) == storage.batch_exists_v2(names).kv_hit_pages == 0
    assert storage.batch_exists_v2(names, [PoolTransfer(PoolName.MAMBA)]).kv_hit_pages == 0
    assert storage.batch_set_v2([transfer(pools, "mamba", names[:3], [0, 1, 2])])["mamba"] == [True] * 3
    assert storage.batch_exists_v2(names, [PoolTransfer(PoolName.MAMBA)]).kv_hit_pages == 3
    storage.close()


def test_a_pool_may_come_late(tmp_path: Path) -> None:
    pool, late = make_pool("mha"), make_pool("mamba")
    fill(late, 1)
    want = flat(late, 2)
    storage = attach(config(tmp_path), pool)
    storage.register_mem_host_pool_v2(late, PoolName.MAMBA)
    pools = {"mamba": late}
    assert storage.batch_set_v2([transfer(pools, "mamba", keys(1), [2])])["mamba"] == [True]
    assert storage.batch_get_v2([transfer(pools, "mamba", keys(1), [5])])["mamba"] == [True]
    assert flat(late, 5) == want
    storage.close()


@pytest.mark.usefixtures("mistakes_are_misses")
def test_what_cannot_be_done_is_a_miss(tmp_path: Path) -> None:
    storage, pools = hybrid(tmp_path)
    names = keys(3)
    assert all(storage.batch_set_v1(names, indices(pools["kv"], [0, 1, 2])))
    unknown = PoolTransfer(PoolName.SWA, host_indices=indices(pools["kv"], [0]), keys=names[:1])
    assert storage.batch_set_v2([unknown]) == {"swa": [False]}
    assert storage.batch_get_v2([unknown]) == {"swa": [False]}
    assert storage.batch_exists_v2(names, [PoolTransfer(PoolName.SWA)]).kv_hit_pages == 0
    groups = PoolTransfer(PoolName.INDEXER, hit_policy=PoolHitPolicy.BLOCK_GROUPS)
    assert storage.batch_exists_v2(names, [groups]).kv_hit_pages == 0
    assert storage.batch_exists_v2(names).kv_hit_pages == 3
    short = PoolTransfer(PoolName.INDEXER, host_indices=indices(pools["indexer"], [0]), keys=names)
    assert storage.batch_set_v2([short]) == {"indexer": [False] * 3}
    assert storage.batch_get_v2([PoolTransfer(PoolName.INDEXER)]) == {"indexer": []}
    storage.close()


def test_pools_share_one_capacity(tmp_path: Path) -> None:
    storage, pools = hybrid(tmp_path, extra={"capacity": "2MiB"})
    for first in range(0, 60, 10):
        assert all(storage.batch_set_v1(keys(10, first), indices(pools["kv"], list(range(10)))))
        assert all(storage.batch_set_v2([transfer(pools, "mamba", keys(10, first), list(range(10)))])["mamba"])
    assert storage.statistics()["evicted"] > 0
    assert [each.name for each in tmp_path.iterdir()] == [f"tp0of1-{storage._block_bytes}"]
    storage.close()


@pytest.mark.parametrize(
    ("sizes", "others", "block"),
    [
        ((4 << 20, 4 << 20), (), 4 << 20),
        ((4 << 20, 4 << 20), (200 << 10,), 512 << 10),
        ((65536,), (), 65536),
        ((16384,) * 8, (), 131072),
        ((70272,), (), 73728),
        ((5 * (1 << 20) + 1,), (), 876544),
        ((98304, 65536), (), 163840),
        ((4400,), (), 8192),
        ((), (), 65536),
    ],
)
def test_blocks_are_large_and_pad_little(sizes: tuple[int, ...], others: tuple[int, ...], block: int) -> None:
    from terrace_kv.sglang.pages import PoolPages, block_bytes_for

    def pages(of: tuple[int, ...]) -> PoolPages:
        made = PoolPages.__new__(PoolPages)
        made.sizes, made.bytes = of, sum(of)
        return made

    assert block_bytes_for([pages(sizes), *(pages((other,)) for other in others)]) == block
