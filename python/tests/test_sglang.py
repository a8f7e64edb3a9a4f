"""TerraceStorage: pages of every layout, the calls of SGLang, options, identity, failures, the end.

With SGLang installed the tests use its classes and host pools, otherwise stand-ins (sglang_under_test.py).
"""

from __future__ import annotations

import ctypes
import gc
import logging
import weakref
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("numpy")

from admin_endpoint import ask
from errors import STATUSES
from sglang_under_test import (
    REAL,
    HiCacheStorageExtraInfo,
    attach,
    buffers,
    config,
    fill,
    flat,
    indices,
    keys,
    make_pool,
)

import terrace_kv.sglang.storage
from terrace_kv import Busy, DeadlineExceeded, InvalidArgument, StorageError, Store
from terrace_kv._library import error_of
from terrace_kv.sglang import TerraceStorage, blocks

LAYOUTS = [
    ("mha", "layer_first"),
    ("mha", "page_first"),
    ("mha", "page_first_direct"),
    ("mha", "page_head"),
    ("mla", "layer_first"),
    ("mla", "page_first"),
    ("mla", "page_first_direct"),
    ("mamba", "page_first"),
    ("flat", "layer_first"),
]
if REAL:
    LAYOUTS += [
        ("asymmetric", "page_first"),
        ("asymmetric", "page_first_direct"),
        ("mamba", "page_first_direct"),
        ("side state", "page_first"),
        ("paged", "layer_first"),
        ("paged", "page_first"),
        ("paged", "page_first_direct"),
    ]
SCRIBBLE = 0xAA


def scribble(pool: Any) -> None:
    for buffer in buffers(pool):
        buffer[:] = SCRIBBLE


def stored(tmp_path: Path, pages: int = 4, **changes: Any) -> tuple[Any, Any, list[bytes]]:
    """A back end with pages 0, 1, ... of a pool under keys(pages), and their bytes."""
    pool = make_pool("mha")
    fill(pool, 7)
    storage = attach(config(tmp_path, **changes), pool)
    assert storage.batch_set_v1(keys(pages), indices(pool, list(range(pages)))) == [True] * pages
    return storage, pool, [flat(pool, page) for page in range(pages)]


# ---- pages


@pytest.mark.parametrize(("kind", "layout"), LAYOUTS)
def test_pages_come_back_where_they_are_asked_for(tmp_path: Path, kind: str, layout: str) -> None:
    pool = make_pool(kind, layout)
    fill(pool, 1)
    want = [flat(pool, page) for page in (2, 5, 7)]
    storage = attach(config(tmp_path), pool)
    assert storage.batch_set_v1(keys(3), indices(pool, [2, 5, 7])) == [True, True, True]
    scribble(pool)
    untouched = flat(pool, 0)
    got = storage.batch_get_v1([keys(3)[0], "nothing", *keys(3)[1:]], indices(pool, [4, 6, 1, 3]))
    assert got == [True, False, True, True]
    assert [flat(pool, page) for page in (4, 1, 3)] == want
    # In place, the content of a page that is a miss means nothing.
    others = (0, 2, 5, 7, 8) if storage._pools["kv"]._regions is not None else (0, 2, 5, 6, 7, 8)
    assert all(flat(pool, page) == untouched for page in others)
    storage.close()


def test_a_line_a_minute_says_what_was_saved_and_the_store_whose_it_is(tmp_path: Path) -> None:
    storage, pool, _ = stored(tmp_path)
    said: list[str] = []
    storage._minute._say = said.append
    storage._minute._ends = 0.0
    assert storage.batch_get_v1([keys(1)[0], "nothing"], indices(pool, [4, 5])) == [True, False]
    assert len(said) == 1, said
    assert said[0].startswith("in the last minute 1 pages were loaded and 4 computed and stored (hit rate 16 %): ")
    assert said[0].endswith(f"{pool.page_size} tokens saved, 1 were damaged, gone or late")
    (lock,) = tmp_path.rglob("lock")
    assert b"\ntext SGLang " in lock.read_bytes()
    storage.close()


