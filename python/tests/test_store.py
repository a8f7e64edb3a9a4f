"""Store: contents, misses, jobs, buffers, errors, the end."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import json
import mmap
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

import terrace_kv
from terrace_kv import BatchKind, EventKind, Health, InvalidArgument, NotFound, Result, Stopped, Store

BLOCK = 4096


def filled(seed: int, blocks: int = 1) -> bytes:
    return b"".join(bytes([(seed + i) % 256]) * BLOCK for i in range(blocks))


@pytest.fixture
def store(tmp_path: Path):
    with Store(tmp_path, capacity="1MiB", block_bytes=BLOCK) as opened:
        yield opened


def finish(store: Store, job: int) -> Result:
    while True:
        for result in store.poll():
            if result.job == job:
                return result
        store.wait(10)


def test_a_block_comes_back(store: Store) -> None:
    store.put(b"one", filled(1))
    into = bytearray(BLOCK)
    assert store.get(b"one", into)
    assert into == filled(1)
    assert store.contains(b"one")
    assert not store.contains(b"two")


def test_a_block_that_is_not_there_is_no_error(store: Store) -> None:
    into = bytearray(filled(9))
    assert store.get(b"nothing", into) is False


def test_blocks_survive_the_end(tmp_path: Path) -> None:
    with Store(tmp_path, capacity="1MiB", block_bytes=BLOCK) as first:
        first.put(b"one", filled(1))
    assert first.closed
    with Store(tmp_path, capacity="1MiB", block_bytes=BLOCK) as second:
        into = bytearray(BLOCK)
        assert second.get(b"one", into)
        assert into == filled(1)


def test_namespaces_are_apart(tmp_path: Path) -> None:
    with Store(tmp_path, capacity="1MiB", block_bytes=BLOCK, namespace=b"a model") as first:
        first.put(b"one", filled(1))
    with Store(tmp_path, capacity="1MiB", block_bytes=BLOCK, namespace=b"another") as second:
        assert not second.contains(b"one")


def test_a_job_names_rows_of_a_buffer(store: Store) -> None:
    memory = bytearray(filled(0, 8))
    store.submit_put(1, [b"a", b"b", b"c"], memory, [5, 0, 7])
    result = finish(store, 1)
    assert result.ok and result.kind is BatchKind.PUT and result.bytes == 3 * BLOCK
    into = bytearray(8 * BLOCK)
    store.submit_get(2, [b"a", b"b", b"missing"], into, [1, 2, 3])
    result = finish(store, 2)
    assert result.statuses == (0, 0, 7) and result.succeeded == 2 and not result.ok
    assert into[BLOCK : 2 * BLOCK] == filled(5)
    assert into[2 * BLOCK : 3 * BLOCK] == filled(0)


def test_registered_memory_is_used_again_and_again(store: Store) -> None:
    with mmap.mmap(-1, 4 * BLOCK) as memory:
        with store.register(memory) as region:
            assert region.count == 4
            for job in range(5):
                memory[:BLOCK] = filled(job)
                store.submit_put(job, [b"%d" % job], region, [0])
                assert finish(store, job).ok
            for job in range(5):
                store.submit_get(job, [b"%d" % job], region, [3])
                assert finish(store, job).ok
                assert memory[3 * BLOCK :] == filled(job)


def test_a_buffer_is_kept_until_its_job_ends(store: Store) -> None:
    memory = bytearray(filled(1))
    store.submit_put(1, [b"a"], memory, [0])
    with pytest.raises(BufferError):
        memory.extend(b"more")
    finish(store, 1)
    memory.extend(b"more")


def test_no_buffer_is_kept_after_the_end(tmp_path: Path) -> None:
    memory = bytearray(filled(1))
    with Store(tmp_path, capacity="1MiB", block_bytes=BLOCK) as store:
        store.submit_put(1, [b"a"], memory, [0])
        store.put(b"b", filled(2))
    memory.extend(b"more")


def test_a_result_of_another_job_waits_for_poll(store: Store) -> None:
    store.submit_put(7, [b"a"], bytearray(filled(1)), [0])
    store.put(b"b", filled(2))
    store.drain(120)
    assert [result.job for result in store.poll()] == [7]


def test_leading_counts_until_the_first_gap(store: Store) -> None:
    for name in (b"a", b"b", b"d"):
        store.put(name, filled(1))
    keys = store.keys([b"a", b"b", b"c", b"d"])
    assert store.leading(keys) == 2
    assert store.contains_many(keys) == [True, True, False, True]
    assert store.contains_many([]) == []


@pytest.mark.parametrize("count", [1, 63, 64, 65, 130])
def test_contains_has_a_bit_for_each_key(store: Store, count: int) -> None:
    names = [b"%d" % i for i in range(count)]
    for i in range(0, count, 3):
        store.put(names[i], filled(i))
    assert store.contains_many(names) == [i % 3 == 0 for i in range(count)]


def test_keys_of_any_length_differ(store: Store) -> None:
    keys = store.keys([b"", b"a", b"aa", b"a" * 36, b"a" * 64])
    assert len({keys[i] for i in range(5)}) == 5
    assert store.keys([b"aa"])[0] == keys[2]


def test_events_tell_what_is_there(store: Store) -> None:
    store.put(b"a", filled(1))
    key = store.keys([b"a"])[0]
    assert [(event.kind, event.key) for event in store.events()] == [(EventKind.STORED, key)]
    store.remove([b"a"])
    store.poll()
    assert [(event.kind, event.key) for event in store.events()] == [(EventKind.REMOVED, key)]
    assert not store.contains(b"a")


def test_a_full_store_evicts_the_block_used_least_recently(tmp_path: Path) -> None:
    with Store(tmp_path, capacity="256KiB", block_bytes=BLOCK) as store:
        names = [b"%d" % i for i in range(200)]
        for i, name in enumerate(names):
            store.put(name, filled(i))
        there = store.contains_many(names)
        assert not there[0] and there[-1]
        assert store.statistics()["evicted"] == there.count(False)


def test_statistics_and_health(store: Store) -> None:
    store.put(b"a", filled(1))
    store.get(b"a", bytearray(BLOCK))
    numbers = store.statistics()
    assert numbers["puts"] == numbers["stored"] == numbers["gets"] == numbers["hits"] == 1
    assert numbers["read_bytes"] == BLOCK
    assert store.health() == (Health.WELL, "")
    assert store.io()


# ---- buffers


def test_numpy_rows_may_have_gaps(store: Store) -> None:
    numpy = pytest.importorskip("numpy")
    wide = numpy.zeros((4, 2 * BLOCK), dtype=numpy.uint8)
    rows = wide[:, :BLOCK]
    rows[2] = 7
    store.submit_put(1, [b"a"], rows, [2])
    assert finish(store, 1).ok
    store.submit_get(2, [b"a"], rows, [0])
    assert finish(store, 2).ok
    assert (wide[0, :BLOCK] == 7).all() and (wide[0, BLOCK:] == 0).all()


def test_rows_of_other_types_and_shapes(store: Store) -> None:
    numpy = pytest.importorskip("numpy")
    memory = numpy.arange(3 * 2 * 512, dtype=numpy.float32).reshape(3, 2, 512)
    store.submit_put(1, [b"a"], memory, [1])
    assert finish(store, 1).ok
    into = numpy.zeros_like(memory)
    store.submit_get(2, [b"a"], into, [2])
    assert finish(store, 2).ok
    assert (into[2] == memory[1]).all()
    with pytest.raises(ValueError, match="one piece"):
        store.submit_put(3, [b"a"], memory.transpose(0, 2, 1), [0])


def test_arrays_of_ctypes(store: Store) -> None:
    array = (ctypes.c_char * BLOCK * 3)()
    array[2].raw = filled(3)
    store.submit_put(1, [b"a"], array, [2])
    assert finish(store, 1).ok
    into = (ctypes.c_char * BLOCK)()
    assert store.get(b"a", into)
    assert into.raw == filled(3)


def test_tensors_of_torch(store: Store) -> None:
    torch = pytest.importorskip("torch")
    memory = torch.arange(2 * 1024, dtype=torch.float32).reshape(2, 1024)
    store.submit_put(1, [b"a"], memory, [1])
    assert finish(store, 1).ok
    into = torch.zeros(1, 1024)
    assert store.get(b"a", into)
    assert torch.equal(into[0], memory[1])


@pytest.mark.parametrize("wrong", [b"", b"short", bytearray(BLOCK + 1)])
def test_a_buffer_of_a_wrong_size_is_refused(store: Store, wrong: object) -> None:
    with pytest.raises(ValueError, match="bytes"):
        store.put(b"a", wrong)


def test_what_is_read_needs_memory_that_can_be_written(store: Store) -> None:
    with pytest.raises(ValueError, match="read-only"):
        store.get(b"a", bytes(BLOCK))
    with pytest.raises(ValueError, match="read-only"):
        store.submit_get(1, [b"a"], bytes(BLOCK), [0])
    with pytest.raises(TypeError):
        store.put(b"a", 17)
    with pytest.raises(ValueError, match="put\\(\\) stores one"):
        store.put(b"a", bytes(2 * BLOCK))


# ---- errors


def test_errors_name_what_is_wrong(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="capacity"):
        Store(tmp_path, capacity="4GB")
    with pytest.raises(InvalidArgument, match='^there is no option "io-thread"'):  # no line of a file that nobody wrote
        Store(tmp_path, capacity="1MiB", block_bytes=BLOCK, io_thread=3)
    with pytest.raises(InvalidArgument):
        Store(tmp_path, capacity="1MiB", block_bytes=1000)
    with pytest.raises(OSError):
        Store(tmp_path / "no" / "parent", capacity="1MiB", block_bytes=BLOCK)


def test_a_directory_with_a_strange_name(tmp_path: Path) -> None:
    directory = tmp_path / 'with "quotes" and \\ and ü'
    directory.mkdir()
    with Store(directory, capacity="1MiB", block_bytes=BLOCK) as store:
        store.put(b"a", filled(1))


def test_one_store_has_one_process(store: Store, tmp_path: Path) -> None:
    with pytest.raises(terrace_kv.Busy, match="stop it, or give another directory$"):
        Store(tmp_path, capacity="1MiB", block_bytes=BLOCK)
    assert terrace_kv.Busy.__module__ == "terrace_kv", "the name in a traceback"


def test_a_name_that_is_a_text_is_refused(store: Store) -> None:
    with pytest.raises(TypeError, match="^a key is bytes, not str: 'a'$"):
        store.put("a", filled(1))  # type: ignore[arg-type]


def test_wrong_jobs(store: Store) -> None:
    memory = bytearray(2 * BLOCK)
    with pytest.raises(ValueError, match="1 keys and 2 rows"):
        store.submit_put(1, [b"a"], memory, [0, 1])
    with pytest.raises(InvalidArgument):
        store.submit_put(1, [b"a"], memory, [2])
    with pytest.raises(NotFound):
        store.cancel(1)
    with pytest.raises(ValueError, match="job is -1"):
        store.submit_put(-1, [b"a"], memory, [0])
    with store.register(memory) as region:
        store.submit_get(1, [b"a"], region, [0])
        with pytest.raises(InvalidArgument):
            store.submit_get(1, [b"a"], region, [1])
        with pytest.raises(terrace_kv.Busy):
            store.submit_get(2, [b"a"], region, [0])
        with pytest.raises(terrace_kv.Busy):
            region.close()
        finish(store, 1)
    memory.clear()


def test_a_closed_store_says_so(tmp_path: Path) -> None:
    store = Store(tmp_path, capacity="1MiB", block_bytes=BLOCK)
    store.close()
    store.close()
    for call in (lambda: store.put(b"a", filled(1)), lambda: store.poll(), lambda: store.contains(b"a")):
        with pytest.raises(Stopped, match="closed"):
            call()


def test_a_store_that_is_forgotten_is_closed(tmp_path: Path) -> None:
    store = Store(tmp_path, capacity="1MiB", block_bytes=BLOCK)
    store.put(b"a", filled(1))
    del store
    gc.collect()
    with Store(tmp_path, capacity="1MiB", block_bytes=BLOCK) as again:
        assert again.contains(b"a")


def test_a_log_is_called(tmp_path: Path) -> None:
    messages: list[tuple[int, str]] = []
    with Store(tmp_path, capacity="1MiB", block_bytes=BLOCK, log=lambda level, text: messages.append((level, text))):
        pass
    assert all(isinstance(text, str) for _, text in messages)


# ---- asyncio, threads


def test_asyncio(store: Store) -> None:
    async def serve() -> None:
        await asyncio.gather(*(store.put_async(b"%d" % i, filled(i)) for i in range(20)))
        buffers = [bytearray(BLOCK) for _ in range(20)]
        found = await asyncio.gather(*(store.get_async(b"%d" % i, buffers[i]) for i in range(20)))
        assert all(found)
        assert buffers == [bytearray(filled(i)) for i in range(20)]
        assert await store.get_async(b"missing", bytearray(BLOCK)) is False

    asyncio.run(serve())
    asyncio.run(serve())  # another loop


def test_threads_take_turns(store: Store) -> None:
    from concurrent.futures import ThreadPoolExecutor

    def work(n: int) -> bool:
        store.put(b"%d" % n, filled(n))
        into = bytearray(BLOCK)
        return store.get(b"%d" % n, into) and into == filled(n)

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(60)))


def test_a_store_may_be_closed_while_a_thread_waits(tmp_path: Path) -> None:
    from threading import Semaphore, Thread

    store = Store(tmp_path, capacity="1MiB", block_bytes=BLOCK)
    started = Semaphore(0)

    def wait() -> None:
        started.release()
        with suppress(Stopped):
            store.wait()

    waiting = [Thread(target=wait) for _ in range(4)]
    for thread in waiting:
        thread.start()
        started.acquire()
    store.close()
    for thread in waiting:
        thread.join()


# ---- the program


def test_the_program_runs() -> None:
    program = Path(terrace_kv.__file__).parent / "bin" / "terrace"
    if not program.exists():
        pytest.skip("the package is used from a source tree, without the program")
    said = subprocess.run([sys.executable, "-m", "terrace_kv", "--version"], capture_output=True, text=True, check=True)
    assert said.stdout.split() == ["terrace", terrace_kv.__version__]


def test_the_package_says_whether_it_has_the_cuda_device() -> None:
    program = Path(terrace_kv.__file__).parent / "bin" / "terrace"
    if not program.exists():
        pytest.skip("the package is used from a source tree, without the program")
    said = subprocess.run([str(program), "doctor"], capture_output=True, text=True, check=True)
    assert terrace_kv.cuda_built() == ("this build has no CUDA device" not in said.stdout)


@pytest.mark.parametrize("built", [True, False])
def test_the_file_beside_a_library_says_how_it_was_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, built: bool
) -> None:
    monkeypatch.setenv("TERRACE_LIBRARY", str(tmp_path / "libterrace.so"))
    with pytest.raises(FileNotFoundError, match="libterrace.json"):
        terrace_kv.cuda_built()
    (tmp_path / "libterrace.json").write_text(json.dumps({"cuda": built}))
    assert terrace_kv.cuda_built() is built


def test_a_library_that_is_missing_is_an_import_error() -> None:
    environment = {**os.environ, "TERRACE_LIBRARY": "/nonexistent/libterrace.so"}
    said = subprocess.run([sys.executable, "-c", "import terrace_kv"], env=environment, capture_output=True, text=True)
    assert said.returncode == 1 and "ImportError: terrace_kv: /nonexistent" in said.stderr


def test_stores_share_blocks(tmp_path: Path) -> None:
    shared = {"url": "memory:"}
    with (
        Store(tmp_path / "a", capacity="1MiB", block_bytes=BLOCK, shared=shared) as first,
        Store(tmp_path / "b", capacity="1MiB", block_bytes=BLOCK, shared=shared) as second,
    ):
        names = [b"one", b"two", b"three"]
        for i, name in enumerate(names[:2]):
            first.put(name, filled(i))
        assert second.leading(names) == 0
        assert second.leading_shared(names, timeout=60) == 2
        second.submit_probe(1, names, timeout=60)
        probed = finish(second, 1)
        assert probed.kind is BatchKind.PROBE and probed.succeeded == 2
        into = bytearray(BLOCK)
        assert second.get(b"two", into) and into == filled(1)
        assert not second.get(b"three", into)
        assert second.statistics()["shared_hits"] == 1
        first.put(b"two", filled(1))
        assert first.statistics()["shared_present"] == 1


def test_what_a_dead_shared_store_does_not_do_is_counted(tmp_path: Path) -> None:
    with Store(tmp_path, capacity="1MiB", block_bytes=BLOCK, shared={"url": "redis://127.0.0.1:1"}) as store:
        for i in range(8):
            store.put(bytes([i]), filled(i))
        assert not store.get(b"another", bytearray(BLOCK))
        counts = store.statistics()
    assert counts["puts"] == counts["stored"] == counts["shared_puts"] == 8
    assert counts["shared_not_stored"] + counts["shared_puts_declined"] == 8
    assert counts["shared_gets"] == counts["shared_misses"] + counts["shared_gets_declined"] == 1


def test_a_probe_needs_a_shared_store(store: Store) -> None:
    with pytest.raises(InvalidArgument):
        store.submit_probe(1, [b"one"])
    store.put(b"one", filled(1))
    assert store.leading_shared([b"one", b"two"]) == 1


def test_a_wrong_url_of_a_shared_store_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="redis"):
        Store(tmp_path, capacity="1MiB", block_bytes=BLOCK, shared={"url": "http://cache"})


def test_a_shared_store_is_not_used_after_a_clear_until_the_weights_are_named(tmp_path: Path) -> None:
    with Store(tmp_path, capacity="1MiB", block_bytes=BLOCK, shared={"url": "memory:"}) as store:
        store.put(b"one", b"1" * BLOCK)
        store.clear()
        buffer = bytearray(BLOCK)
        assert not store.get(b"one", buffer)
        assert store.leading_shared([b"one"], timeout=60) == 0
        store.put(b"two", b"2" * BLOCK)
        assert store.statistics()["shared_stored"] == 1
        store.resume_shared("other weights")
        assert not store.get(b"one", buffer)
        store.clear()
        store.resume_shared("")
        assert store.get(b"one", buffer) and buffer == b"1" * BLOCK
        store.clear()
        store.resume_shared()
        assert store.get(b"one", buffer), "the names mean what they meant"


def test_without_a_shared_store_there_is_none_to_resume(store: Store) -> None:
    with pytest.raises(InvalidArgument):
        store.resume_shared()
