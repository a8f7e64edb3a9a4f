"""Cache: the block manager of an engine, with a device in ordinary memory."""

import asyncio
import copy
import inspect
import os
import pickle
import random
import threading
from contextlib import suppress

import numpy
import pytest
from interruption import Interrupted, interrupted_at

from terrace_kv import (
    HIGHEST_PRIORITY,
    Busy,
    Cache,
    Chain,
    DeadlineExceeded,
    DeviceRegion,
    HostMemory,
    InvalidArgument,
    Item,
    NotFound,
    Paused,
    OffloadCache,
    Place,
    Request,
    RequestState,
    Root,
    Scope,
    Source,
    Step,
    Stopped,
    Store,
    TerraceError,
    WriteBackOutcome,
    WriteBackState,
)

UNIT, BLOCK_BYTES, DEVICE_BLOCKS = 4, 4096, 12
ROOT = Root(model_digest=b"a model")


class Engine:
    """Owns the memory, and computes blocks: each byte of a block is made from the tokens up to its end."""

    def __init__(self, tmp_path, **pool):
        self.memory = numpy.zeros((DEVICE_BLOCKS, BLOCK_BYTES), numpy.uint8)
        region = DeviceRegion(self.memory.ctypes.data, BLOCK_BYTES, BLOCK_BYTES)
        config = {
            "loads": "always",  # whatever time the disk of a busy machine takes
            "device": {"reserve-max": 0},
            "storage": {"where": f"file:{tmp_path}", "capacity": "1MiB"},
            "pool": [{"block-bytes": BLOCK_BYTES, "device-blocks": DEVICE_BLOCKS, "host-blocks": 16, **pool}],
        }
        self.cache = Cache(config, regions=[region])

    @staticmethod
    def content(tokens, block):
        return hash(tuple(tokens[: (block + 1) * UNIT])) & 0xFF

    def compute(self, request, tokens, first, last):
        table = request.block_table()
        for block in range(first, last):
            self.memory[table[block]] = self.content(tokens, block)

    def check(self, request, tokens, count):
        table = request.block_table()
        for block in range(count):
            assert (self.memory[table[block]] == self.content(tokens, block)).all(), block

    def serve(self, tokens, **end):
        """Serves a prompt, and checks the blocks that were found. Returns where they were."""
        chain = Chain(ROOT, UNIT, tokens)
        with self.cache.acquire(chain) as request:
            info = request.wait(10)
            found = info.units - info.miss
            self.check(request, tokens, found)
            self.compute(request, tokens, found, info.units)
            request.commit(chain.keys)
            request.release(0, **end)
        return info


@pytest.fixture
def engine(tmp_path):
    made = Engine(tmp_path)
    yield made
    made.cache.close()


def test_a_conversation_is_found_in_every_tier(engine):
    tokens = list(range(18))
    assert engine.serve(tokens).miss == 4
    info = engine.serve(tokens + [7] * 4)
    assert (info.device, info.miss) == (4, 1)
    for other in range(6):
        engine.serve(list(range(1000 * other, 1000 * other + 25)))
    engine.cache.drain()
    found = engine.cache.match(Chain(ROOT, UNIT, tokens))
    assert (found.device + found.host, found.storage, found.total) == (0, 4, 4)
    with engine.cache.acquire(Chain(ROOT, UNIT, tokens)) as request:
        assert request.wait(10).storage == 4
        assert request.hit_sources() == [Source.STORAGE] * 4
        assert 0 < request.info.waited_storage <= request.info.waited
        assert request.info.waited_looking == request.info.waited_shared == 0
        places = engine.cache.find_blocks(Chain(ROOT, UNIT, [*tokens, 1, 2, 3]))
        assert [place.device for place in places[:4]] == list(request.block_table()[:4])
        assert all(place.in_use and place.storage for place in places[:4])
        assert places[4:] == [Place(None, None, False, False)]
        assert not request.released
    assert request.released
    assert engine.cache.statistics()["found_storage"] == 4


def test_a_step_of_many_requests_is_one_call(engine):
    prompts = [[seed * 100 + i for i in range(6)] for seed in range(3)]
    requests = [engine.cache.acquire(Chain(ROOT, UNIT, prompt)) for prompt in prompts]
    step = Step(4, DEVICE_BLOCKS, tokens_max=8)
    step.rows[:3] = [2, 0, 1]
    step.requests[:3] = [request.id for request in requests]
    step.token_counts[:3] = [1, 2, 3]
    step.tokens[:6] = range(6)
    step.computed[:3] = 6
    step.needed[:3] = [0, 0, 12]
    assert engine.cache.step(step, 3)
    assert [len(request.chain) for request in requests] == [7, 8, 9]
    assert step.lengths[0].tolist() == [2, 3, 2, 0]
    for i, request in enumerate(requests):
        table = request.block_table()
        assert step.tables[0][step.rows[i], : len(table)].tolist() == table.tolist()
    assert engine.cache.match(requests[1].chain).device == 1, "six computed tokens fill one block"
    expected = Chain(ROOT, UNIT, prompts[1] + [1, 2])
    assert list(requests[1].chain.keys) == list(expected.keys)

    # There are 5 slots left. One request needs more, the others are served.
    step.token_counts[:3] = 0
    step.computed[:3] = [4, 8, 4]
    step.needed[:3] = [48, 0, 0]
    assert not engine.cache.step(step, 3)
    assert list(step.failures(3)) == [0] and "room" in step.failures(3)[0]
    assert engine.cache.match(requests[1].chain).device == 2
    requests[2].release(0)
    step.requests[2] = 99
    step.needed[:3] = 0
    assert not engine.cache.step(step, 3)
    assert list(step.failures(3)) == [2]
    with pytest.raises(ValueError, match="count is 9, must be from 0 to the rows of the step, 4"):
        engine.cache.step(step, 9)
    with pytest.raises(InvalidArgument, match="step->written is 7"):
        engine.cache.step(step, 2, written=7)
    assert engine.cache.step(step, 0)
    for request in requests:
        request.release(0)


