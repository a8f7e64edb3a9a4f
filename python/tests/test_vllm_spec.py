"""TerraceOffloadingSpec and its manager under the calls that vLLM's scheduler makes. Over the installed vLLM, or a stand-in."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import admin_endpoint
import numpy as np
import pytest
import vllm_modules  # noqa: F401  (before vLLM)
from vllm_modules import ROW, SpecEngine, config, damage, keys, model, vllm_config

from vllm.v1.kv_offload.base import LookupResult, Medium, ReqContext  # isort: skip
from vllm.v1.kv_offload.config import OffloadingModelConfig

from terrace_kv import InvalidArgument
from terrace_kv.vllm import TerraceOffloadingSpec

HIT, MISS, PENDING = LookupResult.HIT, LookupResult.MISS, LookupResult.HIT_PENDING


def content(key: bytes) -> bytes:
    return np.random.default_rng(int.from_bytes(key[:8], "little")).bytes(ROW)


class Engine(SpecEngine):
    """vLLM's scheduler and a worker, which fills and reads rows of the shared region."""

    def __init__(
        self,
        path: Path | None = None,
        *,
        chunks: int = 8,
        engine_id: str = "engine",
        vllm_config: Any = None,
        of_model: str = "a model",
        **options: Any,
    ) -> None:
        terrace: dict[str, Any] = {"weights_revision": "1", **options}
        if path is not None:
            terrace = {"path": str(path), "capacity": "4MiB", **terrace}
        rows = chunks + (2 if path is not None or "shared" in options else 0)  # staging
        extra = {"cpu_bytes_to_use": rows * ROW, "terrace": terrace}
        named = OffloadingModelConfig(name=of_model, dtype="bfloat16")
        self.spec = TerraceOffloadingSpec(config(extra_config=extra, engine_id=f"{engine_id} {uuid4()}", model=named))
        self.manager: Any = self.spec.get_manager()
        self.rows = np.frombuffer(self.manager._view, dtype=np.int8).reshape(rows, ROW)
        self.request = ReqContext(req_id="a request")

    def store(self, wanted: list[bytes], *, success: bool = True, complete: bool = True) -> Any:
        output = self.manager.prepare_store(wanted, self.request)
        if output is not None and output.keys_to_store:
            for key, row in zip(output.keys_to_store, output.store_spec.chunk_ids):
                self.rows[row] = np.frombuffer(content(key), dtype=np.int8)
            if complete:
                self.manager.complete_store(set(output.keys_to_store), self.request, success)
        return output

    def load(self, wanted: list[bytes]) -> None:
        """Prepares a load, compares the rows, and completes it."""
        spec = self.manager.prepare_load(wanted, self.request)
        for key, row in zip(wanted, spec.chunk_ids):
            assert self.rows[row].tobytes() == content(key)
        self.manager.complete_load(set(wanted), self.request)

    def look_up(self, wanted: list[bytes]) -> list[LookupResult]:
        return [self.manager.lookup(key, self.request) for key in wanted]

    def wait(self) -> None:
        """Steps until storage has brought what was wanted."""
        self.step()
        while self.manager.has_pending_work():
            self.manager._cache.wait(1.0)
            self.step()


@pytest.fixture
def engine() -> Iterator[Engine]:
    made = Engine()
    yield made
    made.close()


@pytest.fixture
def stored(tmp_path: Path) -> Iterator[Engine]:
    made = Engine(tmp_path)
    yield made
    made.close()


def test_chunks_are_hits_when_workers_have_written_them(engine: Engine) -> None:
    assert engine.look_up(keys(2)) == [MISS, MISS]
    output = engine.store(keys(2), complete=False)
    assert output.keys_to_store == keys(2) and output.evicted_keys == []
    assert engine.look_up(keys(2)) == [PENDING, PENDING]
    engine.manager.complete_store(set(keys(2)), engine.request)
    assert engine.look_up(keys(3)) == [HIT, HIT, MISS]
    engine.load(keys(2)[::-1])


