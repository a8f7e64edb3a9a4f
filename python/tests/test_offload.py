"""OffloadCache over an emulated device and memory of this process."""

from __future__ import annotations

import asyncio
import ctypes
import hashlib
import mmap
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from terrace_kv import (
    NO_SLOT,
    Busy,
    ChangeKind,
    DeviceRegion,
    HostMemory,
    InvalidArgument,
    JobEvent,
    JobEventKind,
    Keys,
    NotFound,
    OffloadCache,
    State,
    Stopped,
    Target,
    TerraceError,
    WriteBackState,
)

BLOCK = 4096
SLOTS = 16


class Engine:
    """KV memory of an engine on an emulated device."""

    def __init__(self) -> None:
        self.memory = bytearray(SLOTS * BLOCK)
        self._view = (ctypes.c_char * len(self.memory)).from_buffer(self.memory)
        self.region = DeviceRegion(base=ctypes.addressof(self._view), stride=BLOCK, bytes=BLOCK)

    def fill(self, slot: int, value: int) -> None:
        self.memory[slot * BLOCK : (slot + 1) * BLOCK] = bytes([value]) * BLOCK

    def has(self, slot: int, value: int) -> bool:
        return self.memory[slot * BLOCK : (slot + 1) * BLOCK] == bytes([value]) * BLOCK


def configuration(directory: Path) -> str:
    return f"""
key-order = "flat"
write-policy = "none"
[storage]
where = "file:{directory}"
capacity = "1MiB"
[[pool]]
block-bytes = "4KiB"
device-blocks = {SLOTS}
host-blocks = 32
"""


@pytest.fixture
def engine() -> Engine:
    return Engine()


@pytest.fixture
def cache(engine: Engine, tmp_path: Path) -> Iterator[OffloadCache]:
    with OffloadCache(configuration(tmp_path), regions=[engine.region], namespace=b"a model") as opened:
        yield opened


def end_of(cache: OffloadCache, job: int) -> JobEvent:
    while True:
        for event in cache.poll():
            if event.job == job and event.kind is JobEventKind.ENDED:
                return event
        cache.wait(10)


NAMES = [b"chunk %d" % i for i in range(4)]


def test_slots_come_back_elsewhere(cache: OffloadCache, engine: Engine) -> None:
    assert cache.block_bytes() == BLOCK
    for slot in range(4):
        engine.fill(slot, slot + 10)
    cache.store(1, NAMES, slots=[0, 1, 2, 3])
    assert end_of(cache, 1).moved == 4
    assert cache.look_up(NAMES) == [State.HOST] * 4
    assert cache.leading([*NAMES, b"other"]) == 4
    cache.load(2, NAMES, slots=[12, 13, 14, 15])
    assert end_of(cache, 2).moved == 4
    assert all(engine.has(12 + i, 10 + i) for i in range(4))
    assert cache.statistics()["loaded_host"] == 4


def test_memory_instead_of_slots(cache: OffloadCache) -> None:
    memory = [bytearray(bytes([7 + i]) * BLOCK) for i in range(4)]
    cache.store(1, NAMES, memory=memory)
    with pytest.raises(BufferError):
        memory[0].extend(b"more")
    assert end_of(cache, 1).moved == 4
    memory[0].extend(b"more")
    into = [bytearray(BLOCK) for _ in range(4)]
    cache.load(2, NAMES, memory=into)
    assert end_of(cache, 2).moved == 4
    assert [block[0] for block in into] == [7, 8, 9, 10]


def test_a_miss_is_the_result_of_its_block(cache: OffloadCache) -> None:
    cache.load(1, [b"nothing"], slots=[0])
    event = end_of(cache, 1)
    assert event.failed == 1 and event.status == 7


def test_asyncio_waits_for_the_end_of_each_job(cache: OffloadCache, engine: Engine) -> None:
    async def serve() -> None:
        for slot in range(4):
            engine.fill(slot, slot + 1)
            cache.store(slot, [b"%d" % slot], slots=[slot])
        ends = await asyncio.gather(*(cache.ended(job) for job in reversed(range(4))))
        assert [events[-1].job for events in ends] == [3, 2, 1, 0]
        assert all(events[-1].kind is JobEventKind.ENDED and events[-1].moved == 1 for events in ends)
        cache.load(7, [b"2", b"missing"], slots=[9, 10])
        *blocks, end = await cache.ended(7)
        assert sorted((event.block, event.status != 0) for event in blocks) == [(0, False), (1, True)]
        assert (end.moved, end.failed) == (1, 1)
        assert engine.has(9, 3)

    asyncio.run(serve())
    asyncio.run(serve())  # another loop
    assert cache.poll() == []