def test_a_row_never_has_the_blocks_of_another_request(engine):
    step = Step(3, DEVICE_BLOCKS)
    requests = [engine.cache.acquire(Chain(ROOT, UNIT, range(seed, seed + 6)), request=seed) for seed in (100, 200)]
    step.requests[:2] = 100, 200
    step.rows[:2] = 2
    assert not engine.cache.step(step, 2) and list(step.failures(2)) == [1], "two requests are in one row"
    assert step.sentence.startswith("row 2 of the table of group 0 has the entries of another request; set its length to 0")
    assert step.tables[0][2, :2].tolist() == requests[0].block_table().tolist()
    requests.pop(0).release(0)
    with engine.cache.acquire(Chain(ROOT, UNIT, range(300, 306)), request=100) as request:
        step.requests[:2] = 100, 200
        step.rows[:2] = 2, 0
        assert not engine.cache.step(step, 2) and list(step.failures(2)) == [0], "the id is the same, the request is not"
        step.lengths[0][2] = 0
        assert engine.cache.step(step, 2)
        assert step.tables[0][2, :2].tolist() == request.block_table().tolist()
    requests[0].release(0)


def test_room_and_the_slots_that_were_added():
    """Without memory of an engine, a device of a byte a block gives out numbers of slots. Slot 0 is the null block."""
    config = {"pool": [{"block-bytes": 1, "device-blocks": 10, "host-blocks": 0, "null-block": True}], "device": {"reserve-max": 0}}
    with Cache(config) as cache:
        chain = Chain(ROOT, UNIT, range(3 * UNIT))
        assert cache.device_room() == 9
        with cache.acquire(chain.keys) as request:
            assert request.slots_from(0) == [1, 2, 3] and cache.device_room() == 6
            request.extend(2)
            assert request.slots_from(3) == [4, 5] and request.slots_from(5) == [] and request.slots_from(9) == []
            request.commit(chain.keys)
            request.release(0)
        assert cache.device_room() == 9, "cached blocks can be evicted"


def test_what_fits_is_known_before(engine):
    assert engine.cache.blocks_for(7) == 7, "without groups, hash units"
    engine.serve(list(range(16)))
    engine.cache.drain()
    with engine.cache.acquire(Chain(ROOT, UNIT, range(100, 108))) as request:
        usage = engine.cache.usage("device")
        assert (usage.blocks, usage.free, usage.evictable, usage.promised) == (DEVICE_BLOCKS, DEVICE_BLOCKS - 6, 4, 0)
        assert usage.available == engine.cache.device_room() == DEVICE_BLOCKS - 2
        assert usage.share_used == pytest.approx(2 / DEVICE_BLOCKS)
        request.release(0)
    assert engine.cache.usage("host").free == 16
    with pytest.raises(ValueError, match="tier is 'storage'"):
        engine.cache.usage("storage")
    with pytest.raises(InvalidArgument, match="there is no pool 3"):
        engine.cache.usage("host", 3)
    with pytest.raises(InvalidArgument, match="there is no group 1"):
        engine.cache.blocks_for(7, 1)


def test_a_request_says_what_it_takes(engine):
    engine.serve(list(range(16)))
    engine.cache.drain()

    def found(**wanted):
        with engine.cache.acquire(Chain(ROOT, UNIT, range(24)), **wanted) as request:
            info = request.wait(10)
            request.release(0)
            return info.device, info.external, info.miss

    assert found() == (4, 0, 2)
    assert found(hit_units_max=1) == (1, 0, 5)
    assert found(drop_last_hit=True) == (3, 0, 3)
    assert found(external_units=1) == (4, 1, 1)
    with pytest.raises(Busy):
        engine.cache.acquire(Chain(ROOT, UNIT, range(24)), new_units_max=0, room_left=engine.cache.device_room() - 3)
    with engine.cache.acquire(Chain(ROOT, UNIT, range(24)), new_units_max=1) as request:
        assert len(request.block_table()) == 5
        request.release(0)
    with engine.cache.acquire(Chain(ROOT, UNIT, range(16))) as request:
        assert request.info.device == 3, "the last token is computed, because the engine needs its result"
        request.release(0)
    engine.cache.clear(keep_storage=True)
    assert engine.cache.match(Chain(ROOT, UNIT, range(16)), farthest=Source.HOST).total == 0
    assert found(farthest=Source.HOST) == (0, 0, 6)