def test_a_line_a_minute_says_what_was_loaded_and_the_store_whose_it_is(stored: Engine, tmp_path: Path) -> None:
    said: list[str] = []
    minute = stored.manager._minute
    minute._say = said.append
    minute.step(minute._ends)
    assert said == [], "nothing has happened"
    stored.store(keys(3))
    stored.load(keys(1))
    minute.step(minute._ends)
    assert len(said) == 1 and "1 chunks were loaded and 3 computed and stored (hit rate 25 %)" in said[0]
    (lock,) = tmp_path.rglob("lock")
    assert b"\ntext vLLM " in lock.read_bytes()


def test_an_operator_who_clears_between_steps_is_heard_and_one_within_a_step_waits(tmp_path: Path) -> None:
    socket = tmp_path / "s"
    admin = {"listen": f"unix:{socket}", "interval": "10ms", "command-deadline": "300ms"}
    made = Engine(config={"admin": admin})
    try:
        chunks = keys(2)
        made.store(chunks)
        made.step()
        assert admin_endpoint.ask(socket, "POST", "/v1/clear")[0] in (200, 202), "although the engine is idle"
        assert made.look_up(chunks) == [LookupResult.MISS] * 2
        made.store(chunks)
        made.step()
        assert made.look_up(chunks) == [LookupResult.HIT] * 2
        assert admin_endpoint.ask(socket, "POST", "/v1/clear")[0] == 503, "a hit stays one to the end of the step"
        made.load(chunks)
        made.step()
        assert admin_endpoint.ask(socket, "POST", "/v1/clear")[0] in (200, 202)
        assert made.look_up(chunks) == [LookupResult.MISS] * 2
        made.step()
        status, answer = admin_endpoint.ask(socket, "POST", "/v1/record", {"time": "1s"})
        assert status == 409 and "orders jobs" in answer["error"], "not a recording of no request"
    finally:
        made.close()


def test_while_an_operator_has_cleared_the_cache_chunks_are_not_stored_and_not_found(tmp_path: Path) -> None:
    made = Engine(tmp_path / "kv", config={"admin": {"listen": f"unix:{tmp_path / 's'}", "interval": "10ms"}})
    try:
        made.store(keys(2))
        made.step()
        assert admin_endpoint.ask(tmp_path / "s", "POST", "/v1/clear", {"wait": True})[0] in (200, 202)
        made.manager.on_new_request(ReqContext(req_id="a request", kv_transfer_params={"terrace": {"pin_for": 9}}))
        assert made.look_up(keys(2)) == [MISS] * 2
        output = made.store(keys(2))
        assert output.keys_to_store == [], "and vLLM does not try it again in each step"
        made.manager.on_request_finished(made.request)
        made.step()
        while admin_endpoint.ask(tmp_path / "s", "POST", "/v1/resume")[0] == 409:
            made.step()
        assert made.store(keys(2)).keys_to_store == keys(2) and made.look_up(keys(2)) == [HIT] * 2
    finally:
        made.close()


def test_only_new_chunks_are_stored(engine: Engine) -> None:
    engine.store(keys(2))
    assert engine.store(keys(3)).keys_to_store == keys(3)[2:]
    again = engine.store(keys(3))
    assert again.keys_to_store == [] and list(again.store_spec.chunk_ids) == []


def test_chunks_that_a_worker_could_not_write_are_gone(engine: Engine) -> None:
    engine.store(keys(2), success=False)
    assert engine.look_up(keys(2)) == [MISS, MISS]
    assert engine.store(keys(8)).keys_to_store == keys(8), "their rows are free again"


def test_a_full_tier_gives_up_the_oldest_chunks(engine: Engine) -> None:
    for first in (0, 4):
        engine.store(keys(4, first))
    engine.load(keys(4))
    output = engine.store(keys(4, 8))
    assert sorted(output.evicted_keys) == sorted(keys(4, 4)), "those that were not loaded since"
    assert engine.look_up(keys(12)) == [HIT] * 4 + [MISS] * 4 + [HIT] * 4


