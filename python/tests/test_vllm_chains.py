"""TerraceOffloadingSpec keeps chunks in the order of their prefixes: requests that say where their chunks end, as vLLM's do."""

from __future__ import annotations

import ctypes
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import admin_endpoint
import numpy as np
import pytest
import vllm_modules  # noqa: F401  (before vLLM)
from vllm_modules import ROW, SpecEngine, config, keys

from vllm.v1.kv_offload.base import LookupResult, ReqContext  # isort: skip
from vllm.v1.kv_offload.config import OffloadingGroupConfig

from terrace_kv.vllm import TerraceOffloadingSpec
from terrace_kv._keys import Keys
from terrace_kv.vllm.chains import Chains, Window
from terrace_kv.vllm.names import groups_of

HIT, MISS, PENDING = LookupResult.HIT, LookupResult.MISS, LookupResult.HIT_PENDING
TOKENS = 16


def content(key: bytes) -> bytes:
    return np.random.default_rng(int.from_bytes(key[:8], "little") * 7 + key[-1]).bytes(ROW)


def of_group(group: int, chain: Sequence[bytes]) -> list[bytes]:
    return [key[:-4] + group.to_bytes(4, "big") for key in chain]


class Request:
    """A request whose chunks are these in each group, as vLLM's scheduler knows it."""

    numbers = 0

    def __init__(
        self, engine: Engine, chain: Sequence[bytes], groups: int = 1, params: dict[str, Any] | None = None
    ) -> None:
        Request.numbers += 1
        self.engine = engine
        self.context = ReqContext(req_id=f"request {Request.numbers}", kv_transfer_params=params)
        self.chains = [of_group(group, chain) for group in range(groups)]
        for each in self.chains:
            for i, key in enumerate(each):
                self.context.set_offload_key_position(key, (i + 1) * TOKENS)
        engine.manager.on_new_request(self.context)

    def look_up(self, first: int = 0, group: int = 0) -> list[LookupResult]:
        """From the first chunk that the GPU does not have, up to a miss."""
        answers = []
        for key in self.chains[group][first:]:
            answers.append(self.engine.manager.lookup(key, self.context))
            if answers[-1] is MISS:
                break
        return answers

    def load(self, *wanted: Sequence[bytes]) -> None:
        """Loads the chunks, of one group after the other, and compares them."""
        self.engine.load([key for each in wanted for key in each], self.context)

    def store(self, *wanted: Sequence[bytes]) -> list[bytes]:
        """Offers the chunks, and writes those that are to be stored. Returns these."""
        return self.engine.store([key for each in wanted for key in each], self.context)

    def finish(self) -> None:
        self.engine.manager.on_request_finished(self.context)

    def run_groups(self) -> None:
        """The life of a request of several groups that finds nothing."""
        self.store(*self.chains)
        self.finish()
        self.engine.step()

    def run(self, first: int = 0) -> int:
        """The whole life of a request of one group whose first chunks the GPU has. Returns how many chunks it loads."""
        answers = self.look_up(first)
        while PENDING in answers or LookupResult.RETRY in answers:
            self.engine.step()
            self.engine.manager._cache.wait(0.01)
            answers = self.look_up(first)
        hits = answers.count(HIT)
        chain = self.chains[0]
        if hits:
            self.load(chain[first : first + hits])
        stored_from = first + hits if hits else 0
        if stored_from < len(chain):
            self.store(chain[stored_from:])
        self.finish()
        self.engine.step()
        return hits


class FullAttentionSpec:
    """Of this name in vLLM: attention to all tokens before."""


class Latent(FullAttentionSpec):
    """As vLLM's MLAAttentionSpec."""


class SlidingWindowSpec:
    """A token attends to two chunks."""

    sliding_window = 2 * TOKENS - 1


class MambaSpec:
    """A state at each chunk."""


class ChunkedLocalAttentionSpec:
    """Attention that begins anew after some chunks."""

    attention_chunk_size = 4 * TOKENS


