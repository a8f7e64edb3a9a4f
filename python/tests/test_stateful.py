"""Random calls of Store, OffloadCache and Cache, with exceptions, cancellations, time-outs, threads and forks, against a model of contents.

The content of a block follows from its name, so each block that is read can be compared. Memory that a caller has got back is
overwritten at once, and memory whose read was given up must not change any more.

TERRACE_EXAMPLES=N runs N random examples of each machine instead of some fixed ones, and TERRACE_STEPS=N calls in each. Of the
fixed ones, TERRACE_LONG=1 runs all and not only the first.
"""

from __future__ import annotations

import asyncio
import functools
import gc
import hashlib
import os
import shutil
import tempfile
import threading
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

numpy = pytest.importorskip("numpy")
hypothesis = pytest.importorskip("hypothesis")
from hypothesis import HealthCheck, Phase, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from hypothesis import stateful  # noqa: E402
from hypothesis.stateful import RuleBasedStateMachine, initialize  # noqa: E402
from interruption import Interrupted, alarm, in_child, interrupted_at  # noqa: E402

from terrace_kv import (  # noqa: E402
    BatchKind,
    Busy,
    Cache,
    Chain,
    DeadlineExceeded,
    DeviceRegion,
    EventKind,
    InvalidArgument,
    JobEventKind,
    NotFound,
    OffloadCache,
    Request,
    Root,
    Step,
    Stopped,
    Store,
    TerraceError,
)
from terrace_kv._interface import NEVER_FITS, NO_ROOM  # noqa: E402

BLOCK = 4096
EXAMPLES = int(os.environ.get("TERRACE_EXAMPLES", "0"))
FIXED_EXAMPLES = 30 if os.environ.get("TERRACE_LONG", "0") != "0" else 10
STEPS = int(os.environ.get("TERRACE_STEPS", "40"))

UNIT = 4  # tokens of a block
ROOT = Root(model_digest=b"a model")

prompts = st.lists(st.integers(0, 1), min_size=1, max_size=26)
whichever = st.integers(0, 5)
names = st.integers(0, 23)
some_names = st.lists(names, min_size=1, max_size=8, unique=True)
moments = st.one_of(st.none(), st.floats(0.0002, 0.03))
lines = st.integers(1, 260)


def told(call: Callable[..., None]) -> Callable[..., None]:
    """Prints an exception where it is raised: a failure that does not come again is reported by hypothesis without it."""

    @functools.wraps(call)
    def calling(*args: Any, **arguments: Any) -> None:
        try:
            call(*args, **arguments)
        except Exception:
            traceback.print_exc()
            raise

    return calling


def rule(**strategies: Any) -> Callable[[Callable[..., None]], Any]:
    return lambda call: stateful.rule(**strategies)(told(call))


def invariant() -> Callable[[Callable[..., None]], Any]:
    return lambda call: stateful.invariant()(told(call))


def key(name: int) -> bytes:
    return b"block %d" % name


def content(name: int) -> bytes:
    return hashlib.sha256(key(name)).digest() * (BLOCK // 32)


def overwrite(buffer: bytearray) -> None:
    buffer[:] = b"\xee" * len(buffer)


def calling(call: Callable[[], object], moment: float | None) -> None:
    """Calls, and raises an exception after a time if `moment` is given."""
    if moment is None:
        call()
    else:
        with suppress(Interrupted), alarm(moment):
            call()


class Memory:
    """What the caller must find in buffers."""

    def __init__(self) -> None:
        self.given_up: list[tuple[bytearray, bytes]] = []

    def give_up(self, buffer: bytearray) -> None:
        """A call that was to fill the buffer has ended without a result."""
        self.given_up.append((buffer, bytes(buffer)))
        del self.given_up[:-50]

    def check(self) -> None:
        for buffer, before in self.given_up:
            assert buffer == before, "memory was written after its call had ended"


class Machine(RuleBasedStateMachine):
    """Calls of an object in a directory of its own."""

    @initialize()
    def start(self) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="terrace-"))
        self.memory = Memory()
        self.open()

    def open(self) -> None:
        raise NotImplementedError

    @invariant()
    def memory_is_left_alone(self) -> None:
        if hasattr(self, "memory"):
            self.memory.check()