def test_of_one_prefix_the_end_goes_first(engine: Engine) -> None:
    engine.store(keys(8))
    engine.store(keys(3, 20))
    assert engine.look_up(keys(8)) == [HIT] * 5 + [MISS] * 3


def test_chunks_in_use_are_not_given_up(engine: Engine) -> None:
    engine.store(keys(8))
    spec = engine.manager.prepare_load(keys(8), engine.request)
    assert engine.store(keys(1, 20)) is None, "every row is read"
    other = ReqContext(req_id="another")
    again = engine.manager.prepare_load(keys(8), other)
    assert list(again.chunk_ids) == list(spec.chunk_ids)
    engine.manager.complete_load(set(keys(8)), engine.request)
    assert engine.store(keys(1, 20)) is None, "the other request still reads them"
    engine.manager.complete_load(set(keys(8)), other)
    assert engine.store(keys(1, 20)).keys_to_store == keys(1, 20)


def test_as_many_chunks_are_stored_as_there_are_rows(engine: Engine) -> None:
    engine.store(keys(6), complete=False)
    output = engine.store(keys(4, 20))
    assert output.keys_to_store == keys(2, 20)
    assert engine.look_up(keys(4, 20)) == [HIT, HIT, MISS, MISS]


def test_storage_brings_chunks_back(stored: Engine) -> None:
    stored.store(keys(4))
    stored.settle()
    stored.store(keys(8, 20))
    stored.settle()
    assert stored.look_up(keys(4)) == [PENDING] * 4
    assert stored.look_up(keys(4)) == [PENDING] * 4, "asked for once"
    stored.wait()
    assert stored.look_up(keys(4)) == [HIT] * 4
    assert stored.manager.get_load_source(keys(1)[0], stored.request).name == "DISK"
    stored.load(keys(4))
    stored.manager.on_request_finished(stored.request)
    assert stored.manager.get_load_source(keys(1)[0], stored.request).name == "HOST"


def test_chunks_survive_a_restart(tmp_path: Path) -> None:
    first = Engine(tmp_path)
    first.store(keys(5))
    first.close()
    second = Engine(tmp_path)
    assert second.look_up(keys(6)) == [PENDING] * 5 + [MISS]
    second.wait()
    assert second.look_up(keys(5)) == [HIT] * 5
    second.load(keys(5))
    second.close()


def test_other_weights_miss(tmp_path: Path) -> None:
    first = Engine(tmp_path)
    first.store(keys(2))
    first.close()
    second = Engine(tmp_path, weights_revision="2")
    assert second.look_up(keys(2)) == [MISS, MISS]
    second.close()


def test_an_adapter_that_is_replaced_is_a_miss(tmp_path: Path) -> None:
    adapter = model(tmp_path / "a", b"version 1", "adapter_model.safetensors")
    whole = vllm_config(lora_config=SimpleNamespace(default_mm_loras=None))
    started = {"of_model": str(model(tmp_path / "model")), "vllm_config": whole, "weights_revision": None}
    with pytest.raises(ValueError, match="LoRA is on"):
        Engine(tmp_path, **started)
    found = []
    for version in (b"version 1", b"version 1", b"version 2"):
        (adapter / "adapter_model.safetensors").write_bytes(version)
        engine = Engine(tmp_path, adapters=[str(adapter)], **started)
        found += engine.look_up(keys(1))
        engine.wait()
        engine.store(keys(1))
        engine.settle()
        engine.close()
    assert found == [MISS, PENDING, MISS]