def test_asyncio_gives_the_events_of_other_jobs_to_poll(cache: OffloadCache, engine: Engine) -> None:
    async def serve() -> None:
        assert cache.reserve(5, cache.keys([b"1"])) != [NO_SLOT]
        cache.load(1, [b"1"], slots=[1])  # waits until job 5 is published
        cache.store(2, [b"2"], slots=[2])
        await cache.ended(2)
        with pytest.raises(NotFound, match="no job 2"):
            await cache.ended(2)
        waiting = asyncio.create_task(cache.ended(1))
        await asyncio.sleep(0)
        waiting.cancel()  # the job goes on, and its events are for poll()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        cache.publish(5)

    asyncio.run(serve())
    assert end_of(cache, 1).moved == 1


def test_a_close_ends_what_asyncio_waits_for(engine: Engine, tmp_path: Path) -> None:
    async def serve() -> None:
        cache = OffloadCache(configuration(tmp_path), regions=[engine.region])
        assert cache.reserve(5, cache.keys([b"a"])) != [NO_SLOT]
        cache.load(1, [b"a"], slots=[1])  # waits for what nobody publishes
        waiting = asyncio.create_task(cache.ended(1))
        await asyncio.sleep(0.01)
        assert not waiting.done()
        cache.publish(5, False)
        cache.close()
        with pytest.raises(Stopped, match="closed"):
            await waiting

    asyncio.run(serve())


def test_asyncio_wakes_for_deadlines(engine: Engine, tmp_path: Path) -> None:
    async def serve() -> None:
        with OffloadCache(configuration(tmp_path), regions=[engine.region]) as cache:
            assert cache.reserve(5, cache.keys([b"a"])) != [NO_SLOT]
            cache.load(1, [b"a"], slots=[1], timeout=0.05)
            events = await asyncio.wait_for(cache.ended(1), 120)
            assert events[-1].failed == 1
            cache.publish(5, False)

    asyncio.run(serve())


def test_a_write_back_job_makes_blocks_durable(engine: Engine, tmp_path: Path) -> None:
    with OffloadCache(configuration(tmp_path), regions=[engine.region]) as cache:
        cache.record_changes()
        engine.fill(0, 5)
        cache.store(1, [b"a"], slots=[0])
        end_of(cache, 1)
        job = cache.start_write_back()
        while cache.write_back(job).state is WriteBackState.RUNNING:
            cache.wait(1)
            cache.poll()
        progress = cache.write_back(job)
        assert progress.state is WriteBackState.DONE and progress.stored == 1 and progress.durable_bytes == BLOCK
        changes = cache.changes()
        assert [(change.kind, change.source) for change in changes] == [
            (ChangeKind.STORED, State.HOST),
            (ChangeKind.STORED, State.STORAGE),
        ]
        assert changes[0].key == cache.keys([b"a"])[0] and changes[0].parent is None
        with pytest.raises(NotFound):
            cache.pause_write_back(job)
    with OffloadCache(configuration(tmp_path), regions=[engine.region]) as cache:
        assert cache.look_up([b"a"]) == [State.STORAGE]
        cache.load(1, [b"a"], slots=[9])
        assert end_of(cache, 1).moved == 1
        assert engine.has(9, 5)


def test_pins_and_resizes(cache: OffloadCache, engine: Engine) -> None:
    cache.store(1, NAMES, slots=[0, 1, 2, 3])
    end_of(cache, 1)
    assert cache.pin(2, NAMES) == 4
    cache.unpin(2)
    with pytest.raises(NotFound):
        cache.unpin(2)
    cache.resize_host(8)
    cache.clear()
    assert cache.look_up(NAMES) == [State.MISS] * 4


def test_prefix_keys_stand_for_what_is_before_them(cache: OffloadCache) -> None:
    keys = cache.prefix_keys([b"a", b"b"])
    other = cache.prefix_keys([b"x", b"b"])
    assert keys[1] != other[1]


