"""TerraceTier under the calls that vLLM's tiering manager makes. Over the installed vLLM, or a stand-in of its classes."""

from __future__ import annotations

import dataclasses
import mmap
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import vllm_modules
from admin_endpoint import ask
from vllm_modules import ROW, ROWS, config, damage, keys, model, vllm_config

from vllm.v1.kv_offload.base import LookupResult, Medium, ReqContext  # isort: skip
from vllm.v1.kv_offload.config import OffloadingCacheConfig, OffloadingConfig, OffloadingGroupConfig, OffloadingModelConfig
from vllm.v1.kv_offload.tiering.base import TransferJob

from terrace_kv import Busy
from terrace_kv.vllm import TerraceTier

REQUEST = ReqContext(req_id="a request")


def spec(given: OffloadingConfig) -> Any:
    return SimpleNamespace(config=given, kv_events_config=SimpleNamespace(enable_kv_cache_events=given.enable_kv_cache_events))


class Engine:
    """The side of vLLM: memory in rows, a tier, and job numbers."""

    def __init__(
        self, path: Path, given: OffloadingConfig | None = None, *, vllm_config: Any = None, **options: Any
    ) -> None:
        self.memory = mmap.mmap(-1, ROW * ROWS)
        self.rows = np.frombuffer(self.memory, dtype=np.int8).reshape(ROWS, ROW)
        self.view = memoryview(self.rows)
        self.tier = TerraceTier(
            spec(given or config()), self.view, "terrace", None,
            **{"path": str(path), "capacity": "1MiB", "weights_revision": "1", **options},
        )  # fmt: skip
        self.jobs = 0

    def fill(self, row: int, seed: int) -> bytes:
        self.rows[row] = np.random.default_rng(seed).integers(-128, 128, ROW, dtype=np.int8)
        return self.rows[row].tobytes()

    def job(self, keys: list[bytes], rows: list[int], *, load: bool) -> int:
        self.jobs += 1
        job = TransferJob(
            job_id=self.jobs, keys=keys, chunk_ids=np.array(rows, dtype=np.int32), is_promotion=load, req_context=REQUEST
        )
        (self.tier.submit_load if load else self.tier.submit_store)(job)
        return self.jobs

    def finish(self, keys: list[bytes], rows: list[int], *, load: bool) -> Any:
        number = self.job(keys, rows, load=load)
        (result,) = self.results(1)
        assert result.job_id == number
        return result

    def results(self, count: int) -> list[Any]:
        """Waits for so many results."""
        found = list(self.tier.get_finished_jobs())
        while len(found) < count:
            self.tier._store.wait(1.0)
            found += self.tier.get_finished_jobs()
        return found

    def look_up(self, keys: list[bytes]) -> list[bool]:
        return [self.tier.lookup(key, REQUEST) is LookupResult.HIT for key in keys]

    def counters(self) -> dict[str, float]:
        self.tier._next_report = 0.0
        stats = self.tier.get_stats()
        return {name.removeprefix("vllm:kv_offload_terrace_"): each[("terrace",)] for name, each in stats.data["data"].items()}

    def close(self) -> None:
        self.tier.shutdown()
        self.view.release()
        del self.rows
        self.memory.close()  # raises BufferError if anybody still has the memory


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    made = Engine(tmp_path)
    yield made
    made.close()


def test_chunks_come_back(engine: Engine) -> None:
    content = [engine.fill(row, row) for row in range(3)]
    assert engine.look_up(keys(3)) == [False] * 3
    stored = engine.finish(keys(3), [0, 1, 2], load=False)
    assert stored.success and stored.transfer_bytes == 3 * ROW and stored.transfer_time > 0
    assert engine.look_up(keys(4)) == [True, True, True, False]
    engine.rows[:] = 0
    loaded = engine.finish(keys(3), [7, 9, 8], load=True)
    assert loaded.success and loaded.transfer_bytes == 3 * ROW
    assert [engine.rows[row].tobytes() for row in (7, 9, 8)] == content
    counts = engine.tier._store.statistics()
    assert (counts["asked"], counts["found"]) == (3 + 1 + 3, 3), "misses, and what was loaded"


def test_chunks_survive_a_restart(tmp_path: Path) -> None:
    first = Engine(tmp_path)
    content = first.fill(0, 5)
    first.finish(keys(1), [0], load=False)
    first.close()
    second = Engine(tmp_path)
    assert second.look_up(keys(1)) == [True]
    assert second.finish(keys(1), [4], load=True).success
    assert second.rows[4].tobytes() == content
    second.close()