def test_a_damaged_chunk_is_a_miss(tmp_path: Path) -> None:
    first = Engine(tmp_path)
    first.store(keys(3))
    first.close()
    damage(tmp_path, content(keys(3)[1]))
    second = Engine(tmp_path)
    second.look_up(keys(3))
    second.wait()
    assert second.look_up(keys(3)) == [HIT, MISS, HIT]
    second.load([keys(3)[0], keys(3)[2]])
    assert second.store(keys(3)).keys_to_store == keys(3)[1:2], "it is stored again"
    assert statistics(second)["damaged"] == 1
    second.close()


def statistics(engine: Engine) -> dict[str, Any]:
    data = engine.manager.get_stats().data["data"]
    return {name.removeprefix("vllm:kv_offload_terrace_"): next(iter(each.values())) for name, each in data.items()}


def test_a_chunk_that_came_and_went_is_not_fetched_for_ever(stored: Engine) -> None:
    stored.store(keys(1))
    stored.settle()
    for _ in range(2):
        stored.store(keys(8, 20))
        stored.store(keys(8, 40))
    assert stored.look_up(keys(1)) == [PENDING]
    stored.wait()
    stored.store(keys(8, 60))
    stored.settle()
    assert stored.look_up(keys(1)) == [MISS], "the same request computes it"
    other = ReqContext(req_id="another")
    assert stored.manager.lookup(keys(1)[0], other) is PENDING


def test_a_request_that_ends_wants_nothing(stored: Engine) -> None:
    stored.store(keys(1))
    stored.settle()
    stored.store(keys(8, 20))
    assert stored.look_up(keys(1)) == [PENDING]
    stored.manager.on_request_finished(stored.request)
    stored.step()
    assert not stored.manager.has_pending_work()
    assert stored.look_up(keys(1)) == [PENDING], "it may be asked for again"