class StoreMachine(Machine):
    """Store."""

    options: dict[str, Any] = {}

    def open(self) -> None:
        self.store = Store(self.directory, capacity="1MiB", block_bytes=BLOCK, **self.options)
        self.jobs: dict[int, tuple[bool, list[int], bytearray]] = {}
        self.late: dict[int, bytearray] = {}
        self.last_job = 0

    # -- one block

    def get(self, name: int, interrupt: Callable[[Callable[[], object]], None]) -> None:
        into, found = bytearray(BLOCK), []
        interrupt(lambda: found.append(self.store.get(key(name), into)))
        if found == [True]:
            assert into == content(name)
        else:
            self.memory.give_up(into)

    @rule(name=names, moment=moments)
    def put(self, name: int, moment: float | None) -> None:
        buffer = bytearray(content(name))
        with suppress(Busy):  # the disk still writes what was removed
            calling(lambda: self.store.put(key(name), buffer), moment)
        overwrite(buffer)

    @rule(name=names, moment=moments)
    def get_one(self, name: int, moment: float | None) -> None:
        self.get(name, lambda call: calling(call, moment))

    @rule(name=names, line=lines, is_put=st.booleans())
    def interrupt_at_a_line(self, name: int, line: int, is_put: bool) -> None:
        def interrupt(call: Callable[[], object]) -> None:
            with interrupted_at(line), suppress(Interrupted):
                call()

        if is_put:
            buffer = bytearray(content(name))
            with suppress(Busy):
                interrupt(lambda: self.store.put(key(name), buffer))
            overwrite(buffer)
        else:
            self.get(name, interrupt)

    @rule(chosen=some_names, is_put=st.booleans(), timeout=st.floats(0.0001, 0.05))
    def on_an_event_loop(self, chosen: list[int], is_put: bool, timeout: float) -> None:
        buffers = [bytearray(content(name) if is_put else BLOCK) for name in chosen]
        call = self.store.put_async if is_put else self.store.get_async

        async def one(name: int, buffer: bytearray) -> None:
            try:
                found = await asyncio.wait_for(call(key(name), buffer), timeout)
            except (asyncio.TimeoutError, Busy):
                found = None
            if is_put:
                overwrite(buffer)
            elif found:
                assert buffer == content(name)
            else:
                self.memory.give_up(buffer)

        async def all_of_them() -> None:
            await asyncio.gather(*(one(name, buffer) for name, buffer in zip(chosen, buffers)))

        asyncio.run(asyncio.wait_for(all_of_them(), 120))

    @rule(chosen=some_names)
    def on_threads(self, chosen: list[int]) -> None:
        wrong: list[object] = []

        def work(part: list[int]) -> None:
            try:
                for name in part:
                    buffer = bytearray(content(name))
                    with suppress(Busy):
                        self.store.put(key(name), buffer)
                    overwrite(buffer)
                    if self.store.get(key(name), buffer) and buffer != content(name):
                        wrong.append(name)
            except Exception as error:
                wrong.append(error)

        threads = [threading.Thread(target=work, args=(part,)) for part in (chosen, chosen[::-1])]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not wrong

    # -- jobs

    @rule(chosen=some_names, is_put=st.booleans(), timeout=st.one_of(st.none(), st.floats(0.0001, 0.05)), moment=moments)
    def submit(self, chosen: list[int], is_put: bool, timeout: float | None, moment: float | None) -> None:
        self.last_job += 1
        buffer = bytearray(b"".join(content(name) for name in chosen) if is_put else BLOCK * len(chosen))
        self.jobs[self.last_job] = (is_put, chosen, buffer)
        submit = self.store.submit_put if is_put else self.store.submit_get
        call = lambda: submit(self.last_job, [key(name) for name in chosen], buffer, range(len(chosen)), timeout=timeout)  # noqa: E731
        try:
            calling(call, moment)
        except Busy:
            del self.jobs[self.last_job]

    @rule(seconds=st.floats(0, 0.05))
    def poll(self, seconds: float) -> None:
        self.store.wait(seconds)
        for result in self.store.poll():
            self.ended(result)
        for event in self.store.events():
            if event.kind is EventKind.MEMORY_FREE:
                buffer = self.late.pop(event.job)
                overwrite(buffer)
                self.memory.give_up(buffer)

    def ended(self, result: Any) -> None:
        is_put, chosen, buffer = self.jobs.pop(result.job)
        assert result.kind is (BatchKind.PUT if is_put else BatchKind.GET)
        for i, status in enumerate(result.statuses):
            if status == 0:
                assert buffer[i * BLOCK : (i + 1) * BLOCK] == content(chosen[i])
        if result.memory_in_use:
            self.late[result.job] = buffer
        else:
            overwrite(buffer)
            self.memory.give_up(buffer)

    @rule()
    def cancel(self) -> None:
        for job in self.jobs:
            with suppress(LookupError):
                self.store.cancel(job)

    # -- the store as a whole

    @rule(chosen=some_names)
    def remove(self, chosen: list[int]) -> None:
        self.store.remove([key(name) for name in chosen])

    @rule()
    def clear(self) -> None:
        self.store.clear()
        assert self.store.leading([key(0)]) == 0

    @rule()
    def drain(self) -> None:
        self.store.drain(120)
        self.poll(0)
        assert not self.late

    @rule()
    def fork(self) -> None:
        def child() -> None:
            for call in (lambda: self.store.put(b"x", bytes(BLOCK)), self.store.clear, self.store.poll):
                with pytest.raises(Stopped):
                    call()
            self.store.close()

        assert in_child(child) == 0

    @rule(moment=moments)
    def close(self, moment: float | None) -> None:
        calling(self.store.close, moment)
        self.store.close()
        for _is_put, _chosen, buffer in self.jobs.values():
            buffer.append(0)  # nobody keeps it
            self.memory.give_up(buffer)
        self.open()

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.store.close()
            self.memory.check()
            with Store(self.directory, capacity="1MiB", block_bytes=BLOCK) as store:
                for name in range(24):
                    into = bytearray(BLOCK)
                    assert not store.get(key(name), into) or into == content(name)
            shutil.rmtree(self.directory, ignore_errors=True)


