"""Random calls of Store and OffloadCache, with exceptions, cancellations, time-outs, threads and forks, against a model of contents.

The content of a block follows from its name, so each block that is read can be compared. Memory that a caller has got back is
overwritten at once, and memory whose read was given up must not change any more.

TERRACE_EXAMPLES=N runs N random examples of each machine instead of some fixed ones, and TERRACE_STEPS=N calls in each. Of the
fixed ones, TERRACE_LONG=1 runs all and not only the first.
"""

from __future__ import annotations

import asyncio
import functools
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

hypothesis = pytest.importorskip("hypothesis")
from hypothesis import HealthCheck, Phase, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from hypothesis import stateful  # noqa: E402
from hypothesis.stateful import RuleBasedStateMachine, initialize  # noqa: E402
from interruption import Interrupted, alarm, in_child, interrupted_at  # noqa: E402

from terrace_kv import BatchKind, Busy, EventKind, JobEventKind, OffloadCache, Stopped, Store, TerraceError  # noqa: E402

BLOCK = 4096
EXAMPLES = int(os.environ.get("TERRACE_EXAMPLES", "0"))
FIXED_EXAMPLES = 30 if os.environ.get("TERRACE_LONG", "0") != "0" else 10
STEPS = int(os.environ.get("TERRACE_STEPS", "40"))

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


@pytest.mark.parametrize("machine", [StoreMachine, SlowStoreMachine, OffloadMachine, SlowOffloadMachine])
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