def test_shards_of_one_device_have_slots_of_their_own():
    pools = [{"block-bytes": 64, "device-blocks": 4, "host-blocks": 0, "first-slot": first} for first in (0, 4)]
    chain = Chain(ROOT, UNIT, range(3 * UNIT))
    with Cache({"pool": [pools[0]]}) as one, Cache({"pool": [pools[1]]}) as other:
        with one.acquire(chain.keys) as first, other.acquire(chain.keys) as second:
            assert first.slots_from(0) == [0, 1, 2] and second.slots_from(0) == [4, 5, 6]


def test_an_instance_that_caches_nothing_stores_for_the_next(tmp_path):
    storage = {"where": f"file:{tmp_path}", "capacity": "1MiB"}
    pool = {"block-bytes": BLOCK_BYTES, "device-blocks": DEVICE_BLOCKS, "host-blocks": 0}
    chain = Chain(ROOT, UNIT, range(16))
    with Cache({"caching": False, "store-uncached": True, "storage": storage, "pool": [pool]}) as cache:
        with cache.acquire(chain.keys) as request:
            request.commit(chain.keys)
            request.release(0)
        cache.drain()
        assert cache.match(chain).total == 0
    with Cache({"storage": storage, "pool": [pool]}) as cache:
        assert cache.match(chain).storage == 4


def test_the_device_tier_becomes_smaller_and_larger(engine):
    engine.serve(list(range(16)))
    engine.cache.resize_device(6)
    engine.cache.drain()
    assert engine.cache.usage("device").blocks == 6
    engine.cache.resize_device(DEVICE_BLOCKS)
    engine.cache.drain()
    assert engine.cache.usage("device").blocks == DEVICE_BLOCKS
    assert engine.serve(list(range(17))).device == 4


def test_blocks_without_a_key_are_the_end_of_the_table(engine):
    with engine.cache.acquire(Chain(ROOT, UNIT, range(18)), units=6) as request:
        request.commit(request.chain.keys)
        assert request.info.committed_units == 4
        assert request.slots_from(4) == request.block_table().tolist()[4:] and len(request.slots_from(4)) == 2
        request.release(0)


def test_one_block_is_found_by_its_key_alone(engine):
    chain = Chain(ROOT, UNIT, range(16))
    engine.serve(list(range(16)))
    engine.cache.drain()
    assert [engine.cache.find_block(key) for key in chain.keys] == engine.cache.find_blocks(chain)
    assert engine.cache.find_block(chain.keys[3]).storage
    assert engine.cache.find_block(bytes(32)) == Place(None, None, False, False)
    with pytest.raises(ValueError, match="the key has 31 bytes, must have 32"):
        engine.cache.find_block(bytes(31))


def test_the_tree_counts_and_prints_itself(engine):
    engine.serve(list(range(16)))
    engine.serve(list(range(8)) + [77] * 8)
    engine.cache.drain()
    counts = engine.cache.tree_counts()
    assert (counts["blocks"], counts["device_blocks"], counts["device_leaves"], counts["storage_blocks"]) == (6, 6, 2, 6)
    with engine.cache.acquire(Chain(ROOT, UNIT, range(16))) as request:
        assert engine.cache.tree_counts()["device_pinned"] == 3
        request.release(0)
    text = engine.cache.describe_tree()
    assert text.startswith("6 blocks in 3 nodes; device 6, host 0, storage 6\n") and text.count("\n") == 4
    assert "and 2 more nodes" in engine.cache.describe_tree(1)


def test_misses_are_told_by_reason(engine):
    """One key in four is followed. All blocks fit the device."""
    prompts = [[seed] * (UNIT + 1) for seed in range(DEVICE_BLOCKS - 2)]
    engine.cache.measure_misses()
    for prompt in prompts:
        engine.serve(prompt)
    unknown = engine.cache.misses()["unknown"]
    assert unknown > 0 and sum(engine.cache.misses().values()) == unknown
    engine.cache.clear()
    for prompt in prompts:
        engine.serve(prompt)
    assert engine.cache.misses()["cleared"] == unknown


def test_a_write_back_job_says_what_became_of_each_block(engine):
    engine.cache.set("write-policy", "none")
    chain = Chain(ROOT, UNIT, range(16))
    engine.serve(list(range(16)))
    job = engine.cache.start_write_back(Scope.PREFIX, keys=chain.keys)
    engine.cache.drain()
    assert engine.cache.write_back(job).state is WriteBackState.DONE
    results = engine.cache.write_back_results(job)
    assert [(result.key, result.outcome, result.status) for result in results] == [
        (key, WriteBackOutcome.STORED, 0) for key in chain.keys
    ]
    assert engine.cache.write_back_results(job) == []
    with pytest.raises(NotFound):
        engine.cache.write_back_results(99)