class Engine(SpecEngine):
    """A manager, and a worker that fills and reads its rows."""

    def __init__(self, path: Path | None = None, *, chunks: int = 8, groups: int = 1, **options: Any) -> None:
        terrace: dict[str, Any] = {"weights_revision": "1", **options}
        if path is not None:
            terrace = {"path": str(path), "capacity": "4MiB", **terrace}
        rows = chunks + (2 if path is not None or "shared" in options else 0)  # staging
        newer = "sliding_window_size_in_chunks" in OffloadingGroupConfig.__dataclass_fields__  # vLLM 0.33
        window = [{"sliding_window_size_in_chunks": 2 if i else None} if newer else {} for i in range(groups)]
        described = tuple(OffloadingGroupConfig(TOKENS, (f"layer.{i}",), i, **window[i]) for i in range(groups))
        extra = {"cpu_bytes_to_use": rows * ROW, "terrace": terrace}
        kinds = [FullAttentionSpec(), SlidingWindowSpec()][:groups]
        # vLLM's connector has it in a variable of this name when it makes the manager.
        kv_cache_config = SimpleNamespace(kv_cache_groups=[SimpleNamespace(kv_cache_spec=kind) for kind in kinds])
        named = f"engine {uuid4()}"  # vLLM's region is a file of this name
        self.manager: Any = TerraceOffloadingSpec(config(extra_config=extra, groups=described, engine_id=named)).get_manager()
        assert kv_cache_config
        self.rows = np.frombuffer(self.manager._view, dtype=np.int8).reshape(rows, ROW)

    def begin_store(self, wanted: Sequence[bytes], context: ReqContext) -> list[bytes] | None:
        output = self.manager.prepare_store(wanted, context)
        if output is None:
            return None
        for key, row in zip(output.keys_to_store, output.store_spec.chunk_ids, strict=True):
            self.rows[row] = np.frombuffer(content(key), dtype=np.int8)
        return output.keys_to_store

    def store(self, wanted: Sequence[bytes], context: ReqContext) -> list[bytes]:
        stored = self.begin_store(wanted, context)
        if stored:
            self.manager.complete_store(set(stored), context)
        return stored or []

    def load(self, wanted: Sequence[bytes], context: ReqContext) -> None:
        spec = self.manager.prepare_load(wanted, context)
        for key, row in zip(wanted, spec.chunk_ids, strict=True):
            assert self.rows[row].tobytes() == content(key)
        self.manager.complete_load(set(wanted), context)

    def counts(self) -> dict[str, int]:
        return self.manager._cache.statistics()


@pytest.fixture
def engine() -> Iterator[Engine]:
    made = Engine()
    yield made
    made.close()


@pytest.fixture
def two_groups() -> Iterator[Engine]:
    made = Engine(groups=2, chunks=16)
    yield made
    made.close()


# ---- full attention


def test_a_prefix_that_many_requests_have_stays(engine: Engine) -> None:
    system = keys(3)
    for i in range(6):
        Request(engine, system + keys(5, 100 * (i + 1))).run()
    assert Request(engine, system).look_up() == [HIT] * 3
    assert Request(engine, keys(3)[:1] + keys(1, 100)).look_up() == [HIT, MISS], "the prefix is another one"


def test_the_hit_rate_is_that_of_chunks_that_are_loaded_however_long_a_request_waits(tmp_path: Path) -> None:
    made = Engine(tmp_path)
    Request(made, keys(4)).run()
    made.settle()
    Request(made, keys(8, 100)).run()
    again = Request(made, keys(5))
    for _ in range(10):
        again.look_up()
    assert again.run() == 4
    counts = made.counts()
    assert (counts["asked"], counts["found"]) == (4 + 4 + 8 + 4 + 1, 4), "the first question, and then what is moved"
    made.close()


def test_what_an_operator_has_paused_is_computed(tmp_path: Path) -> None:
    made = Engine(tmp_path)
    Request(made, keys(4)).run()
    made.settle()
    Request(made, keys(8, 100)).run()
    made.settle()
    early, late = Request(made, keys(4)), Request(made, keys(4))
    assert early.look_up() == [PENDING] * 4
    made.manager._cache.pause_transfers()
    made.step()  # orders the chunks, which do not come
    assert early.look_up() == [MISS] and late.look_up() == [MISS], "they do not wait until the end of the pause"
    made.step()
    made.manager._cache.resume_transfers()
    assert Request(made, keys(4)).run() == 4
    made.close()


def test_no_chunk_is_kept_behind_one_that_is_absent(engine: Engine) -> None:
    first = Request(engine, keys(8))
    assert first.run() == 0
    Request(engine, keys(6, 20)).run()
    answers = Request(engine, keys(8)).look_up()
    assert answers == [HIT, HIT, MISS], "the end has gone first"
    late = Request(engine, keys(8, 40))
    late.store(late.chains[0][:4])
    Request(engine, keys(8, 60)).run()
    assert late.store(late.chains[0][4:]) == [], "of no use without those before them, which have gone"