@pytest.mark.parametrize(("kind", "layout"), LAYOUTS)
def test_pages_survive_detach_and_attach(tmp_path: Path, kind: str, layout: str) -> None:
    pool = make_pool(kind, layout)
    fill(pool, 2)
    first = attach(config(tmp_path), pool)
    assert all(first.batch_set_v1(keys(9), indices(pool, list(range(9)))))
    first.close()
    again = make_pool(kind, layout)
    second = attach(config(tmp_path), again)
    assert second.batch_exists(keys(10)) == 9
    assert second.batch_get_v1(keys(9), indices(again, list(range(9)))) == [True] * 9
    assert [flat(again, page) for page in range(9)] == [flat(pool, page) for page in range(9)]
    second.close()


@pytest.mark.parametrize(("kind", "layout", "in_place"), [(*each, each[1] != "layer_first") for each in LAYOUTS[:7]])
def test_pages_of_whole_blocks_are_moved_in_place(tmp_path: Path, kind: str, layout: str, in_place: bool) -> None:
    pool = make_pool(kind, layout)
    storage = attach(config(tmp_path), pool)
    assert (storage._pools["kv"]._regions is not None) is in_place
    if in_place:
        size = storage._local.store.block_bytes
        assert [size] * len(storage._pools["kv"].pages.sizes) == list(storage._pools["kv"].pages.sizes)
        fill(pool, 3)
        assert all(storage.batch_set_v1(keys(2), indices(pool, [0, 1])))
        assert storage.statistics()["unaligned_blocks"] == 0
    storage.close()


@pytest.mark.parametrize(("kind", "layout"), LAYOUTS[:7])
def test_flat_pages_are_the_same_pages(tmp_path: Path, kind: str, layout: str) -> None:
    pool = make_pool(kind, layout)
    fill(pool, 4)
    storage = attach(config(tmp_path), pool)
    page = pool.page_size
    assert storage.batch_set(keys(2), [pool.get_data_page(0), pool.get_data_page(page)]) is True
    want = [flat(pool, 0), flat(pool, 1)]
    assert storage.batch_get_v1(keys(2), indices(pool, [5, 6])) == [True, True]
    assert [flat(pool, 5), flat(pool, 6)] == want
    assert storage.batch_set_v1(keys(1, 9), indices(pool, [8])) == [True]
    targets = [pool.get_dummy_flat_data_page() for _ in range(3)]
    got = storage.batch_get([*keys(1, 9), "nothing", *keys(1)], targets)
    assert got[0] is targets[0] and got[1] is None and got[2] is targets[2]
    pool.set_from_flat_data_page(3 * page, got[0])
    assert flat(pool, 3) == flat(pool, 8)
    target = pool.get_dummy_flat_data_page()
    assert storage.get(keys(1)[0], target) is target
    assert storage.get("nothing", target) is None
    assert storage.set("another", pool.get_data_page(0)) is True
    assert storage.exists("another") and not storage.exists("nothing")
    storage.close()


@pytest.mark.usefixtures("mistakes_are_misses")
def test_calls_without_tensors_are_refused(tmp_path: Path) -> None:
    storage, pool, _ = stored(tmp_path)
    with pytest.raises(TypeError, match="target_locations must have a tensor of one page for each of the 1 keys"):
        storage.get(keys(1)[0], 140234, 4096)
    with pytest.raises(TypeError, match="values must have a tensor"):
        storage.batch_set(keys(2), None, [1, 2], [3, 4])
    assert storage.batch_set(["x"], [pool.get_data_page(0)[:100]]) is False
    assert storage.batch_get(keys(1), [pool.get_data_page(0)[:100]]) == [None]
    storage.close()


def test_exists_counts_until_the_first_gap(tmp_path: Path) -> None:
    pool = make_pool("mha")
    storage = attach(config(tmp_path), pool)
    names = keys(5)
    assert all(storage.batch_set_v1([names[0], names[1], names[3]], indices(pool, [0, 1, 3])))
    assert storage.batch_exists(names) == 2
    assert storage.batch_exists(names[3:]) == 1
    assert storage.batch_exists(names[2:]) == 0
    assert storage.batch_exists([]) == 0
    assert storage.exists(names[3]) and not storage.exists(names[2])
    storage.close()


