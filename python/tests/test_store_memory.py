"""Store: whose memory the disk uses, and for how long: exceptions, time-outs, cancelled coroutines, threads, wrong numbers."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from interruption import Interrupted, alarm, in_child, interrupted_at

from terrace_kv import DeadlineExceeded, EventKind, InvalidArgument, Result, Stopped, Store, TerraceError
from terrace_kv import _interface, _library, _staging

BLOCK = 4096
SLOW = {"io": "threads", "bandwidth": "100KiB/s"}  # a block takes 40 ms


def filled(seed: int) -> bytes:
    return bytes([seed % 251 + 1]) * BLOCK


def open_store(path: Path, **options: Any) -> Store:
    return Store(path, capacity="4MiB", block_bytes=BLOCK, **options)


def finish(store: Store, job: int) -> Result:
    while True:
        for result in store.poll():
            if result.job == job:
                return result
        store.wait(10)


def check_content(store: Store, names: dict[bytes, bytes]) -> None:
    """Every block is a miss, or has its bytes."""
    for name, content in names.items():
        into = bytearray(BLOCK)
        if store.get(name, into):
            assert into == content, f"{name!r} has the bytes of another block"


# ---- exceptions


def test_a_put_that_a_signal_ends_leaves_its_row_alone(tmp_path: Path) -> None:
    names: dict[bytes, bytes] = {}
    with open_store(tmp_path, **SLOW) as store:
        for i in range(4):
            with suppress(Interrupted), alarm(0.01):
                names[b"a%d" % i] = filled(2 * i)
                store.put(b"a%d" % i, filled(2 * i))
            names[b"b%d" % i] = filled(2 * i + 1)
            store.put(b"b%d" % i, filled(2 * i + 1))
            assert store.contains(b"b%d" % i)
        check_content(store, names)
    with open_store(tmp_path) as store:
        check_content(store, names)


def test_calls_after_an_interrupted_get_do_not_wait_for_a_poll(tmp_path: Path) -> None:
    with open_store(tmp_path, **SLOW) as store:
        store.put(b"a", filled(1))
        into = bytearray(BLOCK)
        with suppress(Interrupted), alarm(0.005):
            store.get(b"a", into)
        kept = bytes(into)
        store.put(b"b", filled(2))
        other = bytearray(BLOCK)
        assert store.get(b"a", other) and other == filled(1)
        store.drain(120)
        assert into == kept, "an interrupted get has written late"


@pytest.mark.parametrize("call", ["put", "get", "submit_put", "submit_get"])
def test_an_exception_at_any_line_costs_no_block_and_no_row(tmp_path: Path, call: str) -> None:
    names: dict[bytes, bytes] = {}
    with open_store(tmp_path, io="threads") as store:
        buffer = bytearray(BLOCK)
        store.put(b"there", filled(0))
        line = 0
        while True:
            line += 1
            name, content = b"%d" % line, filled(line)
            buffer[:] = content
            names[name] = content
            with interrupted_at(line) as raised, suppress(Interrupted):
                if call == "put":
                    store.put(name, buffer)
                elif call == "get":
                    store.get(b"there", buffer)
                elif call == "submit_put":
                    store.submit_put(line, [name], buffer, [0])
                else:
                    store.submit_get(line, [b"there"], buffer, [0])
            # Nobody is stopped by what the exception has left behind, and no buffer is kept for ever.
            other = bytearray(BLOCK)
            store.put(b"other", filled(line + 1))
            store.remove([b"other"])
            assert store.get(b"there", other) and other == filled(0)
            store.drain(120)
            store.poll()
            buffer.extend(b"x")
            del buffer[-1:]
            if not raised:
                break
        assert line > 20
        gc.collect()
        rows = store._staging._rows.values()
        assert all(row.is_free() for row in rows) and len(rows) <= 8
        if call.endswith("put"):
            check_content(store, names)


# ---- coroutines


def test_a_put_that_was_cancelled_reads_no_memory_of_the_caller(tmp_path: Path) -> None:
    async def serve(store: Store) -> dict[bytes, bytes]:
        names = {}
        for i in range(6):
            name, buffer = b"%d" % i, bytearray(filled(i))
            names[name] = bytes(buffer)
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(store.put_async(name, buffer), 0.005)
            buffer[:] = filled(100 + i)
        return names

    with open_store(tmp_path, **SLOW) as store:
        names = asyncio.run(serve(store))
        store.drain(120)
        check_content(store, names)
    with open_store(tmp_path) as store:
        check_content(store, names)


def test_a_get_that_was_cancelled_writes_no_memory_of_the_caller(tmp_path: Path) -> None:
    async def serve(store: Store) -> None:
        for i in range(6):
            buffer = bytearray(BLOCK)
            try:
                await asyncio.wait_for(store.get_async(b"a", buffer), 0.005)
            except asyncio.TimeoutError:
                buffer.extend(b"not kept")
                del buffer[BLOCK:]
                kept = bytes(buffer)
                await asyncio.sleep(0.1)
                assert buffer == kept

    with open_store(tmp_path, **SLOW) as store:
        store.put(b"a", filled(1))
        asyncio.run(serve(store))


def test_more_coroutines_than_rows(tmp_path: Path) -> None:
    count = 3 * _staging.rows_max(BLOCK)

    async def serve(store: Store) -> None:
        tasks = [asyncio.create_task(store.put_async(b"%d" % i, filled(i))) for i in range(count)]
        await asyncio.sleep(0)
        for task in tasks[::3]:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        buffers = [bytearray(BLOCK) for _ in range(count)]
        found = await asyncio.gather(*(store.get_async(b"%d" % i, buffers[i]) for i in range(count)))
        for i in range(count):
            assert found[i] or i % 3 == 0
            assert not found[i] or buffers[i] == filled(i)

    with Store(tmp_path, capacity="16MiB", block_bytes=BLOCK) as store:
        asyncio.run(serve(store))
        assert len(store._staging._rows) <= _staging.rows_max(BLOCK)


def test_a_coroutine_beside_threads_is_woken(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        store.put(b"a", filled(1))
        stop = threading.Event()

        def read() -> None:
            into = bytearray(BLOCK)
            while not stop.is_set():
                assert store.get(b"a", into) and into == filled(1)

        threads = [threading.Thread(target=read) for _ in range(2)]
        for thread in threads:
            thread.start()

        async def serve() -> None:
            for _ in range(200):
                into = bytearray(BLOCK)
                assert await store.get_async(b"a", into) and into == filled(1)

        try:
            asyncio.run(asyncio.wait_for(serve(), 120))
        finally:
            stop.set()
            for thread in threads:
                thread.join()


def test_a_close_ends_coroutines_and_threads_that_wait(tmp_path: Path) -> None:
    async def serve() -> None:
        store = open_store(tmp_path, **SLOW)
        store.put(b"a", filled(1))
        into = [bytearray(BLOCK) for _ in range(3)]
        waiting = [asyncio.create_task(store.get_async(b"a", each)) for each in into]
        waiting += [asyncio.create_task(store.put_async(b"%d" % i, filled(i))) for i in range(3)]
        await asyncio.sleep(0)
        store.close()
        results = await asyncio.wait_for(asyncio.gather(*waiting, return_exceptions=True), 120)
        assert results == [True] * 3 + [None] * 3
        assert all(each == filled(1) for each in into)
        with pytest.raises(Stopped, match="closed"):
            await store.put_async(b"late", filled(1))

    asyncio.run(serve())


def test_a_close_that_does_not_wait_ends_them_too(tmp_path: Path) -> None:
    async def serve() -> None:
        store = open_store(tmp_path, **SLOW)
        waiting = [asyncio.create_task(store.put_async(b"%d" % i, filled(i))) for i in range(600)]  # more than there are rows
        await asyncio.sleep(0)
        with suppress(DeadlineExceeded):
            store.close(0)
        for result in await asyncio.wait_for(asyncio.gather(*waiting, return_exceptions=True), 120):
            assert result is None or isinstance(result, TerraceError)

    asyncio.run(serve())


def test_a_closed_event_loop_costs_nobody_else_a_result(tmp_path: Path) -> None:
    with open_store(tmp_path, **SLOW) as store:
        store.submit_put(1, [b"a"], bytearray(filled(1)), [0])
        loop = asyncio.new_event_loop()
        task = loop.create_task(store.put_async(b"b", filled(2)))
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()
        store.submit_put(2, [b"c"], bytearray(filled(3)), [0])
        jobs = []
        while len(jobs) < 2:
            store.wait(10)
            jobs += [result.job for result in store.poll()]
        assert sorted(jobs) == [1, 2]
        store.drain(120)
        assert store.contains(b"b")
        task._log_destroy_pending = False  # type: ignore[attr-defined]


# ---- the deadlines of jobs


def test_a_result_at_its_deadline_says_that_the_memory_is_in_use(tmp_path: Path) -> None:
    with open_store(tmp_path, io="threads", bandwidth="10KiB/s") as store:  # 8 blocks take 3 s
        memory = bytearray(b"".join(filled(i) for i in range(8)))
        keys = [b"%d" % i for i in range(8)]
        store.submit_put(1, keys, memory, range(8), timeout=0.01)
        late = finish(store, 1)
        assert late.memory_in_use and not late.ok
        assert _interface.DEADLINE_EXCEEDED in late.statuses
        with pytest.raises(BufferError):
            memory.extend(b"x")  # the store keeps it
        with pytest.raises(InvalidArgument, match="job 1"):
            store.submit_put(1, [b"x"], bytearray(BLOCK), [0])
        free: list[int] = []
        while not free:
            store.wait(10)
            store.poll()
            free = [event.job for event in store.events() if event.kind is EventKind.MEMORY_FREE]
        assert free == [1]
        memory.extend(b"x")
        for i, name in enumerate(keys):
            into = bytearray(BLOCK)
            assert not store.get(name, into) or into == filled(i)
        store.submit_put(1, [b"x"], bytearray(filled(9)), [0])
        assert finish(store, 1).ok and not finish_nothing(store)


def finish_nothing(store: Store) -> list[Result]:
    store.drain(120)
    return store.poll()


def test_a_region_is_busy_until_its_memory_is_free(tmp_path: Path) -> None:
    from terrace_kv import Busy

    with open_store(tmp_path, **SLOW) as store:
        store.put(b"a", filled(1))
        memory = bytearray(BLOCK)
        region = store.register(memory)
        store.submit_get(1, [b"a"], region, [0], timeout=0.001)
        late = finish(store, 1)
        if late.memory_in_use:
            with pytest.raises(Busy):
                region.close()
        store.drain(120)
        region.close()
        memory.clear()


# ---- numbers and buffers


@pytest.mark.parametrize("row", [2**32 + 3, -1, 2**64])
def test_rows_do_not_wrap_around(tmp_path: Path, row: int) -> None:
    with open_store(tmp_path) as store:
        memory = bytearray(4 * BLOCK)
        for call in (store.submit_put, store.submit_get):
            with pytest.raises(ValueError, match=rf"rows\[1\] is {row}, must be from 0 to {2**32 - 1}"):
                call(1, [b"a", b"b"], memory, [0, row])
        memory.clear()


def test_job_numbers_do_not_wrap_around(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        for call in (
            lambda job: store.submit_put(job, [b"a"], bytearray(BLOCK), [0]),
            lambda job: store.submit_get(job, [b"a"], bytearray(BLOCK), [0]),
            store.submit_flush,
            store.cancel,
        ):
            with pytest.raises(ValueError, match="job is"):
                call(2**64 + 5)
        store.drain(120)


def test_buffers_of_references_are_refused(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        store.put(b"a", filled(1))
        for buffer in ((ctypes.py_object * (BLOCK // 8))(), (ctypes.c_char_p * (BLOCK // 8))()):
            for call in (lambda: store.get(b"a", buffer), lambda: store.put(b"b", buffer), lambda: store.register(buffer)):
                with pytest.raises(ValueError, match="references"):
                    call()
        numpy = pytest.importorskip("numpy")
        with pytest.raises(ValueError, match="references"):
            store.get(b"a", numpy.empty(BLOCK // 8, dtype=object))
        mixed = numpy.zeros(BLOCK // 16, dtype=[("Object", "i8"), ("value", object)])
        with pytest.raises(ValueError, match="references"):
            store.get(b"a", mixed)
        assert store.get(b"a", numpy.zeros(BLOCK // 8, dtype=[("Object", "f8")]))
        assert store.get(b"a", numpy.zeros(BLOCK // 16, dtype=complex))


# ---- fork


def test_a_forked_child_has_a_closed_store_and_the_parent_goes_on(tmp_path: Path) -> None:
    with open_store(tmp_path, **SLOW) as store:
        memory = bytearray(filled(5))
        store.submit_put(1, [b"under way"], memory, [0])

        def child() -> None:
            assert store.closed
            for call in (lambda: store.put(b"x", filled(1)), store.poll, store.wait, store.drain, store.fileno):
                with pytest.raises(Stopped, match=f"belongs to process {os.getppid()}"):
                    call()
            store.close()
            memory.extend(b"x")  # the disk of the parent does not use this memory
            store.__del__()

        assert in_child(child) == 0
        assert finish(store, 1).ok
        store.put(b"b", filled(6))
        check_content(store, {b"under way": filled(5), b"b": filled(6)})


def test_a_fork_while_another_thread_has_the_lock(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        taken, done = threading.Event(), threading.Event()

        def hold() -> None:
            with store._lock:
                taken.set()
                done.wait()

        thread = threading.Thread(target=hold)
        thread.start()
        taken.wait()
        assert in_child(store.close) == 0
        done.set()
        thread.join()


_OWNER = """
import os, sys, time
from terrace_kv import Store
store = Store(sys.argv[1], capacity="1MiB", block_bytes=4096, admin={"listen": "unix:" + sys.argv[2]})
store.put(b"a", bytes(4096))
store.submit_flush(1)
store.drain()
child = os.fork()
if child == 0:
    print(os.getpid(), flush=True)
time.sleep(1000)
"""


def test_a_child_that_lives_on_keeps_neither_lock_nor_socket_of_a_dead_owner(tmp_path: Path) -> None:
    directory, socket_file = tmp_path / "store", tmp_path / "admin.sock"
    owner = subprocess.Popen([sys.executable, "-c", _OWNER, str(directory), str(socket_file)], stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    child = int(owner.stdout.readline())
    try:
        owner.kill()
        owner.wait()
        with open_store(directory, admin={"listen": f"unix:{socket_file}"}) as store:
            assert store.contains(b"a")
    finally:
        os.kill(child, signal.SIGKILL)
        owner.stdout.close()


def test_a_child_that_only_exits_does_not_hang(tmp_path: Path) -> None:
    program = """
import os, sys
from terrace_kv import Store
store = Store(sys.argv[1], capacity="1MiB", block_bytes=4096)
child = os.fork()
if child == 0:
    sys.exit(0)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
store.put(b"a", bytes(4096))
"""
    said = subprocess.run([sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, timeout=120)
    assert (said.stdout, said.stderr) == ("0\n", "")
    with open_store(tmp_path) as store:
        assert store.contains(b"a")