@pytest.mark.parametrize(
    "change",
    [
        {"model": OffloadingModelConfig(name="another", dtype="bfloat16")},
        {"model": OffloadingModelConfig(name="a model", dtype="float16")},
        {"kv_cache_layout": "HND"},
        {"canonical_layout": True},
        {"replicated_layout": True},
        {"cache": OffloadingCacheConfig(tokens_per_hash=16, blocks_per_chunk=2)},
        {"groups": (OffloadingGroupConfig(tokens_per_block=16, layer_names=("layer.0",), group_id=0),)},
        {"parallel": dataclasses.replace(config().parallel, tp_size=2, world_size=2)},
    ],
    ids=lambda change: next(iter(change)),
)
def test_chunks_of_another_engine_are_misses(tmp_path: Path, change: dict[str, Any]) -> None:
    first = Engine(tmp_path)
    first.finish(keys(1), [0], load=False)
    first.close()
    second = Engine(tmp_path, config(**change))
    assert second.look_up(keys(1)) == [False]
    second.close()


def started(tmp_path: Path, whole: Any = None, **options: Any) -> Engine:
    """An engine of a model whose weights have no stated name."""
    given = config(model=OffloadingModelConfig(name=str(tmp_path / "model"), dtype="bfloat16"))
    return Engine(tmp_path, given, vllm_config=whole or vllm_config(), weights_revision=None, **options)


def finds(tmp_path: Path, whole: Any = None, **options: Any) -> bool:
    """Whether an engine finds the chunk that the first engine of a test has stored; the first stores it."""
    engine = started(tmp_path, whole, **options)
    (found,) = engine.look_up(keys(1))
    engine.finish(keys(1), [0], load=False)
    engine.close()
    return found


def test_chunks_of_other_weights_are_misses(tmp_path: Path) -> None:
    model(tmp_path / "model")
    assert not finds(tmp_path)
    assert finds(tmp_path)
    model(tmp_path / "model", b"other weight")
    assert not finds(tmp_path)


ADAPTERS = SimpleNamespace(default_mm_loras=None)


def test_an_adapter_that_is_replaced_is_a_miss(tmp_path: Path) -> None:
    model(tmp_path / "model")
    adapter = model(tmp_path / "a", b"version 1", "adapter_model.safetensors")
    engine = {"whole": vllm_config(lora_config=ADAPTERS), "adapters": [str(adapter)]}
    assert not finds(tmp_path, **engine)
    assert finds(tmp_path, **engine)
    (adapter / "adapter_model.safetensors").write_bytes(b"version 2")
    assert not finds(tmp_path, **engine)
    (adapter / "adapter_config.json").write_text('{"lora_alpha": 32}')
    assert not finds(tmp_path, **engine)


def test_adapters_that_nobody_names_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model(tmp_path / "model")
    whole = vllm_config(lora_config=ADAPTERS)
    with pytest.raises(ValueError, match="LoRA is on, .* paths of all adapters as the list adapters, or state weights_revision"):
        started(tmp_path, whole)
    with pytest.raises(ValueError, match="the adapter .*/a has no weight files|the adapter .*/a: .* is neither a directory"):
        started(tmp_path, whole, adapters=[str(tmp_path / "a")])
    with pytest.raises(ValueError, match="adapters is a text; give a list"):
        started(tmp_path, whole, adapters=str(tmp_path / "a"))
    monkeypatch.setenv("VLLM_ALLOW_RUNTIME_LORA_UPDATING", "True")
    with pytest.raises(ValueError, match="adapters may come while the engine runs .*; state weights_revision"):
        started(tmp_path, whole, adapters=[])
    Engine(tmp_path, vllm_config=whole, weights_revision="of all that is loaded").close()


def test_what_vllm_does_not_show_is_refused(tmp_path: Path) -> None:
    model(tmp_path / "model")
    given = config(model=OffloadingModelConfig(name=str(tmp_path / "model"), dtype="bfloat16"))
    with pytest.raises(ValueError, match="vLLM's configuration is not to be seen here.*; state weights_revision"):
        Engine(tmp_path, given, weights_revision=None)
    for model_config, load_format in ((SimpleNamespace(hf_overrides=repr), "auto"), (None, "tensorizer")):
        whole = vllm_config(model_config=model_config, load_config=SimpleNamespace(load_format=load_format))
        with pytest.raises(ValueError, match="state weights_revision"):
            started(tmp_path, whole)