def test_token_keys_are_of_full_blocks_and_all_tokens_before(cache: OffloadCache) -> None:
    keys = cache.token_keys(range(40), 16)
    assert len(keys) == 2
    assert list(cache.token_keys([*range(16), 99, *range(17, 48)], 16))[0] == keys[0]
    assert list(cache.token_keys([*range(16), 99, *range(17, 48)], 16))[1] != keys[1]
    assert cache.token_keys([1, *range(1, 32)], 16)[1] != keys[1]
    assert len(cache.token_keys(range(15), 16)) == len(cache.token_keys([], 16)) == 0
    # The message of docs/block-keys.md, by hand.
    root = key_message(b"R", (1, cache.namespace), (2, b""), (5, bytes(8)))
    assert keys[0] == key_message(b"B", (16, root), (17, struct.pack("<16I", *range(16))))
    assert keys[1] == key_message(b"B", (16, keys[0]), (17, struct.pack("<16I", *range(16, 32))))
    assert list(cache.token_keys(bytes(range(32)), 16)) == list(keys)


def key_message(kind: bytes, *fields: tuple[int, bytes]) -> bytes:
    written = b"".join(bytes([tag]) + struct.pack("<Q", len(value)) + value for tag, value in fields)
    return hashlib.sha256(b"TRC\x02" + kind + written).digest()


@pytest.mark.parametrize("wrong", [-1, 1 << 32])
def test_tokens_that_are_none_are_refused(cache: OffloadCache, wrong: int) -> None:
    with pytest.raises(ValueError, match=rf"tokens\[2\] is {wrong}, must be from 0"):
        cache.token_keys([7, 8, wrong], 1)
    with pytest.raises(TypeError):
        cache.token_keys([1.5], 1)  # type: ignore[list-item]


@pytest.mark.parametrize("wrong", [-16, 0, 1 << 32])
def test_blocks_have_tokens(cache: OffloadCache, wrong: int) -> None:
    with pytest.raises(ValueError, match=f"block_tokens is {wrong}, must be from 1"):
        cache.token_keys([1, 2, 3], wrong)


def test_slices_of_keys(cache: OffloadCache, engine: Engine) -> None:
    keys = cache.keys(NAMES)
    each = list(keys)
    assert each == [keys[0], keys[1], keys[2], keys[3]]
    for part in (slice(0, 2), slice(1, None), slice(-1, None), slice(3, 1), slice(0, 9)):
        assert list(keys[part]) == each[part]
    with pytest.raises(ValueError, match="step 2"):
        keys[::2]
    with pytest.raises(IndexError):
        keys[4]
    cache.store(1, keys[1:3], slots=[0, 1])
    assert end_of(cache, 1).moved == 2
    assert cache.look_up(keys) == [State.MISS, State.HOST, State.HOST, State.MISS]


def test_a_configuration_as_a_mapping(tmp_path: Path, engine: Engine) -> None:
    directory = tmp_path / 'with "quotes" and \\ and ü'
    config = {
        "pool": [{"block-bytes": BLOCK, "device-blocks": SLOTS, "host-blocks": 4, "null-block": None}],
        "storage": {"where": f"file:{directory}", "capacity": "1MiB"},
        "key-order": "flat",
    }
    with OffloadCache(config, regions=[engine.region]) as cache:
        assert cache.block_bytes() == BLOCK
        assert cache.statistics()["host_blocks"] == 4
        cache.store(1, [b"a"], slots=[0])
        assert end_of(cache, 1).moved == 1
    with OffloadCache(config, regions=[engine.region]) as cache:
        assert cache.look_up([b"a"]) == [State.STORAGE]


def test_a_mapping_may_have_several_tables_of_a_name() -> None:
    pools = [{"block-bytes": size, "device-blocks": 2, "host-blocks": 2} for size in (BLOCK, "8KiB")]
    with OffloadCache({"pool": pools, "group": [{"pool": 0}, {"pool": 1}], "key-order": "flat"}) as cache:
        assert [cache.block_bytes(pool) for pool in (0, 1)] == [BLOCK, 2 * BLOCK]


def test_a_wrong_mapping_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match=r"^there is no option .* in \[\[pool\]\]; did you mean host-blocks"):
        OffloadCache({"pool": [{"host-block": 3}]})
    with pytest.raises(TypeError, match="tmp.* is no value of a configuration"):
        OffloadCache({"storage": {"where": tmp_path}})


def test_on_an_emulated_device_no_stream_stands_for_the_calling_thread(cache: OffloadCache, engine: Engine) -> None:
    with pytest.raises(InvalidArgument, match="stream must be null"):
        cache.signal(stream=4711)
    with pytest.raises(InvalidArgument, match="has not returned"):
        cache.store(1, NAMES[:1], slots=[0], after=5)
    engine.fill(0, 10)
    cache.store(1, NAMES[:1], slots=[0], after=cache.signal())
    assert end_of(cache, 1).moved == 1
    cache.load(2, NAMES[:1], slots=[7])
    while True:
        try:
            cache.await_stream(2)
            break
        except Busy:
            cache.poll()
        except NotFound:  # the poll has returned its end
            break
    assert engine.has(7, 10)