def test_a_clear_waits_for_live_requests(engine):
    tokens = list(range(17))
    engine.serve(tokens)
    request = engine.cache.acquire(Chain(ROOT, UNIT, tokens))
    request.wait(10)
    engine.cache.clear(wait=True)
    assert engine.cache.statistics()["cleared"] == 1
    with pytest.raises(TerraceError, match="cleared"):
        engine.cache.acquire(Chain(ROOT, UNIT, [1]))
    with pytest.raises(TerraceError, match="cleared"):
        engine.cache.resume()
    engine.check(request, tokens, 4)
    request.release(0)
    engine.cache.drain()
    assert engine.cache.statistics()["cleared"] == 2
    engine.cache.resume()
    assert engine.serve(tokens).miss == 4


def test_transfers_under_way_are_counted(engine):
    engine.cache.pause_idle_service(60)
    engine.serve(list(range(16)))
    engine.cache.end_step()
    assert engine.cache.statistics()["transfers_in_flight"] > 0, "writes to storage, until a poll collects them"
    engine.cache.drain()
    assert engine.cache.statistics()["transfers_in_flight"] == 0


def test_a_schedule_of_random_requests_serves_the_right_bytes(tmp_path):
    engine = Engine(tmp_path)
    choose = random.Random(7)
    step = Step(4, DEVICE_BLOCKS)
    for _round in range(60):
        running = []
        for row in range(choose.randint(1, 3)):
            tokens = [choose.randint(0, 1) for _ in range(choose.randint(1, 14))]
            chain = Chain(ROOT, UNIT, numpy.array(tokens, choose.choice([numpy.int64, numpy.uint32, numpy.int32])))
            try:
                request = engine.cache.acquire(chain, timeout=10)
            except Busy:
                continue
            try:
                info = request.wait(10)
            except Busy:  # what it relied on has gone, and there is no room to plan it again
                request.release(0)
                continue
            found = info.device + info.host + info.storage
            engine.check(request, tokens, found)
            engine.compute(request, tokens, found, len(request.block_table()))
            running.append((request, tokens))
            step.lengths[0][len(running) - 1] = 0
        for _step in range(choose.randint(0, 6)):
            for i, (request, tokens) in enumerate(running):
                step.requests[i] = request.id
                step.computed[i] = len(tokens)
                tokens.append(choose.randint(0, 1))
                step.token_counts[i], step.tokens[i] = 1, tokens[-1]
            if not engine.cache.step(step, len(running)):  # there is no room: the engine gives up all of them
                for request, _tokens in running:
                    request.release(0)
                running.clear()
            for request, tokens in running:
                full = len(tokens) // UNIT
                engine.compute(request, tokens, max(0, full - 1), full)
        engine.cache.end_step()
        for request, _tokens in running:
            request.release(0, output_tokens=3, ended=choose.random() < 0.3)
    statistics = engine.cache.statistics()
    assert statistics["found_device"] and statistics["found_host"] and statistics["live"] == 0
    engine.cache.close()


def test_an_event_loop_waits_for_a_request(engine):
    tokens = list(range(17))
    engine.serve(tokens)
    engine.cache.drain()
    engine.cache.clear(keep_storage=True)

    async def serve():
        with engine.cache.acquire(Chain(ROOT, UNIT, tokens)) as request:
            info = await asyncio.wait_for(request.ready(), 10)
            assert info.state is RequestState.READY
            engine.check(request, tokens, 4)
            return info

    assert asyncio.run(serve()).storage == 4


def test_one_request_cannot_have_what_another_holds(engine):
    first = engine.cache.acquire(Chain(ROOT, UNIT, range(40)))
    with pytest.raises(Busy):
        engine.cache.acquire(Chain(ROOT, UNIT, range(100, 140)))
    with pytest.raises(InvalidArgument):
        engine.cache.acquire(Chain(ROOT, UNIT, range(200)))
    with pytest.raises(InvalidArgument, match="request 1 is alive"):
        engine.cache.acquire(Chain(ROOT, UNIT, range(4)), request=1)
    with pytest.raises(Busy, match="chain"):
        engine.cache.acquire(first.chain)
    with pytest.raises(InvalidArgument, match="larger than the whole pool"):
        first.extend(4)
    first.release()
    first.release()
    with engine.cache.acquire(Chain(ROOT, UNIT, range(4)), request=first.id + 1) as named:
        with engine.cache.acquire(Chain(ROOT, UNIT, range(4))) as other:
            assert other.id != named.id
    assert engine.cache.statistics()["live"] == 0
    with pytest.raises(TerraceError):
        first.block_table()
    with pytest.raises(ValueError, match="returns_in"):
        first.release(0, ended=True, returns_in=3)


def test_a_request_that_waits_too_long_says_so(engine):
    engine.serve(list(range(17)))
    engine.cache.drain()
    engine.cache.clear(keep_storage=True)
    engine.cache.pause_transfers()
    request = engine.cache.acquire(Chain(ROOT, UNIT, range(17)))
    with pytest.raises(DeadlineExceeded):
        request.wait(0.02)
    engine.cache.clear()
    engine.cache.resume_transfers()
    with pytest.raises(TerraceError, match="has failed: .*clear"):
        request.wait(10)
    request.release()