class SlowStoreMachine(StoreMachine):
    """Store over I/O by threads and a slow disk."""

    options = {"io": "threads", "bandwidth": "1MiB/s", "io_threads": 2}


class OffloadMachine(Machine):
    """OffloadCache."""

    storage = ""

    def open(self) -> None:
        self.cache = OffloadCache(
            f"""
key-order = "flat"
write-policy = "write-through"
[storage]
where = "file:{self.directory / "store"}"
capacity = "1MiB"
{self.storage}
[[pool]]
block-bytes = "4KiB"
device-blocks = 1
host-blocks = 12
"""
        )
        self.jobs: dict[int, tuple[bool, list[int], list[bytearray]]] = {}
        self.last_job = 0

    @rule(
        chosen=some_names,
        is_store=st.booleans(),
        timeout=st.one_of(st.none(), st.floats(0.0001, 0.05)),
        interruption=st.one_of(st.none(), st.floats(0.0002, 0.01), lines),
    )
    def order(self, chosen: list[int], is_store: bool, timeout: float | None, interruption: float | int | None) -> None:
        self.last_job += 1
        job = self.last_job
        buffers = [bytearray(content(name) if is_store else BLOCK) for name in chosen]
        self.jobs[job] = (is_store, chosen, buffers)
        order = self.cache.store if is_store else self.cache.load
        call = lambda: order(job, [key(name) for name in chosen], memory=buffers, timeout=timeout)  # noqa: E731
        try:
            if isinstance(interruption, int):
                with interrupted_at(interruption), suppress(Interrupted):
                    call()
            else:
                calling(call, interruption)
        except Busy:
            del self.jobs[job]

    @rule(seconds=st.floats(0, 0.05))
    def poll(self, seconds: float) -> None:
        self.cache.wait(seconds)
        self.take(self.cache.poll())

    def take(self, events: list[Any]) -> None:
        for event in events:
            is_store, chosen, buffers = self.jobs[event.job]
            if event.kind is JobEventKind.BLOCK and event.status == 0 and not is_store:
                assert buffers[event.block] == content(chosen[event.block])
            if event.kind is JobEventKind.ENDED:
                del self.jobs[event.job]
                for buffer in buffers:
                    buffer.append(0)  # nobody keeps it
                    overwrite(buffer)
                    self.memory.give_up(buffer)

    @rule(timeout=st.floats(0.0001, 0.05))
    def on_an_event_loop(self, timeout: float) -> None:
        async def one(job: int) -> None:
            try:
                self.take(await asyncio.wait_for(self.cache.ended(job), timeout))
            except (asyncio.TimeoutError, LookupError):
                pass

        async def all_of_them() -> None:
            await asyncio.gather(*(one(job) for job in list(self.jobs)))

        asyncio.run(asyncio.wait_for(all_of_them(), 120))

    @rule(chosen=some_names, moment=moments)
    def ask(self, chosen: list[int], moment: float | None) -> None:
        def call() -> None:
            keys = self.cache.keys([key(name) for name in chosen])
            self.cache.look_up(keys)
            self.cache.touch(keys)
            self.cache.end_request(keys, len(chosen))

        calling(call, moment)

    @rule()
    def cancel(self) -> None:
        for job in self.jobs:
            with suppress(LookupError):
                self.cache.cancel(job)

    @rule()
    def clear(self) -> None:
        self.cache.clear()

    @rule(blocks=st.integers(4, 12))
    def resize(self, blocks: int) -> None:
        with suppress(TerraceError):
            self.cache.resize_host(blocks)

    @rule()
    def drain(self) -> None:
        self.cache.drain(120)
        self.take(self.cache.poll())

    @rule()
    def fork(self) -> None:
        def child() -> None:
            with pytest.raises(Stopped):
                self.cache.poll()
            self.cache.close()

        assert in_child(child) == 0

    @rule()
    def close(self) -> None:
        self.cache.close()
        for _is_store, _chosen, buffers in self.jobs.values():
            for buffer in buffers:
                buffer.append(0)  # nobody keeps it
                self.memory.give_up(buffer)
        self.open()

    def teardown(self) -> None:
        if hasattr(self, "cache"):
            self.cache.close()
            self.memory.check()
            shutil.rmtree(self.directory, ignore_errors=True)


