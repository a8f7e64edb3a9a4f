"""TerraceL2Adapter when something goes wrong: damage, slow and full disks, threads, and the end. Skipped without LMCache."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("lmcache", reason="LMCache is not installed")

import lmcache_under_test as under_test
from errors import STATUSES
from lmcache_under_test import (
    BLOCK,
    Listener,
    Log,
    Memory,
    blank,
    content,
    damage,
    key,
    keys,
    load,
    look_up,
    memories,
    objects,
    open_adapter,
    store,
)

from terrace_kv import Busy, Store
from terrace_kv._interface import DEADLINE_EXCEEDED
from terrace_kv._library import error_of
from terrace_kv.lmcache import TerraceL2Adapter, TerraceL2AdapterConfig
from terrace_kv.lmcache import adapter as adapter_module
from terrace_kv.lmcache import transfers as transfers_module
from terrace_kv.lmcache.transfers import Move, Transfers

SIZE = 3 * BLOCK


# ---- failures


def test_a_damaged_object_is_a_miss_and_can_be_stored_again(tmp_path: Path) -> None:
    first = open_adapter(tmp_path)
    given = memories(4, SIZE)
    store(first, keys(4), given)
    first.close()
    damage(tmp_path, content(1, SIZE)[:BLOCK])
    damage(tmp_path, content(2, SIZE)[-BLOCK:])
    second = open_adapter(tmp_path)
    listener = Listener()
    second.register_listener(listener)
    assert look_up(second, keys(4)) == [True] * 4
    into = blank(4, SIZE)
    assert load(second, keys(4), into) == [True, False, False, True]
    assert [into[i].bytes() for i in (0, 3)] == [given[i].bytes() for i in (0, 3)]
    assert look_up(second, keys(4)) == [True, False, False, True]
    assert sorted(listener.deleted, key=str) == [key(1), key(2)]
    assert second.report_status()["statistics"]["corrupt"] == 2
    assert store(second, keys(4), given).is_successful()
    into = blank(4, SIZE)
    assert load(second, keys(4), into) == [True] * 4
    assert [each.bytes() for each in into] == [each.bytes() for each in given]
    second.close()


def slow(path: Path, timeout: float, bandwidth: str = "100KiB/s", capacity: str = "4MiB") -> Any:
    """An adapter whose disk takes 40 ms for a block."""
    config = TerraceL2AdapterConfig((str(path),), capacity, "1", BLOCK, timeout, {"io": "threads", "bandwidth": bandwidth})
    return TerraceL2Adapter(config)


def test_a_disk_that_is_too_slow_costs_a_task_its_time_and_nothing_else(tmp_path: Path, log: Log) -> None:
    quick = open_adapter(tmp_path)
    given = memories(2, 8 * BLOCK)
    store(quick, keys(2), given)
    quick.close()
    adapter = slow(tmp_path, 0.05)
    into = blank(2, 8 * BLOCK)
    assert load(adapter, keys(2), into) == [False, False]
    assert log.said[-1].startswith("loading objects fails, and LMCache computes what it does not find: ")
    lane = adapter._objects.transfers._loads
    assert len(lane.free) < lane.region.count, "the disk still uses some of the rows"
    assert not store(adapter, keys(1, 9), memories(1, 8 * BLOCK)).is_successful()
    before = [each.bytes() for each in into]
    adapter.close()
    assert [each.bytes() for each in into] == before, "the disk does not use LMCache's memory"
    again = open_adapter(tmp_path)
    assert load(again, keys(2), into) == [True, True]
    assert [each.bytes() for each in into] == [each.bytes() for each in given]
    again.close()


def test_a_task_that_waits_for_staging_memory_ends_in_time(tmp_path: Path) -> None:
    adapter = slow(tmp_path, 0.05, "2MiB/s", "64MiB")
    count = 2 * adapter._objects.transfers._stores.region.count
    first = adapter.submit_store_task(keys(1), objects(memories(1, count * BLOCK)))
    second = adapter.submit_store_task(keys(1, 1), objects(memories(1, BLOCK)))
    results: dict[int, Any] = {}
    while len(results) < 2:
        under_test._wait(adapter.get_store_event_fd())
        results |= adapter.pop_completed_store_tasks()
    assert not results[first].is_successful() and not results[second].is_successful()
    adapter.close()


@pytest.fixture
def transfers(tmp_path: Path) -> Iterator[Transfers]:
    with Store(tmp_path, "4MiB", BLOCK) as store:
        yield Transfers(store)


def move(transfers: Transfers, is_put: bool, memory: Memory, deadline: float) -> Move:
    """A move of one block, which has begun."""
    made = transfers._store.keys([b"a block"])
    begun = Move(is_put, made, [(memory.object.data_ptr, BLOCK)], None, memory, deadline, lambda _move: None)
    transfers.start(begun)
    transfers.step()
    return begun


def test_memory_is_not_read_after_the_deadline(transfers: Transfers) -> None:
    late = move(transfers, True, Memory(content(1, BLOCK)), time.monotonic() - 1)
    assert (late.moved, late.error) == ([False], DEADLINE_EXCEEDED)
    assert transfers._store.statistics()["puts"] == 0 and transfers.is_idle()


def test_memory_is_not_written_after_the_deadline(transfers: Transfers) -> None:
    stored = move(transfers, True, Memory(content(1, BLOCK)), time.monotonic() + 60)
    while not transfers.is_idle():
        transfers._store.wait(1.0)
        transfers.step()
    assert stored.moved == [True]
    into = Memory(bytes(BLOCK))
    late = move(transfers, False, into, time.monotonic() + 60)
    late.deadline = time.monotonic() - 1  # the thread was not scheduled until then
    while not transfers.is_idle():
        transfers._store.wait(1.0)
        transfers.step()
    assert (late.moved, late.error) == ([False], DEADLINE_EXCEEDED)
    assert into.bytes() == bytes(BLOCK)


def test_the_rest_of_a_block_is_zeros_on_the_disk(tmp_path: Path) -> None:
    adapter = open_adapter(tmp_path)
    store(adapter, keys(64), memories(64, BLOCK))  # the staging memory has their bytes
    store(adapter, keys(1, 9999), memories(1, 100, 9999))
    adapter.close()
    (file,) = tmp_path.glob("*/blocks-*")
    data = file.read_bytes()
    at = data.find(content(9999, 100))
    assert at >= 0 and data[at + 100 : at + BLOCK] == bytes(BLOCK - 100)


def test_a_full_disk_fails_stores_and_keeps_what_is_there(tmp_path: Path, log: Log) -> None:
    adapter = open_adapter(tmp_path)
    assert store(adapter, keys(1), memories(1, SIZE)).is_successful()
    submit_put = adapter._objects.store.submit_put

    def refuse(*arguments: Any, **options: Any) -> None:
        raise adapter_module.TerraceError(9, "the disk is full")

    adapter._objects.store.submit_put = refuse
    assert not store(adapter, keys(3), memories(3, SIZE)).is_successful()
    assert "storing objects fails" in log.said[-1]
    assert look_up(adapter, keys(3)) == [True, False, False]
    adapter._objects.store.submit_put = submit_put
    assert store(adapter, keys(3), memories(3, SIZE)).is_successful()
    assert log.said[-1] == "storing objects works again"
    adapter.close()


def test_what_the_store_refuses_for_now_is_tried_again(adapter: Any) -> None:
    submit_put, refusals = adapter._objects.store.submit_put, [Busy(13, "too much is under way")] * 3

    def sometimes(*arguments: Any, **options: Any) -> None:
        if refusals:
            raise refusals.pop()
        submit_put(*arguments, **options)

    adapter._objects.store.submit_put = sometimes
    assert store(adapter, keys(2), memories(2, SIZE)).is_successful()
    assert not refusals


def test_a_failure_of_the_thread_fails_its_tasks_and_is_told(tmp_path: Path, log: Log) -> None:
    adapter = open_adapter(tmp_path)
    assert adapter.report_status()["is_healthy"]

    def fail() -> Any:
        raise RuntimeError("a defect")

    adapter._objects.store.poll = fail
    assert not store(adapter, keys(1), memories(1, SIZE)).is_successful()
    assert load(adapter, keys(1), blank(1, SIZE)) == [False]
    assert look_up(adapter, keys(1)) == [False]
    assert not adapter.report_status()["is_healthy"]
    del adapter._objects.store.poll
    adapter.close()


def test_a_defect_between_the_result_of_a_job_and_its_report_loses_no_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    adapter = open_adapter(tmp_path)
    assert store(adapter, keys(2), memories(2, SIZE)).is_successful()

    def fail(*_arguments: Any) -> None:
        raise RuntimeError("a defect")

    monkeypatch.setattr(transfers_module.ctypes, "memmove", fail)
    assert load(adapter, keys(2), blank(2, SIZE)) == [False, False]
    assert not adapter.report_status()["is_healthy"]
    adapter.close()


@pytest.mark.usefixtures("mistakes_are_misses")
@pytest.mark.parametrize("call", ["keys", "contains_many", "touch", "remove", "submit_put", "submit_get", "statistics"])
def test_an_error_of_the_store_is_a_miss_and_counted(call: str, tmp_path: Path) -> None:
    adapter = open_adapter(tmp_path)
    right, number = getattr(adapter._objects.store, call), 0

    def fails_once(*arguments: Any, **options: Any) -> Any:
        if not raised:
            raised.append(error)  # noqa: B023
            raise error  # noqa: B023
        return right(*arguments, **options)

    for status in STATUSES:
        error, raised, before = error_of(status, "thrown by the test"), list[Any](), adapter.report_status()["errors"]
        known, new = keys(2, number), keys(2, number + 2)
        number += 4
        store(adapter, known, memories(2, SIZE))
        setattr(adapter._objects.store, call, fails_once)
        results = [store(adapter, new, memories(2, SIZE)).is_successful(), *look_up(adapter, known)]
        results += load(adapter, known, blank(2, SIZE))
        adapter.submit_unlock(known)
        if call == "keys":
            raised.clear()
        adapter.delete(known)
        adapter.report_status()
        setattr(adapter._objects.store, call, right)
        assert raised
        if call not in ("remove", "statistics"):
            tried_again = isinstance(error, Busy) and call.startswith("submit")
            assert (results.count(False) == 0) == tried_again
        assert adapter.report_status()["errors"] > before or isinstance(error, Busy) or call == "statistics"
        assert store(adapter, new, memories(2, SIZE)).is_successful() and all(look_up(adapter, new))
    adapter.close()


@pytest.mark.usefixtures("mistakes_are_misses")
@pytest.mark.parametrize("call", ["poll", "events"])
def test_without_results_of_the_store_all_tasks_fail(call: str, tmp_path: Path) -> None:
    for status in STATUSES:
        adapter = open_adapter(tmp_path)

        def fail() -> Any:
            raise error_of(status, "thrown by the test")  # noqa: B023

        setattr(adapter._objects.store, call, fail)
        assert not store(adapter, keys(1), memories(1, SIZE)).is_successful()
        assert load(adapter, keys(1), blank(1, SIZE)) == look_up(adapter, keys(1)) == [False]
        assert adapter.report_status()["errors"] >= 2
        delattr(adapter._objects.store, call)
        adapter.close()


# ---- threads, and the end


def test_threads_get_right_bytes_whatever_others_do(tmp_path: Path) -> None:
    adapter = open_adapter(tmp_path, capacity="2MiB")
    wrong: list[str] = []
    lock = threading.Lock()  # LMCache has one thread for each kind of task

    def work(seed: int) -> None:
        for turn in range(25):
            first = (seed * 7 + turn * 3) % 60
            given = [key(n) for n in range(first, first + 6)]
            with lock:
                stored = store(adapter, given, memories(6, SIZE, first))
            if not stored.is_successful() and not deleting.is_set():
                wrong.append("not stored")
            into = blank(6, SIZE)
            with lock:
                look_up(adapter, given)
                loaded = load(adapter, given, into)
            adapter.submit_unlock(given)
            wrong.extend(
                f"chunk {n}" for n, there, each in zip(range(first, first + 6), loaded, into)
                if there and each.bytes() != content(n, SIZE)
            )  # fmt: skip

    deleting = threading.Event()
    deleting.set()
    stop = threading.Event()

    def delete() -> None:
        n = 0
        while not stop.is_set():
            adapter.delete([key(n % 60)])
            adapter.report_status()
            adapter.list_l2_keys(page_size=5)
            n += 1

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    deleter = threading.Thread(target=delete)
    for each in (*threads, deleter):
        each.start()
    for each in threads:
        each.join()
    stop.set()
    deleter.join()
    assert not wrong
    adapter.close()


def test_closing_ends_every_task(tmp_path: Path) -> None:
    adapter = slow(tmp_path, 1.0)
    reached, closing = threading.Event(), threading.Event()

    class Slow(Listener):
        def on_l2_keys_stored(self, keys: list[Any], sizes: list[int]) -> None:
            reached.set()
            closing.wait(60)

    adapter.register_listener(Slow())
    adapter.submit_store_task(keys(1), objects(memories(1, BLOCK)))
    assert reached.wait(60)  # the thread of the adapter is at the end of this task
    for n in range(1, 6):
        adapter.submit_store_task(keys(1, n), objects(memories(1, BLOCK, n)))
    closer = threading.Thread(target=adapter.close)
    closer.start()
    while not adapter._stopping:
        time.sleep(0.001)
    closing.set()
    closer.join()
    adapter.close()
    results = adapter.pop_completed_store_tasks()
    assert len(results) == 6 and results[0].is_successful()
    assert not adapter.report_status()["is_healthy"]
    with pytest.raises(RuntimeError, match="the adapter is closed"):
        adapter.submit_store_task(keys(1), objects(memories(1, BLOCK)))
    stored = open_adapter(tmp_path)
    assert look_up(stored, keys(1)) == [True]
    stored.close()