def test_a_load_behind_what_the_gpu_has_is_a_use_of_all(engine: Engine) -> None:
    Request(engine, keys(6)).run()
    Request(engine, keys(2, 20)).run()
    assert Request(engine, keys(6)).run(first=4) == 2
    assert engine.counts()["loaded_host"] == 2, "the others were not read"
    Request(engine, keys(2, 40)).run()
    assert Request(engine, keys(6)).look_up() == [HIT] * 6
    assert Request(engine, keys(1, 20)).look_up() == [MISS]


def test_what_only_the_gpu_has_comes_to_host_memory_with_what_follows(engine: Engine) -> None:
    Request(engine, keys(4)).run()
    Request(engine, keys(7, 20)).run()
    assert Request(engine, keys(4)).look_up() == [HIT, MISS]
    again = Request(engine, keys(5))
    assert again.look_up(first=3) == [MISS]
    assert again.store(again.chains[0]) == keys(5)[1:]


def test_a_request_that_is_preempted_goes_on(engine: Engine) -> None:
    request = Request(engine, keys(6))
    request.look_up()
    request.store(request.chains[0][:4])
    # It is scheduled again, and has lost its place on the GPU.
    assert request.look_up() == [HIT] * 4 + [MISS]
    request.load(request.chains[0][:4])
    assert request.store(request.chains[0][4:]) == keys(6)[4:]
    request.finish()
    assert Request(engine, keys(6)).look_up() == [HIT] * 6


def test_a_reset_in_the_middle_of_a_request_begins_its_chain_anew(engine: Engine) -> None:
    request = Request(engine, keys(4))
    request.store(request.chains[0][:2])
    engine.manager.reset_cache()
    assert request.look_up() == [MISS]
    assert request.store(request.chains[0]) == keys(4), "vLLM offers all again"
    assert Request(engine, keys(4)).run() == 4


def test_a_request_without_room_is_offered_again(engine: Engine) -> None:
    reading = Request(engine, keys(8))
    reading.run()
    engine.manager.prepare_load(keys(8), reading.context)
    other = Request(engine, keys(2, 20))
    assert engine.begin_store(other.chains[0], other.context) is None, "every row is read"
    engine.manager.complete_load(set(keys(8)), reading.context)
    assert other.store(other.chains[0]) == keys(2, 20)


def test_chunks_that_a_worker_could_not_write_take_those_behind_them_along(engine: Engine) -> None:
    request = Request(engine, keys(4))
    first = engine.begin_store(request.chains[0][:2], request.context)
    second = engine.begin_store(request.chains[0][2:], request.context)
    assert first is not None and second is not None
    engine.manager.complete_store(set(second), request.context)
    engine.manager.complete_store(set(first), request.context, False)
    assert request.look_up() == [MISS]
    assert Request(engine, keys(4)).run() == 0
    assert Request(engine, keys(4)).run() == 4


# ---- windows and states


def found(engine: Engine, chain: Sequence[bytes]) -> list[bool]:
    """Which of the chunks of a window are there."""
    request = Request(engine, keys(0))
    return [engine.manager.lookup(key, request.context) is HIT for key in of_group(1, chain)]


def test_of_a_window_the_last_chunks_of_a_prompt_are_kept(two_groups: Engine) -> None:
    engine = two_groups
    request = Request(engine, keys(7), groups=2)
    full, window = request.chains
    assert request.store(full[:4], window[:4]) == full[:4] + window[3:4], "two that are needed, and two more"
    assert request.store(full[4:], window[4:]) == full[4:] + window[4:]
    request.finish()
    again = Request(engine, keys(7), groups=2)
    assert again.look_up() == [HIT] * 7
    assert found(engine, keys(7)) == [False] * 3 + [True] * 4
    again.load(full, window[5:])


def test_chunks_of_an_answer_are_kept_as_they_come(two_groups: Engine) -> None:
    request = Request(two_groups, keys(6), groups=2)
    full, window = request.chains
    request.store(full, window)
    for i, key in enumerate(keys(2, 50)):
        new = [*of_group(0, [key]), *of_group(1, [key])]
        for each in new:
            request.context.set_offload_key_position(each, (7 + i) * TOKENS)
        assert request.store(new) == new