class SlowOffloadMachine(OffloadMachine):
    """OffloadCache over I/O by threads and a slow disk."""

    storage = 'io = "threads"\nbandwidth = "1MiB/s"'


class Served:
    """What the engine knows of a request."""

    def __init__(self, request: Request, chain: Chain, tokens: list[int], row: int) -> None:
        self.request = request
        self.chain = chain
        self.tokens = tokens
        self.row = row
        self.ready = False
        self.computed = 0
        """Leading tokens whose bytes are in the blocks."""


class CacheMachine(Machine):
    """Cache: the device is memory of this machine, which computes what is not found. Tokens are 0 or 1, so that prompts share
    blocks; the bytes of a block follow from all tokens up to its end."""

    config: dict[str, Any] = {}
    device_blocks, rows = 12, 6

    def open(self) -> None:
        self.device = numpy.zeros((self.device_blocks, BLOCK), numpy.uint8)
        self.cache = Cache(
            {
                "device": {"reserve-max": 0},
                "storage": {"where": f"file:{self.directory / 'store'}", "capacity": "1MiB", **self.config},
                "pool": [{"block-bytes": BLOCK, "device-blocks": self.device_blocks, "host-blocks": 8}],
            },
            regions=[DeviceRegion(self.device.ctypes.data, BLOCK, BLOCK)],
        )
        self.step_arrays = Step(self.rows, 20, tokens_max=64)
        self.served: list[Served] = []

    @staticmethod
    def content(tokens: list[int], block: int) -> Any:
        return numpy.frombuffer(hashlib.sha256(bytes(tokens[: (block + 1) * UNIT])).digest() * (BLOCK // 32), numpy.uint8)

    def compute(self, each: Served) -> None:
        """Computes all tokens for which there are blocks."""
        table = each.request.block_table()
        last = min(len(each.tokens) // UNIT, len(table))
        for block in range(each.computed // UNIT, last):
            self.device[table[block]] = self.content(each.tokens, block)
        each.computed = min(len(each.tokens), len(table) * UNIT)

    def some(self, which: int) -> Served | None:
        return self.served[which % len(self.served)] if self.served else None

    # -- a request

    @rule(several=st.lists(prompts, min_size=1, max_size=3))
    def acquire_some(self, several: list[list[int]]) -> None:
        for tokens in several:
            self.take(tokens, None, None)

    @rule(tokens=prompts, number=st.one_of(st.none(), st.integers(1, 3)), line=st.one_of(st.none(), lines))
    def acquire(self, tokens: list[int], number: int | None, line: int | None) -> None:
        self.take(tokens, number, line)

    def take(self, tokens: list[int], number: int | None, line: int | None) -> None:
        if len(self.served) == self.rows:
            return
        chain, got = Chain(ROOT, UNIT, tokens), []
        try:
            with interrupted_at(line or 0), suppress(Interrupted):
                got.append(self.cache.acquire(chain, request=number))
        except Busy:
            return
        except InvalidArgument as error:
            if error.status != NEVER_FITS:
                assert number in [each.request.id for each in self.served] and "is alive" in str(error)
            return
        if got:
            row = min(set(range(self.rows)) - {each.row for each in self.served})
            self.served.append(Served(got[0], chain, list(tokens), row))

    @rule(which=whichever, moment=moments)
    def wait(self, which: int, moment: float | None) -> None:
        if (each := self.some(which)) is not None:
            self.wait_for(each, moment)

    def wait_for(self, each: Served, moment: float | None = None) -> None:
        try:
            calling(lambda: each.request.wait(60), moment)
            info = each.request.wait(60)
        except TerraceError as error:
            assert not isinstance(error, DeadlineExceeded)
            self.end(each)
            return
        if not each.ready:
            each.ready, each.computed = True, (info.units - info.miss) * UNIT
            self.compute(each)

    @rule(
        first=whichever,
        chosen=st.lists(st.lists(st.integers(0, 1), max_size=9), min_size=1, max_size=4),
        mistake=st.sampled_from([None, None, "row", "computed", "needed", "request"]),
    )
    def step(self, first: int, chosen: list[list[int]], mistake: str | None) -> None:
        new = {each: tokens for which, tokens in enumerate(chosen, first) if (each := self.some(which)) is not None}
        for each in new:
            self.wait_for(each)
        running = [each for each in new if each.ready and not each.request.released]
        if not running:
            return
        arrays, wrong = self.step_arrays, running[-1]
        at = 0
        for i, each in enumerate(running):
            tokens = new[each]
            arrays.requests[i], arrays.rows[i], arrays.computed[i], arrays.needed[i] = each.request.id, each.row, each.computed, 0
            arrays.token_counts[i] = len(tokens)
            arrays.tokens[at : at + len(tokens)] = tokens
            at += len(tokens)
        last = len(running) - 1
        if mistake == "row" and last and not arrays.lengths[0][running[0].row]:
            mistake = None  # the row is free if its request gets no room
        if mistake == "row":
            arrays.rows[last] = running[0].row if last else self.rows
        elif mistake == "computed":
            arrays.computed[last] = len(wrong.tokens) + len(new[wrong]) + 1
        elif mistake == "needed":
            arrays.needed[last] = 2**62
        elif mistake == "request":
            arrays.requests[last] = 2**40
        before = [self.state(each) for each in running]
        served = self.cache.step(arrays, len(running))
        refused = arrays.failures(len(running))
        assert served == (not refused)
        for i, each in enumerate(running):
            if i in refused and arrays.statuses[i] not in (NO_ROOM, NEVER_FITS):
                assert i == last and mistake is not None and self.state(each) == before[i], "nothing of it has changed"
                continue
            each.tokens += new[each]
            assert i in refused or mistake is None or i != last
            if i not in refused:
                row = arrays.tables[0][each.row, : arrays.lengths[0][each.row]]
                assert row.tolist() == each.request.block_table().tolist()
                assert len(row) >= -(-len(each.tokens) // UNIT)
            self.compute(each)

    def state(self, each: Served) -> tuple[Any, ...]:
        length = int(self.step_arrays.lengths[0][each.row])
        info = each.request.info
        return len(each.chain), each.request.block_table().tolist(), info.committed_units, self.cache.match(each.chain), length

    @rule(which=whichever, ended=st.booleans(), line=st.one_of(st.none(), lines))
    def release(self, which: int, ended: bool, line: int | None) -> None:
        each = self.some(which)
        if each is not None:
            with interrupted_at(line or 0), suppress(Interrupted):
                each.request.release(0, ended=ended)
            self.end(each)

    def end(self, each: Served) -> None:
        each.request.release(0)
        each.request.release(0)
        self.leave(each)

    @rule(which=whichever)
    def lose(self, which: int) -> None:
        """Nobody has the request any more."""
        if (each := self.some(which)) is not None:
            self.leave(each)

    def leave(self, each: Served) -> None:
        self.served.remove(each)
        self.step_arrays.lengths[0][each.row] = 0

    # -- other blocks

    @rule(tokens=prompts)
    def hint(self, tokens: list[int]) -> None:
        chain = Chain(ROOT, UNIT, tokens)
        with suppress(NotFound):
            self.cache.expect_use(chain, None)
        if len(tokens) >= UNIT:
            with suppress(Busy):
                self.cache.prefetch(chain)

    @rule(tokens=prompts)
    def lose_blocks(self, tokens: list[int]) -> None:
        chain = Chain(ROOT, UNIT, tokens)
        if (slots := [place.device for place in self.cache.find_blocks(chain) if place.device is not None]):
            self.cache.evict(slots[-1:])
        with suppress(NotFound, Busy):
            self.cache.drop(chain.keys)

    # -- the cache as a whole

    @rule()
    def end_step(self) -> None:
        self.cache.end_step()
        self.cache.compute_is_idle()
        self.cache.poll()

    @rule()
    def drain(self) -> None:
        self.cache.drain(60)
        self.cache.poll()

    @rule(keep=st.booleans())
    def clear(self, keep: bool) -> None:
        self.cache.clear(keep_storage=keep)

    @rule(wait=st.booleans())
    def reset(self, wait: bool) -> None:
        self.cache.compute_is_idle()  # blocks of requests that nobody has released are in use until then
        try:
            self.cache.reset(wait=wait)
        except Busy:
            assert self.served
            return
        assert not self.served and self.cache.match(Chain(ROOT, UNIT, [0] * UNIT)).total == 0
        if wait:
            self.cache.drain(60)
            self.cache.resume()

    @rule(blocks=st.integers(4, 12), host=st.booleans())
    def resize(self, blocks: int, host: bool) -> None:
        with suppress(TerraceError):
            (self.cache.resize_host if host else self.cache.resize_device)(blocks)

    @rule()
    def close(self) -> None:
        self.cache.close()
        assert all(each.request.released for each in self.served)
        self.open()

    @invariant()
    def every_block_has_the_bytes_of_its_tokens(self) -> None:
        for each in getattr(self, "served", []):
            if each.ready:
                for block, slot in enumerate(each.request.block_table()[: each.computed // UNIT]):
                    assert (self.device[slot] == self.content(each.tokens, block)).all(), f"block {block} of {each.tokens}"

    @invariant()
    def requests_are_those_that_live(self) -> None:
        if hasattr(self, "cache"):
            self.cache.poll()
            if self.cache.statistics()["live"] != len(self.served):
                gc.collect()  # frames of an exception may hold a request in a circle
                self.cache.poll()
            assert self.cache.statistics()["live"] == len(self.served)

    def teardown(self) -> None:
        if hasattr(self, "cache"):
            for each in list(self.served):
                self.end(each)
            self.cache.compute_is_idle()  # the blocks of requests that nobody has released are free
            self.cache.drain(60)
            assert self.cache.device_room() == self.cache.statistics()["device_blocks"]
            assert not self.cache._events
            self.cache.close()
            shutil.rmtree(self.directory, ignore_errors=True)


class SlowCacheMachine(CacheMachine):
    """Cache over I/O by threads and a slow disk."""

    config = {"io": "threads", "bandwidth": "1MiB/s"}


@pytest.mark.parametrize(
    "machine", [StoreMachine, SlowStoreMachine, OffloadMachine, SlowOffloadMachine, CacheMachine, SlowCacheMachine]
)
def test_random_calls_move_right_bytes_and_no_others(machine: type[RuleBasedStateMachine]) -> None:
    stateful.run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=EXAMPLES or FIXED_EXAMPLES,
            stateful_step_count=STEPS,
            derandomize=not EXAMPLES,
            deadline=None,
            database=None,
            phases=[Phase.generate],  # times differ from run to run, so that smaller examples do not fail
            suppress_health_check=list(HealthCheck),
        ),
    )