def test_each_file_that_vllm_loads_by_name_counts_by_its_content(tmp_path: Path) -> None:
    model(tmp_path / "model")
    draft, media = model(tmp_path / "draft"), model(tmp_path / "media")
    scales = tmp_path / "scales.json"
    scales.write_text("1")
    whole = vllm_config(
        speculative_config=SimpleNamespace(draft_model_config=SimpleNamespace(model=str(draft))),
        lora_config=SimpleNamespace(default_mm_loras={"audio": str(media)}),
        model_config=SimpleNamespace(multimodal_config=SimpleNamespace(mm_encoder_fp8_scale_path=str(scales))),
    )
    assert not finds(tmp_path, whole, adapters=[])
    of_media = tmp_path / "model" / "preprocessor_config.json"
    for file in (draft / "model.safetensors", media / "model.safetensors", scales, of_media):
        assert finds(tmp_path, whole, adapters=[])
        file.write_bytes(b"replaced")
        assert not finds(tmp_path, whole, adapters=[]), file
    (tmp_path / "model" / "tokenizer.json").write_text("{}")
    assert finds(tmp_path, whole, adapters=[]), "other texts of the same tokens"


def test_overrides_of_the_configuration_count(tmp_path: Path) -> None:
    model(tmp_path / "model")
    assert not finds(tmp_path)
    for changes in ({"hf_overrides": {"rope_theta": 1e6}}, {"quantization": "fp8"}, {"max_model_len": 4096}):
        assert not finds(tmp_path, vllm_config(model_config=SimpleNamespace(**changes)))
        assert finds(tmp_path, vllm_config(model_config=SimpleNamespace(**changes)))


def test_another_use_of_the_weights_is_another_namespace(tmp_path: Path) -> None:
    weights = tmp_path / "model"
    weights.mkdir()
    found = []
    for theta in (10000, 10000, 500000):
        (weights / "config.json").write_text(f'{{"rope_theta": {theta}}}')
        engine = Engine(tmp_path, config(model=OffloadingModelConfig(name=str(weights), dtype="bfloat16")))
        found += engine.look_up(keys(1))
        engine.finish(keys(1), [0], load=False)
        engine.close()
    assert found == [False, True, False]


def test_another_attention_backend_is_another_namespace(tmp_path: Path) -> None:
    first = Engine(tmp_path, attention_backend="FLASH_ATTN")
    first.finish(keys(1), [0], load=False)
    first.close()
    second = Engine(tmp_path, attention_backend="FLASHINFER")
    assert second.look_up(keys(1)) == [False]
    second.close()


def test_replicas_have_stores_of_their_own(tmp_path: Path) -> None:
    parallel = dataclasses.replace(config().parallel, data_parallel_size=2)
    engines = [Engine(tmp_path, config(parallel=dataclasses.replace(parallel, data_parallel_index=i))) for i in range(2)]
    engines[0].finish(keys(1), [0], load=False)
    assert [engine.look_up(keys(1)) for engine in engines] == [[True], [False]]
    for engine in engines:
        engine.close()


def test_a_damaged_chunk_fails_alone(tmp_path: Path) -> None:
    first = Engine(tmp_path)
    content = [first.fill(row, row) for row in range(3)]
    first.finish(keys(3), [0, 1, 2], load=False)
    first.close()
    damage(tmp_path, content[1])
    second = Engine(tmp_path)
    assert second.look_up(keys(3)) == [True] * 3
    result = second.finish(keys(3), [0, 1, 2], load=True)
    assert not result.success
    assert list(result.successful_keys) == [keys(3)[0], keys(3)[2]]
    assert [second.rows[row].tobytes() for row in (0, 2)] == [content[0], content[2]]
    assert second.look_up(keys(3)) == [True, False, True], "a damaged chunk is a miss from now on"
    assert second.counters()["damaged"] == 1
    second.fill(5, 1)
    assert second.finish(keys(3)[1:2], [5], load=False).success, "it is stored again"
    assert second.look_up(keys(3)) == [True] * 3
    second.close()