def test_chunks_of_a_window_are_kept_where_others_went_on_differently(two_groups: Engine) -> None:
    engine = two_groups
    Request(engine, keys(7), groups=2).run_groups()
    common = keys(3)
    other = Request(engine, common + keys(5, 100), groups=2)
    assert other.look_up() == [HIT] * 3 + [MISS]
    full, window = other.chains
    assert other.store(full, window) == full[3:] + window[1:3] + window[4:]
    other.finish()
    third = Request(engine, common + keys(1, 200), groups=2)
    assert found(engine, common) == [False, True, True]
    third.load(third.chains[0][:3], third.chains[1][1:3])


def test_a_window_stays_as_long_as_the_prefix_before_it(two_groups: Engine) -> None:
    engine = two_groups
    Request(engine, keys(4), groups=2).run_groups()
    for i in range(3):
        used = Request(engine, keys(4), groups=2)
        used.load(used.chains[0])
        Request(engine, keys(4, 100 * (i + 1)), groups=2).run_groups()
        assert found(engine, keys(4)) == [True] * 4, "nobody has used it since"
    # The end of a prefix goes first, and the window at each of its chunks with it.
    other = Request(engine, keys(6, 1000))
    other.store(other.chains[0])
    left = Request(engine, keys(4)).look_up().count(HIT)
    assert found(engine, keys(4)) == [True] * left + [False] * (4 - left)


def test_windows_without_full_attention_are_all_kept() -> None:
    chains = Chains({}, {1: Window(TOKENS, 2)}, lambda keys: Keys((ctypes.c_char * 32)(), 0))
    context = ReqContext(req_id="one")
    window = of_group(1, keys(8))
    for i, key in enumerate(window):
        context.set_offload_key_position(key, (i + 1) * TOKENS)
    assert chains.useful(window, context, lambda chain: 0) == window
    assert [(run.keys, run.chain, run.beside) for run in chains.runs(window, context)] == [(window, None, None)]


def test_groups_are_told_apart_as_vllm_describes_them() -> None:
    groups = [SimpleNamespace(group_id=i, tokens_per_block=TOKENS) for i in range(5)]
    described = SimpleNamespace(groups=groups, cache=SimpleNamespace(blocks_per_chunk=1))
    assert groups_of(described) == ({}, {}), "unknown groups stand alone"
    every = (SlidingWindowSpec, FullAttentionSpec, Latent, MambaSpec, ChunkedLocalAttentionSpec)
    kv_cache_config = SimpleNamespace(kv_cache_groups=[SimpleNamespace(kv_cache_spec=each()) for each in every])
    windows = {0: Window(TOKENS, 2), 3: Window(TOKENS, 1), 4: Window(TOKENS, 4)}
    assert groups_of(described) == ({1: TOKENS, 2: TOKENS}, windows)
    assert kv_cache_config
    newer = SimpleNamespace(
        groups=[
            SimpleNamespace(group_id=0, tokens_per_block=16, sliding_window_size_in_chunks=None),
            SimpleNamespace(group_id=1, tokens_per_block=16, sliding_window_size_in_chunks=1),
        ],
        cache=SimpleNamespace(blocks_per_chunk=4),
    )
    assert groups_of(newer) == ({0: 64}, {1: Window(64, 1)})


def test_chunks_that_end_within_a_chunk_or_nowhere_stand_alone(engine: Engine) -> None:
    request = Request(engine, keys(2))
    request.store(request.chains[0])
    (tail,) = keys(1, 50)
    request.context.set_offload_key_position(tail, 2 * TOKENS + 5)
    assert request.store([tail]) == [tail]
    nowhere = keys(2, 60)
    assert request.store(nowhere) == nowhere
    other = Request(engine, keys(2))
    assert [engine.manager.lookup(key, other.context) for key in [tail, *nowhere]] == [HIT] * 3
    other.load([tail], nowhere[::-1], other.chains[0])


def test_places_may_be_noted_in_any_order(engine: Engine) -> None:
    request = Request(engine, [])
    for i in (3, 0, 2, 1):
        request.context.set_offload_key_position(keys(4)[i], (i + 1) * TOKENS)
    assert request.store(keys(4)) == keys(4)
    assert Request(engine, keys(4)).run() == 4
    assert engine.manager._chains.runs(keys(4), request.context)[0].keys == keys(4)


def test_with_flat_keys_every_chunk_stands_alone() -> None:
    engine = Engine(config={"key-order": "flat"})
    request = Request(engine, keys(4))
    assert request.store(request.chains[0][2:]) == keys(4)[2:]
    assert engine.manager.lookup(keys(4)[3], request.context) is HIT
    engine.close()


# ---- below host memory