def test_pages_that_are_there_are_not_written_again(tmp_path: Path) -> None:
    storage, pool, want = stored(tmp_path)
    written = storage.statistics()["written_bytes"]
    fill(pool, 8)
    assert storage.batch_set_v1(keys(4), indices(pool, [0, 1, 2, 3])) == [True] * 4
    assert storage.statistics()["written_bytes"] == written
    assert all(storage.batch_get_v1(keys(4), indices(pool, [0, 1, 2, 3])))
    assert [flat(pool, page) for page in range(4)] == want
    storage.close()


@pytest.mark.parametrize("layout", ["page_first", "layer_first"])
def test_batches_larger_than_jobs_and_staging(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, layout: str) -> None:
    monkeypatch.setattr(blocks, "_JOB_BLOCKS", 3)
    monkeypatch.setattr(blocks, "STAGING_BYTES", 300_000)
    pool = make_pool("mha", layout, pages=41)
    fill(pool, 5)
    want = [flat(pool, page) for page in range(40)]
    storage = attach(config(tmp_path), pool)
    assert storage.batch_set_v1(keys(40), indices(pool, list(range(40)))) == [True] * 40
    scribble(pool)
    assert storage.batch_get_v1(keys(41), indices(pool, list(range(40, -1, -1)))) == [True] * 40 + [False]
    assert [flat(pool, page) for page in range(40, 0, -1)] == want
    storage.close()


@pytest.mark.parametrize("threads", [1, 4])
def test_a_store_that_has_too_much_to_do_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, threads: int
) -> None:
    monkeypatch.setattr(blocks, "_JOB_BLOCKS", 2)
    start = Store._start
    refused = []

    def one_job_at_a_time(self: Any, *arguments: Any) -> Any:
        if self._jobs:
            refused.append(1)
            raise Busy(13, "too much is under way")
        return start(self, *arguments)

    monkeypatch.setattr(Store, "_start", one_job_at_a_time)
    pool = make_pool("mha", pages=64)
    fill(pool, 6)
    storage = attach(config(tmp_path), pool)

    def work(number: int) -> bool:
        mine = list(range(8 * number, 8 * number + 8))
        names = keys(8, 8 * number)
        return storage.batch_set_v1(names, indices(pool, mine)) == storage.batch_get_v1(names, indices(pool, mine)) == [True] * 8

    with ThreadPoolExecutor(threads) as pooled:
        assert all(pooled.map(work, range(threads)))
    assert refused
    assert not storage._local.store._events  # nobody asks for them, so they must not pile up
    storage.close()


@pytest.mark.parametrize("extra", [{}, {"shared": {"url": "memory:", "write-policy": "write-through"}}])
def test_clear_gives_up_all_pages(tmp_path: Path, extra: dict[str, Any]) -> None:
    storage, pool, _ = stored(tmp_path, extra=extra)
    assert storage.clear() is True
    assert storage.batch_exists(keys(4)) == 0
    assert storage.batch_get_v1(keys(4), indices(pool, [4, 5, 6, 7])) == [False] * 4
    storage.close()


def test_pages_stored_after_a_clear_are_found_until_the_next_attach(tmp_path: Path) -> None:
    # Nothing tells whether the weights are still those that pages are named by.
    storage, pool, _ = stored(tmp_path)
    assert storage.clear()
    want = flat(pool, 6)
    assert storage.batch_set_v1(keys(2), indices(pool, [6, 7])) == [True, True]
    assert storage.batch_exists(keys(4)) == 2
    assert storage.batch_get_v1(keys(2), indices(pool, [4, 5])) == [True, True]
    assert flat(pool, 4) == want
    storage.close()
    storage = attach(config(tmp_path), pool)
    assert storage.batch_exists(keys(4)) == 0
    assert storage.batch_set_v1(keys(1), indices(pool, [0])) == [True]
    storage.close()
    storage = attach(config(tmp_path), pool)
    assert storage.batch_exists(keys(4)) == 1
    storage.close()


def test_a_shared_store_is_used_again_after_the_next_attach(tmp_path: Path) -> None:
    shared = {"extra": {"shared": {"url": "memory:"}}}
    storage, pool, _ = stored(tmp_path / "a", 3, **shared)
    other = attach(config(tmp_path / "b", **shared), pool)
    assert storage.clear()
    assert storage.batch_set_v1(keys(1, 9), indices(pool, [0])) == [True]
    assert other.batch_exists(keys(4)) == 3, "others have not cleared"
    assert other.batch_exists(keys(1, 9)) == 0
    storage.close()
    storage = attach(config(tmp_path / "a", **shared), pool)
    assert storage.batch_exists(keys(4)) == 3
    storage.close()
    other.close()