def test_a_chunk_evicted_before_its_load_is_a_failed_load(engine: Engine) -> None:
    engine.finish(keys(2), [0, 1], load=False)
    assert engine.look_up(keys(2)) == [True, True]
    engine.tier._store.remove(keys(1))  # nobody has told the tier yet
    result = engine.finish(keys(2), [4, 5], load=True)
    assert not result.success and list(result.successful_keys) == keys(2)[1:]
    assert engine.look_up(keys(2)) == [False, True]
    assert engine.counters()["gone"] == 1


def test_a_full_store_gives_up_the_oldest_chunks(engine: Engine) -> None:
    room = engine.tier._store.statistics()["capacity_blocks"]
    chunks = 2 * room // ROWS * ROWS
    for first in range(0, chunks, ROWS):
        engine.finish(keys(ROWS, first), list(range(ROWS)), load=False)
    found = engine.look_up(keys(chunks))
    assert not any(found[:ROWS]) and found[-1]
    assert sum(found) <= room
    counters = engine.counters()
    assert counters["evicted"] >= chunks - room and counters["chunks"] == sum(found)


def test_a_touched_chunk_stays(engine: Engine) -> None:
    room = engine.tier._store.statistics()["capacity_blocks"]
    engine.finish(keys(1), [0], load=False)
    for first in range(1, 2 * room, 8):
        engine.tier.touch(keys(1), REQUEST)
        engine.finish(keys(8, first), list(range(8)), load=False)
    assert engine.look_up(keys(2)) == [True, False]


def test_stored_chunks_are_not_written_again(engine: Engine) -> None:
    engine.finish(keys(2), [0, 1], load=False)
    written = engine.tier._store.statistics()["written_bytes"]
    again = engine.finish(keys(2), [0, 1], load=False)
    assert again.success and again.transfer_bytes == 0
    assert engine.finish(keys(3), [0, 1, 2], load=False).transfer_bytes == ROW
    assert engine.tier._store.statistics()["written_bytes"] == written + ROW


def test_too_many_stores_are_dropped(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine.tier._store, "submit_put", refuse(times=1))
    number = engine.job(keys(2), [0, 1], load=False)
    (result,) = engine.tier.get_finished_jobs()
    assert result.job_id == number and not result.success
    assert engine.counters()["dropped"] == 2
    assert engine.look_up(keys(2)) == [False, False]


def refuse(times: int, otherwise: Callable[..., None] | None = None) -> Callable[..., None]:
    left = [times]

    def call(*arguments: Any, **options: Any) -> None:
        if left[0] > 0:
            left[0] -= 1
            raise Busy(13, "too much is under way")
        assert otherwise is not None
        otherwise(*arguments, **options)

    return call