def test_a_prefix_comes_back_from_storage(tmp_path: Path) -> None:
    engine = Engine(tmp_path)
    Request(engine, keys(6)).run()
    engine.settle()
    Request(engine, keys(8, 20)).run()
    engine.settle()
    assert Request(engine, keys(6)).look_up() == [PENDING] * 6
    assert Request(engine, keys(6)).run() == 6
    assert engine.counts()["loaded_storage"] == 6
    engine.close()


def test_operators_see_what_was_waited_for_and_what_the_disk_has_saved(tmp_path: Path) -> None:
    first = Engine(tmp_path / "store")
    Request(first, keys(5)).run()
    first.close()
    socket = tmp_path / "s"
    admin = {"listen": f"unix:{socket}", "interval": "10ms"}
    second = Engine(tmp_path / "store", prefill_speed=8, config={"admin": admin})
    assert Request(second, keys(5)).run() == 5
    state = admin_endpoint.ask(socket, "GET", "/v1/status")[1]
    while state["offload"]["loaded_storage"] != 5 or state["waits"]["storage"]["requests"] == 0:
        second.step()
        state = admin_endpoint.ask(socket, "GET", "/v1/status")[1]
    assert state["waits"]["storage"]["seconds"] > 0
    assert state["slowest"][0]["for"] == "storage"
    assert state["storage_gain"]["prefill_seconds"] == pytest.approx(5 * TOKENS / 8)
    second.close()


def test_the_rest_of_a_prefix_comes_back_behind_what_the_gpu_has(tmp_path: Path) -> None:
    first = Engine(tmp_path)
    Request(first, keys(6)).run()
    first.settle()
    first.close()
    second = Engine(tmp_path)
    assert Request(second, keys(6)).run(first=4) == 0, "more chunks that the GPU has would have to be read than it lacks"
    assert second.counts()["loaded_storage"] == 0
    request = Request(second, keys(7))
    assert request.look_up(first=3) == [PENDING] * 3 + [MISS], "known without a look at those before them"
    assert request.run(first=3) == 3
    assert second.counts()["loaded_storage"] == 6
    assert Request(second, keys(6)).run() == 6
    second.close()


def test_chunks_that_stand_alone_are_found_after_a_restart(tmp_path: Path) -> None:
    first = Engine(tmp_path, groups=2, chunks=16)
    request = Request(first, keys(6), groups=2)
    request.store(request.chains[0], request.chains[1][4:])
    first.settle()
    first.close()
    second = Engine(tmp_path, groups=2, chunks=16)
    again = Request(second, keys(6), groups=2)
    wanted = [*again.chains[0], *again.chains[1][4:]]
    assert [second.manager.lookup(key, again.context) for key in reversed(wanted)] == [PENDING] * 8
    assert second.manager.lookup(again.chains[1][3], again.context) is MISS
    while any(second.manager.lookup(key, again.context) is PENDING for key in wanted):
        second.step()
        second.manager._cache.wait(0.01)
    again.load(again.chains[0], again.chains[1][4:])
    second.close()


def test_a_prefix_comes_from_a_shared_store() -> None:
    shared = {"url": "memory:", "write-policy": "write-through", "probe-deadline": "10s"}
    first, second = (Engine(shared=shared, groups=2, chunks=16) for _ in range(2))
    first.step()
    second.step()
    request = Request(first, keys(5), groups=2)
    request.store(request.chains[0], request.chains[1][3:])
    while first.counts()["shared_written"] < 7:
        first.manager._cache.wait(0.1)
        first.step()
    again = Request(second, keys(6), groups=2)
    wanted = [*again.chains[0][2:5], *reversed(again.chains[1][3:5])]
    for _ in range(1000):
        answers = [second.manager.lookup(key, again.context) for key in wanted]
        if answers == [HIT] * 5:
            break
        assert MISS not in answers
        second.step()
        second.manager._cache.wait(0.01)
    again.load(again.chains[0][2:5], again.chains[1][3:5])
    assert second.manager.lookup(again.chains[0][5], again.context) in (MISS, LookupResult.RETRY)
    first.close()
    second.close()


# ---- everything at once


