"""OffloadCache: whose memory it uses, and for how long: exceptions, threads, wrong numbers, pauses, forks."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from admin_endpoint import ask
from interruption import Interrupted, in_child, interrupted_at

from terrace_kv import DeviceRegion, InvalidArgument, JobEventKind, OffloadCache, Stopped

BLOCK = 4096


def configuration(directory: Path, extra: str = "") -> str:
    return f"""
key-order = "flat"
write-policy = "write-through"
{extra}
[storage]
where = "file:{directory / "store"}"
capacity = "4MiB"
[[pool]]
block-bytes = "4KiB"
device-blocks = 1
host-blocks = 64
"""


@pytest.fixture
def cache(tmp_path: Path) -> Iterator[OffloadCache]:
    with OffloadCache(configuration(tmp_path)) as opened:
        yield opened


def filled(seed: int) -> bytes:
    return bytes([seed % 251 + 1]) * BLOCK


def finish(cache: OffloadCache, job: int) -> bool:
    """Waits for the end of a job. Returns whether it has moved all of its blocks."""
    while True:
        for event in cache.poll():
            if event.job == job and event.kind is JobEventKind.ENDED:
                return event.failed == 0
        cache.wait(10)


@pytest.mark.parametrize("call", ["store", "load"])
def test_an_exception_at_any_line_costs_no_block_and_no_buffer(cache: OffloadCache, call: str) -> None:
    cache.store(1, [b"there"], memory=[filled(0)])
    assert finish(cache, 1)
    line = 0
    while True:
        line += 1
        buffer = bytearray(filled(line))
        with interrupted_at(line) as raised, suppress(Interrupted):
            if call == "store":
                cache.store(1, [b"%d" % line], memory=[buffer])
            else:
                cache.load(1, [b"there"], memory=[buffer])
        cache.drain(120)
        cache.poll()
        buffer.extend(b"x")  # nobody keeps it
        into = bytearray(BLOCK)
        cache.load(1, [b"%d" % line if call == "store" else b"there"], memory=[into])
        if finish(cache, 1):
            assert into == filled(line if call == "store" else 0)
        if not raised:
            break
    assert line > 20


def test_numbers_do_not_wrap_around(cache: OffloadCache, tmp_path: Path) -> None:
    memory = [bytearray(BLOCK)]
    keys = cache.keys([b"a"])
    wrong: list[tuple[str, Callable[[], object]]] = [
        ("pool is 65536", lambda: cache.store(1, keys, memory=memory, pool=65536)),
        ("pool is 65536", lambda: cache.look_up(keys, 65536)),
        ("pool is 65536", lambda: cache.leading(keys, 65536)),
        ("pool is -1", lambda: cache.pin(1, keys, -1)),
        ("pool is 65536", lambda: cache.touch(keys, 65536)),
        ("pool is 65536", lambda: cache.end_request(keys, 1, 65536)),
        ("output_tokens is -1", lambda: cache.end_request(keys, -1)),
        ("pool is 65536", lambda: cache.resize_host(3, 65536)),
        ("blocks is 4294967299", lambda: cache.resize_host(2**32 + 3)),
        (r"slots\[0\] is 4294967296", lambda: cache.store(1, keys, slots=[2**32])),
        ("tenant is 18446744073709551616", lambda: cache.store(1, keys, memory=memory, tenant=2**64)),
        ("tenant is -1", lambda: cache.fetch(1, keys, tenant=-1)),
        ("job is 18446744073709551621", lambda: cache.load(2**64 + 5, keys, memory=memory)),
        ("job is 18446744073709551621", lambda: cache.cancel(2**64 + 5)),
        ("job is 18446744073709551621", lambda: cache.publish(2**64 + 5)),
        ("job is 18446744073709551621", lambda: cache.write_back(2**64 + 5)),
        ("after is 18446744073709551616", lambda: cache.store(1, keys, memory=memory, after=2**64)),
        ("first is 2", lambda: cache.store(1, keys, memory=memory, first=2)),
        ("first is -1", lambda: cache.reserve(1, keys, first=-1)),
        ("budget is 18446744073709551616", lambda: cache.start_write_back(budget=2**64)),
        ("rank is 4294967296", lambda: cache.signal(rank=2**32)),
        ("rank is 4294967296", lambda: OffloadCache("", regions=[DeviceRegion(0, 1, 1, rank=2**32)])),
    ]
    for sentence, call in wrong:
        with pytest.raises(ValueError, match=sentence):
            call()
    assert cache.statistics()["jobs"] == 0
    memory[0].extend(b"x")


def test_a_coroutine_is_woken_although_a_thread_polls(cache: OffloadCache) -> None:
    stop = threading.Event()

    def poll() -> None:
        while not stop.is_set():
            cache.poll()

    async def serve() -> None:
        for job in range(200):
            cache.store(job, [b"%d" % job], memory=[filled(job)])
            with suppress(LookupError):  # the thread has got its end
                assert (await cache.ended(job))[-1].job == job

    thread = threading.Thread(target=poll)
    thread.start()
    try:
        asyncio.run(asyncio.wait_for(serve(), 120))
    finally:
        stop.set()
        thread.join()


def test_a_job_number_is_used_by_one_job_at_a_time(cache: OffloadCache) -> None:
    cache.reserve(5, cache.keys([b"a"]))
    cache.load(1, [b"a"], memory=[bytearray(BLOCK)])  # waits for what nobody publishes
    with pytest.raises(InvalidArgument, match="job 1 is under way"):
        cache.load(1, [b"b"], memory=[bytearray(BLOCK)])
    cache.publish(5, False)


def test_a_drain_ends_a_pause(tmp_path: Path) -> None:
    path = tmp_path / "s"
    admin = f'admin.listen = "unix:{path}"\nadmin.interval = "10ms"'
    with OffloadCache(configuration(tmp_path, admin)) as cache:
        answers: list[tuple[int, object]] = []
        pause = threading.Thread(target=lambda: answers.append(ask(path, "POST", "/v1/pause")))
        pause.start()
        while pause.is_alive():
            cache.poll()
            cache.wait(0.001)
        assert answers[0][0] == 200
        cache.store(1, [b"a"], memory=[filled(1)])
        cache.drain(60)
        assert cache.poll()[-1].moved == 1


def test_a_forked_child_has_a_closed_cache_and_the_parent_goes_on(cache: OffloadCache) -> None:
    buffer = bytearray(filled(1))
    cache.store(1, [b"a"], memory=[buffer])

    def child() -> None:
        assert cache.closed
        for call in (cache.poll, cache.drain, cache.statistics, lambda: cache.load(2, [b"a"], memory=[bytearray(BLOCK)])):
            with pytest.raises(Stopped, match="belongs to process"):
                call()
        cache.close()
        cache.__del__()

    assert in_child(child) == 0
    assert finish(cache, 1)
    into = bytearray(BLOCK)
    cache.load(1, [b"a"], memory=[into])
    assert finish(cache, 1) and into == filled(1)