def test_too_many_loads_wait(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    content = engine.fill(0, 1)
    engine.finish(keys(2), [0, 1], load=False)
    real = engine.tier._store.submit_get
    engine.job(keys(1), [4], load=True)
    monkeypatch.setattr(engine.tier._store, "submit_get", refuse(1, real))
    engine.job(keys(1), [5], load=True)
    assert [result.success for result in engine.results(2)] == [True, True]
    assert engine.rows[5].tobytes() == content


def test_a_load_that_never_fits_fails(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    engine.finish(keys(1), [0], load=False)
    monkeypatch.setattr(engine.tier._store, "submit_get", refuse(9))
    assert not engine.finish(keys(1), [5], load=True).success


def test_events_follow_the_store(tmp_path: Path) -> None:
    engine = Engine(tmp_path, enable_kv_events=True, locality="LOCAL")
    engine.finish(keys(3), [0, 1, 2], load=False)
    stored = list(engine.tier.take_events())
    assert sorted(key for event in stored for key in event.keys) == sorted(keys(3))
    for event in stored:
        assert not event.removed and event.medium is Medium.STORAGE and event.locality.value == "LOCAL"
        assert event.ownership == "terrace" and event.removal_expected
    engine.tier._store.remove(keys(2))
    assert list(engine.tier.get_finished_jobs()) == []
    removed = list(engine.tier.take_events())
    assert sorted(key for event in removed for key in event.keys) == sorted(keys(2))
    assert all(event.removed for event in removed)
    assert list(engine.tier.take_events()) == []
    engine.close()


def test_no_events_unless_both_sides_want_them(tmp_path: Path) -> None:
    for given, wanted in ((config(enable_kv_cache_events=False), True), (config(), False)):
        engine = Engine(tmp_path, given, enable_kv_events=wanted)
        engine.finish(keys(2), [0, 1], load=False)
        engine.tier._store.clear()
        assert list(engine.tier.get_finished_jobs()) == []
        assert list(engine.tier.take_events()) == []
        engine.close()


def test_metrics_are_described_and_reported(engine: Engine) -> None:
    engine.finish(keys(1), [0], load=False)
    described = {name.removeprefix("vllm:kv_offload_terrace_") for name in TerraceTier.build_metric_definitions({})}
    counters = engine.counters()
    assert set(counters) == described, "the first report has the counters that are 0, too"
    assert counters["chunks"] == 1 and counters["health"] == 0 and counters["under_way"] == 0
    assert engine.tier.get_stats() is None, "at most one report a second"


def test_a_line_a_minute_says_what_was_saved(engine: Engine) -> None:
    said: list[str] = []
    engine.tier._minute._say = said.append
    minute = engine.tier._minute
    engine.finish(keys(3), [0, 1, 2], load=False)
    engine.finish(keys(1), [4], load=True)
    engine.tier.on_schedule_end(None)
    assert said == [], "the minute is not over"
    minute.step(minute._ends)
    minute.step(minute._ends)
    assert len(said) == 1, "nothing happened in the second minute"
    assert "1 chunks that host memory lacked were loaded and 3 computed and stored (hit rate 25 %)" in said[0]


def test_the_store_says_whose_it_is(engine: Engine, tmp_path: Path) -> None:
    (lock,) = tmp_path.rglob("lock")
    label = next(line for line in lock.read_bytes().split(b"\n") if line.startswith(b"text "))
    assert label.startswith(b"text vLLM ") and b", model " in label and label.endswith(b", weights stated:1")


def test_counters_are_reported_once(engine: Engine) -> None:
    engine.finish(keys(1), [0], load=False)
    engine.tier._store.remove(keys(1))
    engine.finish(keys(1), [4], load=True)
    assert engine.counters()["gone"] == 1
    assert not engine.counters().get("gone")


def test_no_spinning_without_work(engine: Engine) -> None:
    engine.job(keys(1), [0], load=False)
    assert not engine.tier.has_pending_work()
    assert len(engine.results(1)) == 1


def test_drain_waits_for_all_jobs(engine: Engine) -> None:
    engine.job(keys(20), list(range(20)), load=False)
    engine.job(keys(1, 50), [30], load=True)
    engine.tier.drain_jobs()
    assert engine.tier._store.statistics()["batches"] == 0
    assert sorted(result.success for result in engine.tier.get_finished_jobs()) == [False, True]


def test_after_a_reset_weights_may_be_others(tmp_path: Path) -> None:
    for weights_fixed in (False, True):
        engine = Engine(tmp_path, weights_fixed=weights_fixed)
        engine.finish(keys(1), [0], load=False)
        engine.tier.drain_jobs()
        assert engine.look_up(keys(1)) == [weights_fixed]
        engine.finish(keys(1, 1), [1], load=False)
        assert engine.look_up(keys(1, 1)) == [True]
        engine.close()
    again = Engine(tmp_path)
    assert again.look_up(keys(2)) == [True, True], "the second engine has stored chunk 1 with the weights of the start"
    again.close()


def test_the_end_completes_writes(tmp_path: Path) -> None:
    first = Engine(tmp_path)
    first.job(keys(20), list(range(20)), load=False)
    first.close()
    second = Engine(tmp_path)
    assert second.look_up(keys(20)) == [True] * 20
    second.close()


def test_the_end_twice(engine: Engine) -> None:
    engine.tier.shutdown()
    engine.tier.shutdown()


def test_a_wrong_option_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="'flush_intervall' is no option of TerraceTier; did you mean 'flush_interval'"):
        Engine(tmp_path, flush_intervall="1s")
    with pytest.raises(ValueError, match="'capcity' is no option of TerraceTier; did you mean 'capacity'"):
        Engine(tmp_path, capcity="1GiB")
    with pytest.raises(ValueError, match='"capacity" must be the disk space of all directories'):
        Engine(tmp_path, capacity=None)


def test_operators_see_the_store_of_a_tier(tmp_path: Path) -> None:
    socket = tmp_path / "s"
    engine = Engine(tmp_path / "store", admin={"listen": f"unix:{socket}", "interval": "1ms"})
    engine.finish(keys(2), [0, 1], load=False)
    status, state = ask(socket, "GET", "/v1/status")
    assert (status, state["pools"][0]["block_bytes"]) == (200, engine.tier.block_size_bytes)
    engine.close()
    assert not socket.exists()


def test_a_directory_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(Exception, match=str(file)):
        Engine(file)


def test_weights_that_cannot_be_named_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="state weights_revision"):
        Engine(tmp_path, vllm_config=vllm_config(), weights_revision=None)