def test_a_read_that_a_clear_overtakes_has_no_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    storage, pool, _ = stored(tmp_path)
    read = storage._pools["kv"].read

    def overtaken(*arguments: Any) -> Any:
        found = read(*arguments)
        assert storage.clear()
        return found

    monkeypatch.setattr(storage._pools["kv"], "read", overtaken)
    assert storage.batch_get_v1(keys(4), indices(pool, [4, 5, 6, 7])) == [False] * 4
    storage.close()


def test_a_clear_is_carried_out_after_an_update_of_the_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    storage, _, _ = stored(tmp_path)
    monkeypatch.setattr(terrace_kv.sglang.storage.identity, "weight_version", lambda: "2")
    assert storage.clear() is True
    assert storage.statistics()["blocks"] == 0
    storage.close()


def test_threads_of_sglang_call_at_a_time(tmp_path: Path) -> None:
    pool = make_pool("mha", pages=64)
    fill(pool, 6)
    want = [flat(pool, page) for page in range(32)]
    storage = attach(config(tmp_path), pool)

    def work(page: int) -> bool:
        name = keys(1, page)
        ok = storage.batch_set_v1(name, indices(pool, [page])) == [True] and storage.batch_exists(name) == 1
        return ok and storage.batch_get_v1(name, indices(pool, [32 + page])) == [True] and flat(pool, 32 + page) == want[page]

    with ThreadPoolExecutor(8) as threads:
        assert all(threads.map(work, range(32)))
    storage.close()


# ---- options


@pytest.mark.parametrize(
    ("extra", "sentence"),
    [
        ({"capacty": "1GiB"}, "'capacty' is no option of TerraceStorage; did you mean 'capacity'"),
        ({"weight_revision": "x"}, "did you mean 'weights_revision'"),
        ({"path": 7}, '"path" must be a directory'),
        ({"path": []}, '"path" must be a directory'),
        ({"capacity": None}, '"capacity" must be the disk space of one rank'),
        ({"weights_revision": ""}, '"weights_revision" must be a text'),
        ({"mla": "both"}, "one of shared, copies, and is 'both'"),
    ],
)
def test_wrong_options_are_refused(tmp_path: Path, extra: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        attach(config(tmp_path, extra=extra), make_pool("mha"))


def test_values_that_the_library_refuses(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="capacity"):
        attach(config(tmp_path, extra={"capacity": "64GB"}), make_pool("mha"))
    with pytest.raises(InvalidArgument, match="io"):
        attach(config(tmp_path, extra={"io": "tape"}), make_pool("mha"))
    with pytest.raises(StorageError, match="largest capacity that fits"):
        attach(config(tmp_path, extra={"capacity": "800TiB"}), make_pool("mha"))
    assert not list(tmp_path.iterdir())


def test_options_of_sglang_and_of_the_store_are_taken(tmp_path: Path) -> None:
    extra = {"prefetch_threshold": 1, "file_storage_path": "/tmp/x", "io": "threads", "io_threads": 2, "flush_interval": "1s"}
    storage = attach(config(tmp_path, extra=extra), make_pool("mha"))
    assert "thread" in storage._local.store.io()
    storage.close()


def test_operators_see_the_store_of_a_rank(tmp_path: Path) -> None:
    socket = tmp_path / "s"
    storage = attach(config(tmp_path, extra={"admin": {"listen": f"unix:{socket}", "interval": "1ms"}}), make_pool("mha"))
    assert all(storage.batch_set_v1(keys(4), indices(make_pool("mha"), [0, 1, 2, 3])))
    assert storage.batch_exists(keys(4)) == 4
    assert ask(socket, "GET", "/v1/config")[0] == 200
    assert ask(socket, "GET", "/v1/status")[1]["pools"][0]["block_bytes"] == 65536
    storage.close()
    assert not socket.exists()


def test_several_directories_are_used_together(tmp_path: Path) -> None:
    disks = [tmp_path / "one", tmp_path / "two"]
    for _ in range(2):
        storage = attach(config(tmp_path, extra={"path": [str(each) for each in disks]}), make_pool("mha"))
        found = storage.batch_exists(keys(4))
        assert all(storage.batch_set_v1(keys(4), indices(make_pool("mha"), [0, 1, 2, 3])))
        storage.close()
    assert found == 4
    assert all(list(each.glob("tp0of1-65536/blocks-*")) for each in disks)


def test_sglang_moves_pages_without_copies_unless_told_otherwise(tmp_path: Path) -> None:
    without = config(tmp_path)
    attach(without, make_pool("mha")).close()
    assert without.extra_config["interface_v1"] == 1
    told = config(tmp_path, extra={"interface_v1": 0})
    attach(told, make_pool("mha")).close()
    assert told.extra_config["interface_v1"] == 0


def test_a_pool_that_gives_its_pages_to_nobody_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="the host pool 'kv' .* gives its pages to no storage back end: .*outside kv_buffer"):
        attach(config(tmp_path), make_pool("sealed"))