def test_errors(cache: OffloadCache, engine: Engine, tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="config:2"):
        OffloadCache("\nhost-block = 3\n")
    with pytest.raises(InvalidArgument, match="rank 3"):
        OffloadCache("", regions=[DeviceRegion(base=0, stride=1, bytes=1, rank=3)])
    with pytest.raises(ValueError, match="exactly one"):
        cache.store(1, NAMES)
    with pytest.raises(ValueError, match="moves 4 blocks"):
        cache.store(1, NAMES, slots=[1])
    with pytest.raises(InvalidArgument):
        cache.store(1, NAMES, slots=[0, 0, 0, 99])
    with pytest.raises(ValueError, match="read-only"):
        cache.load(1, [b"a"], memory=[bytes(BLOCK)])
    cache.close()
    with pytest.raises(Stopped):
        cache.poll()


# ---- an engine that moves blocks itself


class Mover:
    """An engine with a mover of its own: Terrace has no device memory, and the rows of this memory as host tier."""

    ROWS = 6

    def __init__(self, directory: Path, **storage: Any) -> None:
        self.memory = mmap.mmap(-1, self.ROWS * BLOCK)
        config = {
            "key-order": "flat",
            "pool": [{"block-bytes": BLOCK, "device-blocks": 1, "host-blocks": 4, "staging-blocks": 2}],
            "storage": {"where": f"file:{directory}", "capacity": "1MiB", **storage},
        }
        self.cache = OffloadCache(config, host_memory=[HostMemory(self.memory, BLOCK)])

    def fill(self, job: int, names: list[bytes], value: int) -> None:
        slots = self.cache.reserve(job, names)
        for slot in slots:
            if slot != NO_SLOT:
                self.memory[slot * BLOCK : (slot + 1) * BLOCK] = bytes([value]) * BLOCK
        self.cache.publish(job)

    def content(self, slot: int) -> bytes:
        return self.memory[slot * BLOCK : (slot + 1) * BLOCK]

    def close(self) -> None:
        self.cache.close()
        self.memory.close()  # raises BufferError if the cache still has it


@pytest.fixture
def mover(tmp_path: Path) -> Iterator[Mover]:
    made = Mover(tmp_path)
    yield made
    made.close()


def test_the_engine_fills_and_reads_rows_of_its_own_memory(mover: Mover) -> None:
    slots = mover.cache.reserve(1, [b"a", b"b"])
    assert sorted(slots) == sorted(set(slots)) and NO_SLOT not in slots
    assert mover.cache.look_up([b"a", b"b", b"c"]) == [State.PENDING, State.PENDING, State.MISS]
    for slot in slots:
        mover.memory[slot * BLOCK : (slot + 1) * BLOCK] = bytes([slot + 1]) * BLOCK
    mover.cache.publish(1)
    pinned = mover.cache.pin_slots(2, [b"b", b"c", b"a"])
    assert pinned == [slots[1], NO_SLOT, slots[0]]
    assert mover.content(pinned[0]) == bytes([slots[1] + 1]) * BLOCK
    mover.cache.unpin(2)
    use = mover.cache.new_use()
    assert mover.cache.new_use() == use + 1
    assert mover.cache.pin_slots(2, [b"a"], use=use) == [slots[0]]
    mover.cache.unpin(2)
    with pytest.raises(TerraceError, match="new_use"):
        mover.cache.pin_slots(2, [b"a"], use=use + 10)
    with pytest.raises(NotFound):
        mover.cache.publish(1)