def test_a_second_engine_is_refused(engine: Engine, tmp_path: Path) -> None:
    with pytest.raises(Busy, match=str(tmp_path)):
        Engine(tmp_path)


def test_the_plug_in_names_the_tier() -> None:
    from vllm.v1.kv_offload.tiering.factory import SecondaryTierFactory

    from terrace_kv.vllm.plugin import register

    register()
    register()
    assert "terrace" in SecondaryTierFactory._registry
    if vllm_modules.IS_REAL:
        assert SecondaryTierFactory.get_tier_class({"type": "terrace"}) is TerraceTier


def look_up_shared(engine: Engine, wanted: list[bytes]) -> list[LookupResult]:
    """As vLLM's scheduler does: it asks in every step until no answer is RETRY."""
    for _ in range(1000):
        answers = [engine.tier.lookup(key, REQUEST) for key in wanted]
        if LookupResult.RETRY not in answers:
            return answers
        list(engine.tier.get_finished_jobs())
        engine.tier._store.wait(0.01)
    raise AssertionError("the shared store has not answered")


def test_chunks_of_another_engine_come_through_a_shared_store(tmp_path: Path) -> None:
    shared = {"shared": {"url": "memory:"}, "shared_probe_timeout": 10}
    first, second = Engine(tmp_path / "a", **shared), Engine(tmp_path / "b", **shared)
    content = [first.fill(row, row) for row in range(3)]
    assert first.finish(keys(3), [0, 1, 2], load=False).success
    assert second.tier.lookup(keys(1)[0], REQUEST) is LookupResult.RETRY
    assert look_up_shared(second, keys(4)) == [LookupResult.HIT] * 3 + [LookupResult.MISS]
    loaded = second.finish(keys(3), [5, 6, 7], load=True)
    assert loaded.success
    assert [second.rows[row].tobytes() for row in (5, 6, 7)] == content
    counters = second.counters()
    assert counters["shared_chunks"] == 3 and not counters.get("read_chunks") and not counters.get("read_bytes")
    assert first.finish(keys(3), [0, 1, 2], load=True).success
    counters = first.counters()
    assert counters["read_chunks"] == 3 and counters["read_bytes"] == 3 * len(content[0]) and not counters.get("shared_chunks")
    first.close()
    second.close()


def test_a_store_that_is_slower_than_compute_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("terrace_kv.vllm.guard._EVIDENCE", 0.0)
    engine = Engine(tmp_path, prefill_speed=1e6)
    engine.finish(keys(16), list(range(16)), load=False)
    engine.close()
    slow = Engine(tmp_path, prefill_speed=1e6)
    poll = slow.tier._store.poll
    slow.tier._store.poll = list  # type: ignore[assignment]  # nothing comes
    assert slow.look_up(keys(16)) == [True] * 16
    slow.job(keys(16), list(range(16)), load=True)
    while slow.look_up(keys(1)) == [True]:
        slow.tier.get_finished_jobs()
    assert slow.counters()["declined"] >= 1
    slow.tier._store.poll = poll  # type: ignore[method-assign]
    slow.close()


def test_the_speed_of_compute_is_learned_from_what_is_offered(engine: Engine) -> None:
    learned: list[float] = []
    engine.tier._guard.computed = learned.append  # type: ignore[method-assign]
    engine.tier._tokens = {keys(1)[0][-4:]: 16}  # the group is full attention
    request, unknown = ReqContext(req_id="another request"), ReqContext(req_id="one that was not looked up")
    for context in (request, unknown):
        for i, key in enumerate(keys(6)):
            context.set_offload_key_position(key, (i + 1) * 16)
    assert engine.tier.lookup(keys(6)[2], request) is LookupResult.MISS
    for number, context in enumerate((unknown, request)):
        engine.tier.submit_store(TransferJob(number, keys(6), np.arange(6, dtype=np.int32), False, context))
    assert learned == [4 * 16], "the first two were in host memory or on the GPU; of the other request, perhaps all"
    engine.results(2)