def test_a_directory_of_another_engine_is_refused(tmp_path: Path) -> None:
    storage, _, _ = stored(tmp_path)
    with pytest.raises(Busy, match="every engine needs a path of its own"):
        attach(config(tmp_path), make_pool("mha"))
    assert storage.batch_exists(keys(4)) == 4
    storage.close()


# ---- failures


@pytest.mark.usefixtures("mistakes_are_misses")
@pytest.mark.parametrize("call", ["contains_many", "touch", "clear", "events", "_start", "_finish"])
def test_an_error_of_the_store_is_a_miss_and_counted(call: str, tmp_path: Path) -> None:
    storage, pool, want = stored(tmp_path)
    right = getattr(storage._local.store, call)

    def fails_once(*arguments: Any) -> Any:
        if not raised:
            raised.append(error)  # noqa: B023
            raise error  # noqa: B023
        return right(*arguments)

    for status in STATUSES:
        error, raised, before = error_of(status, "thrown by the test"), list[Any](), storage.errors
        setattr(storage._local.store, call, fails_once)
        storage.batch_set_v1(keys(4, 100), indices(pool, [0, 1, 2, 3]))
        storage.batch_exists(keys(4))
        storage.batch_get_v1(keys(4), indices(pool, [0, 1, 2, 3]))
        storage.clear()
        setattr(storage._local.store, call, right)
        assert raised and storage.errors == before + 1
        assert storage.clear() and storage.batch_exists(keys(4)) == 0
        fill(pool, 1)
        want = [flat(pool, page) for page in range(4)]
        assert all(storage.batch_set_v1(keys(4), indices(pool, [0, 1, 2, 3])))
        fill(pool, 2)
        assert storage.batch_get_v1(keys(4), indices(pool, [0, 1, 2, 3])) == [True] * 4
        assert [flat(pool, page) for page in range(4)] == want
    storage.close()