def test_a_companion_stays_as_long_as_its_block(engine: Engine) -> None:
    pool = {"block-bytes": "4KiB", "device-blocks": SLOTS, "host-blocks": 5}
    with OffloadCache({"key-order": "prefix", "pool": [pool]}, regions=[engine.region]) as cache:

        def store(job: int, keys: Keys, **order: Any) -> None:
            cache.store(job, keys, slots=range(len(keys)), **order)
            assert end_of(cache, job).failed == 0

        prefix = cache.prefix_keys([b"a", b"b"])
        stored, reserved = cache.lone_keys([b"window of b"]), cache.lone_keys([b"state of b"])
        store(1, prefix)
        store(2, stored, beside=prefix)
        assert NO_SLOT not in cache.reserve(3, reserved, beside=prefix)
        cache.publish(3)
        store(4, cache.prefix_keys([b"c"]))
        store(5, cache.prefix_keys([b"d"]))
        assert cache.leading(prefix) == 1
        assert cache.look_up(stored) == cache.look_up(reserved) == [State.HOST]
        store(6, cache.prefix_keys([b"e"]))
        store(7, cache.prefix_keys([b"f"]))
        assert cache.look_up(stored) == cache.look_up(reserved) == [State.MISS]
        assert cache.leading(prefix) == 1
        with pytest.raises(InvalidArgument, match="stand alone"):
            cache.reserve(8, prefix, beside=prefix)


def test_blocks_of_a_session_that_has_ended_go_first(engine: Engine) -> None:
    pool = {"block-bytes": "4KiB", "device-blocks": SLOTS, "host-blocks": 4}
    with OffloadCache({"key-order": "prefix", "pool": [pool]}, regions=[engine.region]) as cache:
        first, second, third = (cache.prefix_keys([name, name + b"2"]) for name in (b"a", b"b", b"c"))
        cache.expect_use(first, 10.0)  # not cached: ignored
        for job, keys in enumerate([first, second], 1):
            cache.store(job, keys, slots=[0, 1])
            assert end_of(cache, job).failed == 0
        cache.expect_use(second, None)
        cache.store(3, third, slots=[0, 1])
        assert end_of(cache, 3).failed == 0
        assert cache.leading(first) == 2, "used less recently"
        assert cache.leading(second) == 0


def test_a_reservation_may_be_given_back(mover: Mover) -> None:
    assert NO_SLOT not in mover.cache.reserve(1, [b"a"])
    mover.cache.publish(1, filled=False)
    assert mover.cache.look_up([b"a"]) == [State.MISS]


def test_fetch_brings_blocks_back_from_storage(mover: Mover) -> None:
    for i in range(6):
        mover.fill(i, [b"%d" % i], i + 1)
    mover.cache.start_write_back()
    while mover.cache.look_up([b"0"]) != [State.STORAGE]:
        mover.cache.wait(1)
        mover.cache.poll()
    mover.cache.fetch(50, [b"0", b"none"])
    mover.cache.drain()
    results = {event.block: event.status for event in mover.cache.poll() if event.kind is JobEventKind.BLOCK}
    assert results == {0: 0, 1: 7}
    (slot,) = mover.cache.pin_slots(51, [b"0"])
    assert mover.content(slot) == bytes([1]) * BLOCK
    mover.cache.unpin(51)


def test_host_memory_that_is_too_small_is_refused(tmp_path: Path) -> None:
    config = {"key-order": "flat", "pool": [{"block-bytes": BLOCK, "device-blocks": 1, "host-blocks": 4}]}
    memory = bytearray(3 * BLOCK)
    with pytest.raises(InvalidArgument, match="4 slots"):
        OffloadCache(config, host_memory=[HostMemory(memory, BLOCK)])
    memory.extend(b"")  # it is not held any more


def find(cache: OffloadCache, names: list[bytes]) -> int:
    while True:
        found, looking = cache.find(names)
        if not looking:
            return found
        cache.wait(1)
        cache.poll()


@pytest.mark.parametrize("order", ["flat", "prefix"])
def test_blocks_of_another_cache_come_through_a_shared_store(engine: Engine, order: str) -> None:
    def opened(writes: str) -> OffloadCache:
        config = {
            "key-order": order,
            "shared": {"url": "memory:", "write-policy": writes, "probe-deadline": "10s"},
            "pool": [{"block-bytes": "4KiB", "device-blocks": SLOTS, "host-blocks": 8, "staging-blocks": 4}],
        }
        return OffloadCache(config, regions=[engine.region], namespace=b"a model")

    names = [b"one", b"two", b"three"]
    with opened("write-through") as first, opened("none") as second:
        keys = first.keys(names) if order == "flat" else first.prefix_keys(names)
        engine.fill(0, 1)
        engine.fill(1, 2)
        first.poll()
        first.record_changes()
        wanted = first.keys(names[:2]) if order == "flat" else first.prefix_keys(names[:2])
        first.store(1, wanted, slots=[0, 1])
        assert end_of(first, 1).failed == 0
        while first.statistics()["shared_written"] < 2:
            first.wait(1)
            first.poll()
        hints = [change for change in first.changes() if change.source is State.SHARED]
        assert [change.kind for change in hints] == [ChangeKind.STORED] * 2
        assert all(change.expires_after == 43200 for change in hints), "half of the expiry"
        second.poll()
        assert second.leading(keys) == 0
        assert find(second, keys) == 2
        second.load(1, wanted, slots=[4, 5], shared=True)
        events = []
        while not events or events[-1].kind is not JobEventKind.ENDED:
            second.wait(1)
            events += second.poll()
        assert [event.source for event in events[:2]] == [State.SHARED] * 2
        assert engine.has(4, 1) and engine.has(5, 2)
        assert second.statistics()["loaded_shared"] == 2
        assert second.leading(keys) == 2
        second.clear(keep_shared=True)
        second.poll()
        assert find(second, keys) == 2
        second.clear()
        assert find(second, keys) == 0, "it is not known for which weights the blocks are"
        assert second.statistics()["shared_off"] == 1
        second.resume_shared()
        second.poll()
        assert find(second, keys) == 2