@pytest.mark.parametrize("seed", range(20))
def test_any_schedule_serves_the_right_bytes(tmp_path: Path, seed: int) -> None:
    """Requests with two groups, full attention and a window, that share prefixes; workers that take their time and fail; the GPU
    has some leading chunks of a request. A row that a load gets has the bytes of its key."""
    draw = random.Random(seed)
    window = 2
    engine = Engine(tmp_path if seed % 2 else None, groups=2, chunks=draw.choice([10, 16, 30]))
    manager = engine.manager
    prompts = [[draw.randrange(2) for _ in range(draw.randint(1, 8))] for _ in range(12)]

    def chain(prompt: list[int]) -> list[bytes]:
        made, name = [], 1
        for each in prompt:
            name = name * 3 + each
            made += keys(1, name)
        return made

    writing: list[tuple[set[bytes], ReqContext]] = []
    reading: list[tuple[list[bytes], Any, ReqContext]] = []
    living: list[tuple[Request, int]] = []
    loaded = 0
    for _ in range(1200):
        action = draw.randrange(1000)
        if action < 250 and len(living) < 4:
            living.append((Request(engine, chain(draw.choice(prompts)), groups=2), 0))
        elif action < 600 and living:
            place = draw.randrange(len(living))
            request, stored = living[place]
            full, windowed = request.chains
            if stored == 0:
                on_gpu = draw.choice([0, 0, draw.randint(0, len(full))])
                hits = on_gpu
                while hits < len(full) and manager.lookup(full[hits], request.context) is HIT:
                    hits += 1
                needed = windowed[max(hits - window, on_gpu) : hits]
                if hits > on_gpu and all(manager.lookup(key, request.context) is HIT for key in reversed(needed)):
                    wanted = full[on_gpu:hits] + needed
                    reading.append((wanted, manager.prepare_load(wanted, request.context), request.context))
                    stored = hits
            until = min(len(full), stored + draw.randint(1, 5))
            offered = full[stored:until] + windowed[max(stored, until - window) : until]
            if offered:
                taken = engine.begin_store(offered, request.context)
                if taken:
                    writing.append((set(taken), request.context))
                stored = until if taken is not None else stored
            living[place] = (request, stored)
            if stored == len(full):
                request.finish()
                del living[place]
        elif action < 780 and writing:
            done, context = writing.pop(draw.randrange(len(writing)))
            manager.complete_store(done, context, draw.random() < 0.95)
        elif action < 900 and reading:
            wanted, spec, context = reading.pop(draw.randrange(len(reading)))
            for key, row in zip(wanted, spec.chunk_ids, strict=True):
                assert engine.rows[row].tobytes() == content(key)
                loaded += 1
            manager.complete_load(set(wanted), context)
        elif action < 990:
            engine.step()
            manager.on_reset_flushed()  # nobody works on what was under way before
        elif action < 997 and living:
            living.pop(draw.randrange(len(living)))[0].finish()  # aborted
        elif action >= 998:
            manager.reset_cache()
            writing.clear()
            reading.clear()
            living.clear()
    assert loaded > 0
    engine.close()


def test_a_storage_that_is_slower_than_compute_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("terrace_kv.vllm.guard._EVIDENCE", 0.0)
    first = Engine(tmp_path, chunks=64)
    Request(first, keys(60)).run()
    first.settle()
    first.close()
    second = Engine(tmp_path, chunks=64, prefill_speed=1e6)
    poll = second.manager._cache.poll
    second.manager._cache.poll = lambda: []  # nothing comes
    assert Request(second, keys(20)).look_up() == [PENDING] * 20
    second.step()
    while second.manager._guard.allows("nobody", 0.0):
        second.step()
    assert Request(second, keys(21)).look_up() == [PENDING] * 20 + [MISS], "no more is read"
    counts = second.manager.get_stats().data["data"]
    assert counts["vllm:kv_offload_terrace_declined"][("terrace",)] >= 1
    second.manager._cache.poll = poll
    second.close()


def test_the_speed_of_compute_is_learned_from_what_is_stored(engine: Engine) -> None:
    """Chunks that the GPU has are offered, too, and were not computed."""
    learned: list[float] = []
    engine.manager._guard.computed = learned.append
    engine.manager._below = True  # only then it matters
    on_gpu = Request(engine, keys(6))
    assert on_gpu.look_up(first=2) == [MISS]
    on_gpu.store(on_gpu.chains[0][:4])
    on_gpu.store(on_gpu.chains[0][4:])
    assert sum(learned) == 4 * TOKENS
    on_gpu.finish()
    loading = Request(engine, keys(8))
    loading.load(loading.chains[0][:6])
    loading.store(loading.chains[0][6:])
    assert sum(learned) == 6 * TOKENS
    unknown = Request(engine, keys(2, 60))
    unknown.store(unknown.chains[0])
    assert sum(learned) == 6 * TOKENS, "nobody has asked for these, so they may be the GPU's"