def test_hints_decide_what_goes_first(engine):
    engine.cache.set("write-policy", "none")
    kept, ended = list(range(17)), list(range(100, 109))
    engine.serve(kept)
    engine.serve(ended, ended=True)
    retention = engine.cache.retain(Chain(ROOT, UNIT, kept).keys, HIGHEST_PRIORITY)
    pin = engine.cache.pin_prefix(Chain(ROOT, UNIT, kept).keys, 100)
    engine.serve(list(range(300, 329)))
    assert engine.cache.match(Chain(ROOT, UNIT, kept)).device == 4
    assert engine.cache.match(Chain(ROOT, UNIT, ended)).device < 2
    engine.cache.unpin_prefix(pin)
    engine.cache.end_retention(retention)
    engine.cache.expect_use(Chain(ROOT, UNIT, kept), 12.5)
    engine.cache.expect_use(Chain(ROOT, UNIT, kept), None)
    with pytest.raises(NotFound):
        engine.cache.unpin_prefix(pin)
    with pytest.raises(InvalidArgument, match="priority is 99"):
        engine.cache.retain(Chain(ROOT, UNIT, kept).keys, 99)


def test_a_tenant_keeps_no_more_than_its_quota(engine):
    salted = Root(model_digest=b"a model", tenant_salt="tenant")
    chain = Chain(salted, UNIT, range(24))
    assert chain.tenant != Chain(ROOT, UNIT).tenant
    engine.cache.set_quota(chain.tenant, device_blocks=2)
    with engine.cache.acquire(chain) as request:
        request.commit(chain.keys)
        request.release(0)
    engine.serve(list(range(500, 540)))
    assert engine.cache.tenant_blocks(chain.tenant, "device") == 2
    engine.cache.remove_quota(chain.tenant)
    with pytest.raises(NotFound):
        engine.cache.tenant_blocks(chain.tenant, "device")
    with pytest.raises(ValueError, match="tier is 'disk'"):
        engine.cache.tenant_blocks(chain.tenant, "disk")


@pytest.mark.parametrize("call", [Request.wait, Cache.drain, Cache.close, OffloadCache.drain, Store.drain, Store.close])
def test_no_wait_is_without_end_unless_its_caller_wants_that(call):
    assert inspect.signature(call).parameters["timeout"].default == 300


def test_blocks_are_prefetched_and_leave_by_name(engine):
    tokens = list(range(17))
    engine.serve(tokens)
    engine.cache.drain()
    engine.cache.clear(keep_storage=True)
    chain = Chain(ROOT, UNIT, tokens)
    prefetch = engine.cache.prefetch(chain, farthest=Source.STORAGE)
    engine.cache.drain()
    assert not engine.cache.prefetching(prefetch)
    assert engine.cache.match(chain).host == 4
    with pytest.raises(NotFound):
        engine.cache.cancel_prefetch(prefetch)
    with engine.cache.acquire(chain) as request:
        request.wait(10)
        slot = int(request.block_table()[0])
        assert engine.cache.evict([slot]) == (0, [slot])
        assert engine.cache.common_prefix() == 4
        request.release(0)
    assert engine.cache.evict([slot])[0] == 4
    assert engine.cache.match(chain).total == 0
    engine.serve(tokens)
    engine.cache.drain()  # a block that is being stored is not evicted
    engine.cache.make_room(10)
    engine.cache.drain()
    assert engine.cache.statistics()["device_free"] == 10
    with pytest.raises(ValueError, match="tier is 'disk'"):
        engine.cache.make_room(1, "disk")
    engine.serve(tokens)
    engine.cache.drain()
    assert engine.cache.drop(chain.keys) == 4


def test_an_engine_that_sleeps_moves_its_memory(engine):
    tokens = list(range(17))
    engine.serve(tokens)
    assert engine.cache.checkpoint(30) == 4
    with engine.cache.acquire(Chain(ROOT, UNIT, [1])) as request:
        with pytest.raises(Busy):
            engine.cache.reset(wait=True)
        request.release(0)
    engine.cache.reset(keep_storage=True, release_host=True)
    assert engine.cache.statistics()["host_blocks"] == 0
    old, engine.memory = engine.memory, numpy.zeros_like(engine.memory)
    engine.cache.relocate([DeviceRegion(engine.memory.ctypes.data, BLOCK_BYTES, BLOCK_BYTES)])
    engine.cache.resume()
    assert engine.cache.statistics()["host_blocks"] == 16
    old[:] = 0xEE
    assert engine.serve(tokens).storage == 4


def test_changes_name_the_device(engine):
    engine.cache.record_changes()
    engine.serve(list(range(9)))
    engine.cache.drain()
    changes = engine.cache.changes()
    assert [change.depth for change in changes if change.source is Source.DEVICE] == [0, 1]
    assert {change.source for change in changes} == {Source.DEVICE, Source.STORAGE}
    assert changes[1].parent == changes[0].key