@pytest.mark.parametrize("weights_fixed", [False, True])
def test_rows_in_use_stay_out_of_use_after_a_reset(weights_fixed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("terrace_kv.vllm.manager._HAS_FENCE", False)  # as before vLLM 0.33
    engine = Engine(weights_fixed=weights_fixed)
    engine.store(keys(3, 10))
    reading = engine.manager.prepare_load(keys(2, 10), engine.request).chunk_ids
    writing = engine.store(keys(2), complete=False).store_spec.chunk_ids
    engine.manager.reset_cache()
    assert engine.look_up(keys(2)) == [MISS, MISS], "nobody will complete them"
    assert engine.look_up(keys(3, 10)) == [HIT if weights_fixed else MISS] * 3
    busy = {*reading, *writing}
    output = engine.store(keys(8, 20), complete=False)
    assert output.keys_to_store and not busy.intersection(output.store_spec.chunk_ids)
    engine.manager.complete_store(set(output.keys_to_store), engine.request)
    for _ in range(6):
        engine.step()
    rows = engine.store(keys(8, 40)).store_spec.chunk_ids
    assert busy.intersection(rows)
    engine.close()


@pytest.mark.parametrize("keep_storage", [False, True])
def test_a_reset_leaves_storage_to_the_next_start_only_if_told(tmp_path: Path, keep_storage: bool) -> None:
    first = Engine(tmp_path, keep_storage=keep_storage)
    first.store(keys(2))
    first.settle()
    first.manager.reset_cache()
    assert first.look_up(keys(2)) == [MISS, MISS], "the weights may be others now"
    first.store(keys(2))
    assert first.look_up(keys(2)) == [HIT, HIT]
    first.close()
    second = Engine(tmp_path)
    assert second.look_up(keys(2)) == [PENDING if keep_storage else MISS] * 2
    if keep_storage:
        second.wait()
        second.load(keys(2))
    second.close()


def test_events_name_medium_and_removal(stored: Engine) -> None:
    stored.store(keys(2))
    stored.settle()
    events = list(stored.manager.take_events())
    assert [(event.medium, event.removed, sorted(event.keys)) for event in events] == [
        (Medium.CPU, False, keys(2)),
        (Medium.STORAGE, False, keys(2)),
    ]
    assert events[0].ownership is None and events[1].ownership == "terrace"
    for first in range(20, 44, 8):
        stored.store(keys(8, first))
    removed = [key for event in stored.manager.take_events() if event.removed and event.medium is Medium.CPU for key in event.keys]
    assert set(keys(2)) <= set(removed)


def told(engine: Engine) -> list[tuple[Medium, bool, list[bytes]]]:
    return [(event.medium, event.removed, sorted(event.keys)) for event in engine.manager.take_events()]


def test_a_chunk_from_the_disk_is_told_once_it_is_a_hit(tmp_path: Path) -> None:
    """Before, vLLM does not know its tokens, and would publish an event without them."""
    first = Engine(tmp_path)
    first.store(keys(2))
    first.close()
    second = Engine(tmp_path)
    assert second.look_up(keys(2)) == [PENDING] * 2
    second.wait()
    assert told(second) == []
    assert second.look_up(keys(1)) == [HIT]
    assert told(second) == [(Medium.CPU, False, keys(1)), (Medium.STORAGE, False, keys(1))]
    assert second.look_up(keys(2)) == [HIT] * 2
    assert told(second) == [(Medium.CPU, False, keys(1, 1)), (Medium.STORAGE, False, keys(1, 1))]
    for number in range(20, 44, 8):
        second.store(keys(8, number))
    gone = [key for medium, removed, its in told(second) if removed and medium is Medium.CPU for key in its]
    assert set(keys(2)) <= set(gone)
    second.manager._cache.clear()
    second.manager._follow()
    assert second.manager._described == set()
    second.close()


def test_a_chunk_that_goes_before_it_is_a_hit_is_not_told(tmp_path: Path) -> None:
    first = Engine(tmp_path)
    first.store(keys(1))
    first.close()
    second = Engine(tmp_path)
    assert second.look_up(keys(1)) == [PENDING]
    second.wait()
    for number in range(20, 44, 8):
        second.store(keys(8, number))
    assert second.look_up(keys(1)) != [HIT]
    assert not any(set(keys(1)) & set(its) for _medium, _removed, its in told(second))
    second.close()


def test_a_reset_ends_when_vllm_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """As since vLLM 0.33: however many steps it takes."""
    monkeypatch.setattr("terrace_kv.vllm.manager._HAS_FENCE", True)
    engine = Engine()
    engine.store(keys(3, 10))
    busy = {*engine.manager.prepare_load(keys(2, 10), engine.request).chunk_ids}
    engine.manager.reset_cache()
    busy.update(engine.store(keys(2), complete=False).store_spec.chunk_ids)
    engine.manager.reset_cache()
    for _ in range(50):
        engine.step()
    output = engine.store(keys(8, 20))
    assert len(output.keys_to_store) == 4 and not busy.intersection(output.store_spec.chunk_ids)
    engine.manager.on_reset_flushed()
    assert len(engine.store(keys(4, 40)).keys_to_store) == 4 and engine.look_up(keys(8, 20)).count(HIT) == 4
    engine.manager.on_reset_flushed()
    engine.close()


def test_what_did_not_come_is_told_to_who_has_noted_it(stored: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """As since vLLM 0.33, which takes HIT_PENDING for a chunk that is in host memory."""

    @dataclass
    class Event:
        keys: list[bytes]
        medium: Any
        removed: bool
        ownership: str | None = None
        removal_expected: bool = False
        metadata_only: bool = False

    stored.store(keys(2))
    stored.settle()
    stored.store(keys(8, 20))
    list(stored.manager.take_events())
    monkeypatch.setattr("terrace_kv.vllm.manager._HAS_METADATA", True)
    monkeypatch.setattr("terrace_kv.vllm.manager.OffloadingEvent", Event)
    assert stored.look_up(keys(2)) == [PENDING] * 2
    stored.manager.on_request_finished(stored.request)  # aborted before the end of the step
    (event,) = stored.manager.take_events()
    assert event.metadata_only and event.removed and event.medium is Medium.CPU and sorted(event.keys) == keys(2)
    assert stored.look_up(keys(2)) == [PENDING] * 2
    stored.wait()
    assert not any(event.metadata_only for event in stored.manager.take_events())


def test_a_fetch_that_has_ended_is_seen_by_the_stores_of_the_step(stored: Engine) -> None:
    """As in vLLM 0.33, where the end of the step comes after its stores."""
    stored.store(keys(3))
    stored.settle()
    stored.store(keys(8, 20))
    assert stored.look_up(keys(3)) == [PENDING] * 3
    stored.step()
    for _ in range(1000):
        stored.manager._cache.wait(0.01)
        stored.manager._collected = False  # as the end of a step does
        output = stored.store(keys(3))
        if output is not None and stored.look_up(keys(3)) == [HIT] * 3:
            break
    assert output.keys_to_store == [] and not stored.manager.has_pending_work()


def test_metrics_are_those_of_vllm_and_ours(engine: Engine) -> None:
    engine.store(keys(2), complete=False)
    values = engine.manager.get_stats().data["data"]
    assert values["vllm:kv_offload_cpu_cache_usage_perc"][()] == 2 / 8
    assert values["vllm:kv_offload_cpu_cache_write_usage_perc"][()] == 2 / 8
    assert values["vllm:kv_offload_cpu_allocation_size"][()] == [2]
    described = TerraceOffloadingSpec.build_metric_definitions({})
    assert all(name in described for name in values if "terrace" in name)


def test_memory_does_not_grow_with_what_has_gone(engine: Engine) -> None:
    for first in range(0, 800, 8):
        engine.store(keys(8, first))
    assert len(engine.manager._keys_by_name) == len(engine.manager._ready) == 8


def test_wrong_options_are_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="'capcity' is no option of TerraceOffloadingSpec; did you mean 'capacity'"):
        Engine(capcity="1GiB")
    with pytest.raises(ValueError, match="path and capacity belong together"):
        Engine(path=None, capacity="1GiB")
    with pytest.raises(InvalidArgument, match="polcy.*policy"):
        Engine(config={"polcy": "lru"})
    with pytest.raises(ValueError, match="at least 3 are needed"):
        Engine(tmp_path, chunks=0)
    with pytest.raises(ValueError, match="secondary_tiers belongs to vLLM"):
        TerraceOffloadingSpec(config(extra_config={"cpu_bytes_to_use": 8 * ROW, "secondary_tiers": [{"type": "fs"}]}))


@pytest.mark.parametrize("seed", range(20))
def test_any_order_of_calls_serves_the_right_bytes(tmp_path: Path, seed: int) -> None:
    """A scheduler with many requests, against the rule: a row that a load gets has the bytes of its key."""
    draw = random.Random(seed)
    directory = tmp_path if seed % 2 else None
    engine = Engine(directory, chunks=draw.choice([4, 8, 16]))
    requests = [ReqContext(req_id=str(i)) for i in range(4)]
    writing: list[tuple[set[bytes], ReqContext]] = []
    reading: list[tuple[list[bytes], Any, ReqContext]] = []
    loaded = 0
    for _ in range(1500):
        request = draw.choice(requests)
        some = [keys(1, number)[0] for number in sorted(draw.sample(range(20), draw.randint(1, 5)))]
        action = draw.randrange(1000)
        if action < 300:
            output = engine.manager.prepare_store(some, request)
            if output is not None and output.keys_to_store:
                for key, row in zip(output.keys_to_store, output.store_spec.chunk_ids):
                    engine.rows[row] = np.frombuffer(content(key), dtype=np.int8)
                writing.append((set(output.keys_to_store), request))
        elif action < 500 and writing:
            done, request = writing.pop(draw.randrange(len(writing)))
            engine.manager.complete_store(done, request, draw.random() < 0.9)
        elif action < 750:
            hits = [key for key in some if engine.manager.lookup(key, request) is HIT]
            if hits:
                reading.append((hits, engine.manager.prepare_load(hits, request), request))
        elif action < 900 and reading:
            hits, spec, request = reading.pop(draw.randrange(len(reading)))
            for key, row in zip(hits, spec.chunk_ids):
                assert engine.rows[row].tobytes() == content(key)
                loaded += 1
            engine.manager.complete_load(set(hits), request)
        elif action < 988:
            engine.step()
            engine.manager.on_reset_flushed()  # nobody works on what was under way before
        elif action < 997:
            engine.manager.on_request_finished(request)
        else:
            engine.manager.reset_cache()
            writing.clear()
            reading.clear()
    assert loaded > 0
    engine.close()


def ask(engine: Engine, wanted: list[bytes]) -> list[LookupResult]:
    """As vLLM's scheduler does: it asks in every step until no answer is RETRY."""
    for _ in range(1000):
        answers = engine.look_up(wanted)
        if LookupResult.RETRY not in answers:
            return answers
        engine.step()
        engine.manager._cache.wait(0.01)
    raise AssertionError("the shared store has not answered")


def sharing(number: int, **options: Any) -> Engine:
    shared = {"url": "memory:", "write-policy": "write-through", "probe-deadline": "10s"}
    return Engine(engine_id=f"engine {number}", shared=shared, **options)


def wait_until_shared(engine: Engine, chunks: int) -> None:
    while engine.manager._cache.statistics()["shared_written"] < chunks:
        engine.manager._cache.wait(0.1)
        engine.step()


def test_chunks_of_another_engine_come_through_a_shared_store() -> None:
    first, second = sharing(1), sharing(2)
    first.step()
    second.step()
    first.store(keys(3))
    wait_until_shared(first, 3)
    assert second.look_up(keys(4)) == [LookupResult.RETRY] * 4
    assert ask(second, keys(4)) == [PENDING] * 3 + [MISS]
    second.wait()
    assert second.look_up(keys(4)) == [HIT] * 3 + [MISS]
    assert second.manager.get_load_source(keys(1)[0], second.request).name == "DISK"
    second.load(keys(3))
    assert second.manager._cache.statistics()["loaded_shared"] == 3
    counts = statistics(second)
    assert counts["shared_chunks"] == 3 and not counts.get("read_chunks")
    first.close()
    second.close()


def test_a_chunk_that_the_shared_store_has_given_up_is_a_miss() -> None:
    first, second = sharing(1), sharing(2)
    first.step()
    second.step()
    first.store(keys(2))
    wait_until_shared(first, 2)
    assert ask(second, keys(2)) == [PENDING] * 2
    first.close()
    second.manager._cache.clear()  # from now on the shared store is not used, as if it had died
    second.wait()
    assert second.look_up(keys(2)) == [MISS] * 2
    assert second.manager._keys_by_name == {}
    second.close()


def test_copies_in_the_shared_store_are_neither_storage_nor_remembered() -> None:
    engine = sharing(1)
    engine.step()
    engine.store(keys(2))
    wait_until_shared(engine, 2)
    engine.step()
    assert {event.medium for event in engine.manager.take_events()} == {Medium.CPU}
    for stored in range(1, 5):
        engine.store(keys(8, 100 * stored))
        wait_until_shared(engine, 2 + 8 * stored)
    engine.step()
    assert len(engine.manager._keys_by_name) == len(engine.manager._ready)
    engine.close()


def test_a_reset_ends_the_use_of_a_shared_store() -> None:
    for fixed, left in ((False, MISS), (True, PENDING)):
        first, second = sharing(1), sharing(2, weights_fixed=fixed)
        first.step()
        second.step()
        first.store(keys(1))
        wait_until_shared(first, 1)
        second.manager.reset_cache()
        assert ask(second, keys(1)) == [left]
        first.close()
        second.close()