def damage(directory: Path, content: bytes) -> None:
    """Changes a byte in the middle of the block with this content on the disk."""
    (file,) = directory.glob("*/blocks-*")
    data = bytearray(file.read_bytes())
    at = data.find(content)
    assert at >= 0
    data[at + len(content) // 2] ^= 1
    file.write_bytes(bytes(data))


def test_a_damaged_page_is_a_miss_and_can_be_stored_again(tmp_path: Path) -> None:
    storage, pool, want = stored(tmp_path)
    storage.close()
    damage(tmp_path, want[2][:65536])
    storage = attach(config(tmp_path), pool)
    scribble(pool)
    assert storage.batch_exists(keys(4)) == 4
    assert storage.batch_get_v1(keys(4), indices(pool, [0, 1, 2, 3]))[:3] == [True, True, False]
    assert [flat(pool, page) for page in range(2)] == want[:2]
    assert storage.statistics()["corrupt"] == 1
    assert storage.batch_exists(keys(4)) == 2
    fill(pool, 7)
    assert storage.batch_set_v1(keys(4), indices(pool, [0, 1, 2, 3])) == [True] * 4
    scribble(pool)
    assert storage.batch_get_v1(keys(4), indices(pool, [0, 1, 2, 3])) == [True] * 4
    assert [flat(pool, page) for page in range(4)] == want
    storage.close()


def test_a_full_store_keeps_the_heads_of_prefixes(tmp_path: Path) -> None:
    pool = make_pool("mha", pages=64)
    fill(pool, 1)
    storage = attach(config(tmp_path, extra={"capacity": "8MiB"}), pool)
    capacity = storage.statistics()["capacity_blocks"] // 2
    assert 48 < capacity < 64
    first, second = keys(32), keys(32, 100)
    assert all(storage.batch_set_v1(first[:16], indices(pool, list(range(16)))))
    rest = HiCacheStorageExtraInfo(prefix_keys=first[:16])
    assert all(storage.batch_set_v1(first[16:], indices(pool, list(range(16, 32))), rest))
    assert all(storage.batch_set_v1(second, indices(pool, list(range(32, 64)))))
    assert storage.batch_exists(second) == 32
    left = storage.batch_exists(first)
    assert left == capacity - 32 and left == sum(storage.exists(name) for name in first)
    storage.close()


def test_a_closed_back_end_finds_and_stores_nothing(tmp_path: Path) -> None:
    storage, pool, _ = stored(tmp_path, enable_storage_metrics=True)
    storage.close()
    storage.close()
    assert storage.batch_exists(keys(4)) == 0 and not storage.exists(keys(1)[0])
    assert storage.batch_get_v1(keys(2), indices(pool, [0, 1])) == [False, False]
    assert storage.batch_set_v1(keys(2), indices(pool, [0, 1])) == [False, False]
    assert storage.batch_get(keys(1), [pool.get_dummy_flat_data_page()]) == [None]
    assert storage.batch_set(keys(1), [pool.get_data_page(0)]) is False
    assert storage.batch_exists_v2(keys(2)).kv_hit_pages == 0
    assert storage.clear() is False
    assert storage.statistics() == {}


def test_a_store_that_fails_is_misses_and_told_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    storage, pool, _ = stored(tmp_path)

    def fail(*arguments: Any, **named: Any) -> Any:
        raise StorageError(-5, "the disk is gone")

    with caplog.at_level(logging.INFO), monkeypatch.context() as broken:
        for name in ("_start", "contains_many"):
            broken.setattr(Store, name, fail)
        for _ in range(3):
            assert storage.batch_set_v1(keys(2, 50), indices(pool, [0, 1])) == [False, False]
            assert storage.batch_get_v1(keys(2), indices(pool, [0, 1])) == [False, False]
            assert storage.batch_exists(keys(2)) == 0
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 3 and all("the disk is gone" in each for each in said)
    caplog.clear()
    with caplog.at_level(logging.INFO):
        for _ in range(2):
            assert storage.batch_set_v1(keys(2, 50), indices(pool, [0, 1])) == [True, True]
            assert storage.batch_get_v1(keys(2), indices(pool, [0, 1])) == [True, True]
            assert storage.batch_exists(keys(2)) == 2
    assert sorted(record.getMessage() for record in caplog.records) == [
        "looking pages up works again",
        "reading pages works again",
        "writing pages works again",
    ]
    storage.close()


def test_blocks_that_fail_are_told_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    storage, pool, _ = stored(tmp_path)
    collect = blocks.LocalBlocks._finish

    def no_room(self: Any, job: int) -> Any:
        result = collect(self, job)
        return type(result)(**{**vars(result), "statuses": (10,) * len(result.statuses)})

    with caplog.at_level(logging.INFO):
        with monkeypatch.context() as broken:
            broken.setattr(blocks.LocalBlocks, "_finish", no_room)
            for first in (50, 60):
                assert storage.batch_set_v1(keys(2, first), indices(pool, [0, 1])) == [False, False]
        assert storage.batch_set_v1(keys(2, 70), indices(pool, [0, 1])) == [True, True]
    said = [record.getMessage() for record in caplog.records]
    assert said[0].startswith("writing to the store fails") and said[1:] == ["writing to the store works again"]
    storage.close()


def test_staging_memory_of_a_call_that_an_exception_has_ended_is_not_lent_again(tmp_path: Path) -> None:
    with Store(tmp_path, capacity="1MiB", block_bytes=4096, io="threads", bandwidth="100KiB/s") as store:
        local = blocks.LocalBlocks(store)
        with suppress(KeyboardInterrupt), local.lend_for_writing(1) as lent:
            ctypes.memset(lent.address, 1, 4096)
            store.submit_put(10**6, [b"a"], lent.region, [0])
            raise KeyboardInterrupt
        with local.lend_for_writing(1) as lent:
            ctypes.memset(lent.address, 2, 4096)
        store.drain(60)
        into = bytearray(4096)
        assert store.get(b"a", into) and into == bytes([1]) * 4096
        local.close()


@pytest.mark.usefixtures("mistakes_are_misses")
@pytest.mark.parametrize("wrong", ["short", "none"])
def test_wrong_indices_are_false(tmp_path: Path, wrong: str) -> None:
    storage, pool, _ = stored(tmp_path)
    given = indices(pool, [0]) if wrong == "short" else None
    assert storage.batch_get_v1(keys(2), given) == [False, False]
    assert storage.batch_set_v1(keys(2), given) == [False, False]
    storage.close()


@pytest.mark.usefixtures("mistakes_are_misses")
def test_pages_before_any_pool_are_misses(tmp_path: Path) -> None:
    storage = TerraceStorage(config(tmp_path), {})
    assert storage.batch_exists(keys(2)) == 0
    assert storage.batch_get_v1(keys(2), indices(make_pool("mha"), [0, 1])) == [False, False]
    storage.close()


def test_a_version_that_does_not_say_when_all_pools_are_there(tmp_path: Path) -> None:
    stored(tmp_path)[0].close()
    storage = TerraceStorage(config(tmp_path), {})
    pool = make_pool("mha")
    storage.register_mem_pool_host(pool)
    assert storage.batch_exists(keys(4)) == 4
    storage.close()


# ---- the end, metrics


def test_close_lets_go_of_the_host_pool(tmp_path: Path) -> None:
    for layout in ("page_first", "layer_first"):
        pool = make_pool("mha", layout)
        memory = weakref.ref(pool.kv_buffer)
        storage = attach(config(tmp_path), pool)
        assert all(storage.batch_set_v1(keys(2), indices(pool, [0, 1])))
        regions = [region for region, _ in storage._regions.values()]
        staging = [weakref.ref(lent._memory) for lent in storage._local._lent.values() if lent is not None]
        assert regions or staging
        storage.close()
        del pool
        gc.collect()
        assert memory() is None
        assert all(region._rows is None for region in regions) and all(each() is None for each in staging)


def test_a_disk_that_does_not_answer_keeps_the_host_pool(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    storage, pool, _ = stored(tmp_path)
    store = storage._local.store

    def late(self: Any, timeout: float) -> None:
        raise DeadlineExceeded(15, "close: a disk has not answered in time")

    with monkeypatch.context() as broken:
        broken.setattr(Store, "close", late)
        storage.close()
    assert "a disk has not answered in time; the host pool stays in memory" in caplog.text
    memory = weakref.ref(pool.kv_buffer)
    del pool, storage
    gc.collect()
    assert memory() is not None
    store.close()
    terrace_kv.sglang.storage._kept_for_ever.clear()


def test_metrics_are_those_of_sglang(tmp_path: Path) -> None:
    storage, pool, _ = stored(tmp_path, enable_storage_metrics=True)
    assert all(storage.batch_get_v1(keys(3), indices(pool, [0, 1, 2])))
    metrics = storage.get_stats()
    assert metrics.backup_pgs == [4] and metrics.prefetch_pgs == [3]
    assert len(metrics.backup_bandwidth) == len(metrics.prefetch_bandwidth) == 1
    assert all(speed > 0 for speed in metrics.backup_bandwidth + metrics.prefetch_bandwidth)
    assert storage.get_stats().backup_pgs == []
    storage.close()
    without = attach(config(tmp_path), pool)
    assert without.get_stats() is None
    without.close()


def test_pages_of_another_engine_come_through_a_shared_store(tmp_path: Path) -> None:
    shared = {"url": "memory:"}
    first, pool, want = stored(tmp_path / "a", 3, extra={"shared": shared})
    second = attach(config(tmp_path / "b", extra={"shared": shared}), pool)
    assert second.batch_exists(keys(4)) == 3
    scribble(pool)
    assert second.batch_get_v1(keys(3), indices(pool, [4, 5, 6])) == [True] * 3
    assert [flat(pool, page) for page in (4, 5, 6)] == want
    first.close()
    second.close()