def test_prompts_are_lists_and_arrays():
    expected = list(Chain(ROOT, UNIT, range(12)).keys)
    for tokens in (list(range(12)), numpy.arange(12), numpy.arange(24, dtype=numpy.uint32)[:12], numpy.arange(0, 24)[::2] // 2):
        assert list(Chain(ROOT, UNIT, tokens).keys) == expected
    for wrong, error in (([-1], ValueError), (numpy.array([3, -1]), ValueError), ([1 << 32], ValueError), ([0.5], TypeError)):
        with pytest.raises(error):
            Chain(ROOT, UNIT, wrong)
    with pytest.raises(TypeError, match="float64 with 1 dimensions"):
        Chain(ROOT, UNIT, numpy.array([0.5]))
    with pytest.raises(InvalidArgument, match="block_tokens is 0"):
        Chain(ROOT, 0)
    pictured = Chain(ROOT, UNIT, range(16), [Item(5, 6, b"an image")])
    assert pictured.keys[0] == expected[0] and pictured.keys[1] != expected[1]
    assert [pictured.before_media(blocks) for blocks in range(5)] == [0, 1, 1, 3, 4]
    binary = Item(5, 6, b"an\0image")
    assert [Chain(ROOT, UNIT, items=[binary]).media_across(blocks) for blocks in range(4)] == [None, None, binary, None]
    with pytest.raises(InvalidArgument):
        pictured.add_items([Item(2, 1, b"late")])
    assert list(Chain(Root(adapter="lora"), UNIT, range(4)).keys) != list(Chain(Root(), UNIT, range(4)).keys)


def test_threads_share_a_cache(engine):
    def serve(seed):
        for _ in range(20):
            tokens = [seed] * 9
            chain = Chain(ROOT, UNIT, tokens)
            with engine.cache.acquire(chain) as request:
                request.wait(10)
                request.commit(chain.keys)
                request.release(0)

    threads = [threading.Thread(target=serve, args=(seed,)) for seed in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert engine.cache.statistics()["requests"] == 60


def test_a_closed_cache_and_a_child_say_so(tmp_path):
    engine = Engine(tmp_path)
    request = engine.cache.acquire(Chain(ROOT, UNIT, range(4)))
    child = os.fork()
    if child == 0:
        try:
            engine.cache.poll()
        except Stopped:
            os._exit(0 if request.released else 2)
        os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    engine.cache.close(10)
    assert request.released
    request.release()
    with pytest.raises(Stopped):
        engine.cache.acquire(Chain(ROOT, UNIT, range(4)))
    with pytest.raises(InvalidArgument, match="device-blockz"):
        Cache({"pool": [{"device-blockz": 3}]})


@pytest.mark.parametrize("field", ["tenant_salt", "adapter"])
def test_a_name_cannot_end_before_its_end(field):
    """A string of C ends at a NUL, so two tenants would have the same keys."""
    with pytest.raises(ValueError, match=f"{field} has a NUL character: 'a"):
        Chain(Root(**{field: "a\0b"}), UNIT, range(UNIT))


def test_options_cannot_end_before_their_end(engine):
    with pytest.raises(ValueError, match="value has a NUL character"):
        engine.cache.set("policy", "lru\0adaptive")
    with pytest.raises(ValueError, match="config has a NUL character"):
        Cache("[[pool]]\n\0")


def test_what_owns_a_handle_is_not_copied(engine):
    for each in (Chain(ROOT, UNIT, range(9)), engine.cache):
        for way in (copy.copy, copy.deepcopy, pickle.dumps):
            with pytest.raises(TypeError, match=f"a {type(each).__name__} cannot be copied or pickled"):
                way(each)
    assert engine.serve(list(range(9))).miss == 2


@pytest.mark.parametrize("seconds", [1e300, float("inf")])
def test_any_time_is_a_time(engine, seconds):
    with engine.cache.acquire(Chain(ROOT, UNIT, range(9))) as request:
        assert request.wait(seconds).miss == 2
        request.release(0, returns_in=seconds)
    assert engine.serve(list(range(9))).miss == 2


def test_a_wait_ends_when_another_task_releases_the_request(engine):
    engine.serve(list(range(17)))
    engine.cache.drain()
    engine.cache.clear(keep_storage=True)
    engine.cache.pause_transfers()

    async def serve():
        request = engine.cache.acquire(Chain(ROOT, UNIT, range(17)))
        waiting = asyncio.create_task(request.ready())
        await asyncio.sleep(0)
        request.release(0)
        with pytest.raises(TerraceError, match="there is no request"):
            await asyncio.wait_for(waiting, 60)

    asyncio.run(serve())


def test_freed_slots_of_the_engine_are_not_overwritten_behind_its_back():
    memory = numpy.zeros((DEVICE_BLOCKS, BLOCK_BYTES), numpy.uint8)
    config = {"poison": True, "pool": [{"block-bytes": BLOCK_BYTES, "device-blocks": DEVICE_BLOCKS, "host-blocks": 0}]}
    with pytest.raises(InvalidArgument, match="poison"):
        Cache(config, regions=[DeviceRegion(memory.ctypes.data, BLOCK_BYTES, BLOCK_BYTES)])


def test_a_step_touches_nothing_outside_of_its_arrays(engine):
    with engine.cache.acquire(Chain(ROOT, UNIT, range(18))) as request:
        step = Step(2, DEVICE_BLOCKS)
        step.requests[0] = request.id
        step.token_counts[0] = 28
        with pytest.raises(InvalidArgument, match="the sum of step->token_counts is 28, and token_capacity is 2"):
            engine.cache.step(step, 1)
        step.token_counts[0] = 1
        step.rows[0] = 2
        assert not engine.cache.step(step, 1)
        assert step.failures(1) == {0: "invalid argument"}
        assert step.sentence == "row 2 of the table of group 0 does not exist: row_count is 2"
        assert len(request.chain) == 18
        with pytest.raises(AttributeError, match="tokens cannot be replaced"):
            step.tokens = numpy.zeros(2, numpy.uint32)
        with pytest.raises(AttributeError, match="tokens cannot be deleted"):
            del step.tokens
        for arrays in (step.tables, step.lengths):
            with pytest.raises(TypeError, match="does not support item assignment"):
                arrays[0] = arrays[0].copy()
        arrays = [value for value in vars(step).values() if isinstance(value, numpy.ndarray)]
        assert len(arrays) == 8
        for array in [*arrays, step.tables[0], step.lengths[0]]:
            with pytest.raises(ValueError, match="cannot resize this array"):
                array.resize(1 << 20, refcheck=False)
        step.requests.dtype = numpy.uint8
        with pytest.raises(ValueError, match="count is 3, must be from 0 to the rows of the step, 2"):
            engine.cache.step(step, 3)
        step.requests.dtype = numpy.uint64
        step.computed += 1
        assert step.computed.tolist() == [1, 1]
        step.computed -= 1
        with pytest.raises(ValueError, match="written is 18446744073709551616"):
            engine.cache.step(step, 1, written=2**64)
        with pytest.raises(ValueError, match="written is -1"):
            request.commit(request.chain.keys, -1)
        with pytest.raises(ValueError, match="block is -3"):
            request.slots_from(-3)
        with pytest.raises(InvalidArgument, match="there is no group 5"):
            request.slots_from(0, 5)


def test_a_released_request_is_not_one_with_the_same_id(engine):
    first = engine.cache.acquire(Chain(ROOT, UNIT, range(8)), request=77)
    first.release(0)
    with engine.cache.acquire(Chain(ROOT, UNIT, range(100, 112)), request=77) as second:
        assert first.released and not second.released
        with pytest.raises(TerraceError, match="request 77 was released"):
            first.block_table()
        first.release(0)
        assert not second.released


def test_blocks_are_not_written_to_read_only_memory():
    config = {"pool": [{"block-bytes": BLOCK_BYTES, "device-blocks": DEVICE_BLOCKS, "host-blocks": 8}]}
    with pytest.raises(ValueError, match="read-only"):
        Cache(config, host_memory=[HostMemory(bytes(8 * BLOCK_BYTES), BLOCK_BYTES)])


def test_host_memory_of_the_caller_has_so_many_blocks():
    memory = numpy.zeros((12, BLOCK_BYTES), numpy.uint8)
    pool = {"block-bytes": BLOCK_BYTES, "device-blocks": DEVICE_BLOCKS, "host-blocks": 8, "staging-blocks": 4}
    with Cache({"pool": [pool]}, host_memory=[HostMemory(memory, BLOCK_BYTES)]) as cache:
        with pytest.raises(TerraceError, match="fewer rows"):
            cache.resize_host(40)
        assert cache.statistics()["host_blocks"] == 8


def test_tokens_may_come_from_a_generator():
    assert len(Chain(ROOT, UNIT, (token for token in range(9)))) == 9
    with pytest.raises(ValueError, match=r"tokens\[1\] is 4294967296"):
        Chain(ROOT, UNIT, (token for token in (1, 2**32)))


def test_what_is_wrong_is_named(engine):
    for call, says in [
        (lambda: engine.cache.set("polcy", "lru"), 'there is no option "polcy"'),
        (lambda: engine.cache.set("policy", "own"), "no such eviction policy here"),
    ]:
        with pytest.raises(InvalidArgument, match=says):
            call()
    with pytest.raises(NotFound, match="there is no write-back job 9"):
        engine.cache.write_back(9)


def test_events_of_a_request_end_with_its_wait_and_with_it(engine):
    waiting = list(range(17))
    engine.serve(waiting)
    engine.cache.drain()
    for ready in (True, False):  # its wait tells, or its end
        engine.cache.clear(keep_storage=True)
        request = engine.cache.acquire(Chain(ROOT, UNIT, waiting))
        if ready:
            assert request.wait(10).storage == 4
        else:
            engine.cache.drain(10)
            request.release(0)
        assert engine.cache._events == {} and engine.cache.poll() == []
        request.release(0)
    engine.cache.clear(keep_storage=True)
    with engine.cache.acquire(Chain(ROOT, UNIT, waiting), by_layer=True) as request:
        engine.cache.drain(10)
        events = engine.cache.poll()
        assert {event.request for event in events} == {request.id} and events[-1].layers == 0
        assert engine.cache.poll() == []


def test_a_request_that_nobody_has_is_released(engine):
    engine.cache.acquire(Chain(ROOT, UNIT, range(9)), request=5)
    assert engine.cache.statistics()["live"] == 1
    with engine.cache.acquire(Chain(ROOT, UNIT, range(9)), request=5):
        engine.cache.poll()
        assert engine.cache.statistics()["live"] == 1, "the one that has the id now"
    engine.cache.acquire(Chain(ROOT, UNIT, range(9)))
    engine.cache.poll()
    assert engine.cache.statistics()["live"] == 0


def test_an_exception_at_any_line_costs_no_block(engine):
    tokens = list(range(17))
    chain = Chain(ROOT, UNIT, tokens)
    engine.serve(tokens)
    line = 0
    while True:
        line += 1
        engine.cache.drain(10)
        with interrupted_at(line) as raised, suppress(Interrupted):
            with engine.cache.acquire(chain, request=9) as request:
                request.wait(10)
                request.commit(chain.keys)
                request.release(0)
                request.release(0)
        request = None
        engine.cache.poll()
        assert engine.cache.statistics()["live"] == 0, raised
        assert engine.cache.device_room() == DEVICE_BLOCKS and engine.cache._live == engine.cache._events == {}
        if not raised:
            break
    assert line > 40


@pytest.mark.parametrize("seconds", [-1, float("-inf"), float("nan")])
def test_what_is_no_time_is_refused(engine, seconds):
    chain = Chain(ROOT, UNIT, range(9))
    with engine.cache.acquire(chain) as request:
        request.commit(chain.keys)
        for name, call in [
            ("timeout", lambda: engine.cache.acquire(Chain(ROOT, UNIT, range(9)), timeout=seconds)),
            ("timeout", lambda: request.wait(seconds)),
            ("timeout", lambda: engine.cache.wait(seconds)),
            ("timeout", lambda: engine.cache.drain(seconds)),
            ("timeout", lambda: engine.cache.close(seconds)),
            ("timeout", lambda: engine.cache.prefetch(chain, timeout=seconds)),
            ("timeout", lambda: engine.cache.start_write_back(timeout=seconds)),
            ("unused_for", lambda: engine.cache.start_write_back(unused_for=seconds)),
            ("returns_in", lambda: request.release(returns_in=seconds)),
            ("seconds", lambda: engine.cache.expect_use(chain, seconds)),
            ("seconds", lambda: engine.cache.pin_prefix(chain.keys, seconds)),
            ("seconds", lambda: engine.cache.retain(chain.keys, HIGHEST_PRIORITY, seconds)),
            ("longest", lambda: engine.cache.pause_idle_service(seconds)),
            ("longest", lambda: engine.cache.checkpoint(seconds)),
        ]:
            with pytest.raises(ValueError, match=f"{name} is {seconds} seconds, must be at least 0"):
                call()
        assert not request.released and engine.cache.statistics()["live"] == 1


def test_numbers_that_are_none_of_a_source_or_a_token_are_refused(engine):
    chain = Chain(ROOT, UNIT, range(9))
    for call in (engine.cache.match, engine.cache.acquire, engine.cache.prefetch):
        for wrong in (5, -1, 2**32, 2**32 + 1):
            with pytest.raises(ValueError, match=f"{wrong} is not a valid Source"):
                call(chain, farthest=wrong)
    with pytest.raises(TypeError, match="tokens are a masked array"):
        chain.append(numpy.ma.masked_array([1, 2**32 + 5], mask=[False, True]))
    assert len(chain) == 9


def test_regions_of_arrays(engine):
    kv = numpy.zeros((3, 5, 4), numpy.float16)
    at = kv.ctypes.data
    assert DeviceRegion.of(kv, layer=2) == DeviceRegion(at, 40, 40, layer=2)
    assert DeviceRegion.of(kv[:, 1:3]) == DeviceRegion(at + 8, 40, 16), "a part of each block"
    assert DeviceRegion.of(kv[::2]) == DeviceRegion(at, 80, 40)
    for wrong in (kv[:, :, 0], kv[:, ::2], kv[0, 0], kv.transpose(0, 2, 1)):
        with pytest.raises(ValueError, match="has no blocks that each lie in one piece"):
            DeviceRegion.of(wrong)
    kv.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        DeviceRegion.of(kv)


def test_a_cache_that_is_cleared_until_it_is_resumed_says_so_by_a_class(engine):
    engine.cache.reset(wait=True)
    with pytest.raises(Paused) as raised:
        engine.cache.acquire(Chain(ROOT, UNIT, range(9)))
    assert not isinstance(raised.value, Busy), "nothing that an engine ends makes room"
    engine.cache.resume()
    assert engine.serve(list(range(9))).miss == 2


def test_an_object_is_made_once(engine):
    chain = Chain(ROOT, UNIT, range(9))
    for again in (lambda: chain.__init__(ROOT, UNIT, range(3)), lambda: engine.cache.__init__("")):
        with pytest.raises(TypeError, match="is made already"):
            again()
    assert len(chain) == 9 and engine.serve(list(range(9))).miss == 2