def test_a_clear_that_waits_is_resumed(cache: OffloadCache, engine: Engine) -> None:
    keys = cache.keys([b"%d" % i for i in range(SLOTS)])
    cache.measure_misses()
    cache.store(1, keys, slots=range(SLOTS))
    cache.drain()
    unknown = cache.misses()["unknown"]
    assert unknown > 0, "one key in four is followed"
    cache.clear(wait=True)
    while cache.statistics()["cleared"] == 1:
        cache.wait(10)
        cache.poll()
    assert cache.statistics()["cleared"] == 2
    with pytest.raises(TerraceError, match="cleared"):
        cache.store(2, keys, slots=range(SLOTS))
    cache.resume()
    assert cache.statistics()["cleared"] == 0
    cache.store(2, keys, slots=range(SLOTS))
    cache.drain()
    assert cache.leading(keys) == SLOTS
    assert cache.misses()["cleared"] == unknown
    assert cache.tree_counts()["host_blocks"] == SLOTS and cache.describe_tree().startswith(f"{SLOTS} blocks")
    assert cache.usage("host").blocks - cache.usage("host").free == SLOTS
    with pytest.raises(InvalidArgument, match="the engine owns the slots"):
        cache.usage("device")


def test_a_clear_without_words_clears_storage_too(engine: Engine, tmp_path: Path) -> None:
    config = {
        "key-order": "flat",
        "storage": {"where": f"file:{tmp_path}", "capacity": "1MiB"},
        "pool": [{"block-bytes": "4KiB", "device-blocks": SLOTS, "host-blocks": 8, "staging-blocks": 4}],
    }
    for keep_storage, left in ((True, State.STORAGE), (False, State.MISS)):
        with OffloadCache(config, regions=[engine.region]) as cache:
            engine.fill(0, 7)
            cache.store(1, [b"a"], slots=[0])
            assert end_of(cache, 1).failed == 0
            job = cache.start_write_back()
            while cache.write_back(job).state is WriteBackState.RUNNING:
                cache.wait(1)
                cache.poll()
            cache.clear(keep_storage=keep_storage)
            assert cache.look_up([b"a"]) == [left]
            while cache.statistics()["erasing"]:
                cache.wait(0.01)
                cache.poll()
        with OffloadCache(config, regions=[engine.region]) as again:
            assert again.look_up([b"a"]) == [left]


def test_a_write_back_job_brings_blocks_to_the_shared_store(engine: Engine) -> None:
    config = {
        "key-order": "flat",
        "shared": {"url": "memory:", "write-policy": "none", "probe-deadline": "10s"},
        "pool": [{"block-bytes": "4KiB", "device-blocks": SLOTS, "host-blocks": 8, "staging-blocks": 4}],
    }
    with OffloadCache(config, regions=[engine.region]) as first, OffloadCache(config, regions=[engine.region]) as second:
        engine.fill(0, 7)
        first.poll()
        first.store(1, [b"a"], slots=[0])
        assert end_of(first, 1).failed == 0
        job = first.start_write_back(target=Target.SHARED)
        while first.write_back(job).state is WriteBackState.RUNNING:
            first.wait(1)
            first.poll()
        assert first.write_back(job).stored == 1 and first.write_back(job).durable_bytes == 0
        second.poll()
        assert find(second, second.keys([b"a"])) == 1
        with pytest.raises(InvalidArgument):
            first.start_write_back()  # there is no storage
        with pytest.raises(InvalidArgument, match="target is 2"):
            first.start_write_back(target=cast(Target, 2))
