"""TerraceLinker below SGLang's own tree, device pools and allocators, on CPU tensors. Skipped without SGLang."""

from __future__ import annotations

import gc
import inspect
import random
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("numpy")

import sglang_under_test as under_test

if not under_test.REAL:
    pytest.skip("SGLang is not installed beside torch and orjson", allow_module_level=True)

import torch
from sglang.srt.mem_cache.hicache_storage import PoolHitPolicy, PoolName, PoolTransfer
from sglang.srt.mem_cache.unified_cache.unified_cache_linker import UnifiedCacheLinker
from sglang.srt.runtime_context import get_context
from errors import STATUSES
from sglang_linker_engine import KINDS, LAYERS, PAGE, Engine, Served, engine, page_hashes, wait_for_offloads

from terrace_kv import Busy, InvalidArgument, JobEventKind, NotFound, _report
from terrace_kv._interface import INVALID_ARGUMENT, REFUSED
from terrace_kv._library import error_of
from terrace_kv.sglang import linker as linker_module
from terrace_kv.sglang import page_chains, updates
from terrace_kv.sglang.linker import TerraceLinker

SYSTEM = list(range(PAGE * 6))
FIRST = SYSTEM + list(range(1000, 1000 + PAGE * 4))
SECOND = SYSTEM + list(range(2000, 2000 + PAGE * 6))
LONGER = FIRST + list(range(3000, 3000 + PAGE * 3))


def disk(path: Path) -> dict[str, Any]:
    return {"path": str(path), "capacity": "32MiB"}


def block_bytes(made: Engine) -> int:
    """The bytes of a page of KV in the cache."""
    return int(made.linker._pools[0].block_bytes)


# ---- served from Terrace: its own count of bytes, equal content, and a control


@pytest.mark.parametrize("kind", KINDS)
def test_pages_that_the_device_has_lost_come_back_from_host_memory(kind: str) -> None:
    with engine(kind) as made:
        assert made.serve(FIRST) == Served(0, 0, 10)
        control = made.serve(SECOND)
        assert control.loaded == 0  # the device has what they share, and the rest is nowhere
        made.drop_device()
        before = made.linker.statistics()
        assert before["swapped_in_bytes"] == 0
        assert made.serve(SECOND) == Served(0, 12, 0)
        after = made.linker.statistics()
        assert after["loaded_host"] >= 12 and after["loaded_storage"] == 0
        assert after["swapped_in_bytes"] >= 12 * block_bytes(made) if kind in ("mha", "mla") else after["swapped_in_bytes"] > 0
        assert made.wrong == []
        assert made.serve([*range(5000, 5000 + PAGE * 4)]) == Served(0, 0, 4)  # a prompt that nobody has had


@pytest.mark.parametrize("kind", KINDS)
def test_pages_are_found_after_a_restart(kind: str, tmp_path: Path) -> None:
    with engine(kind, **disk(tmp_path)) as made:
        made.serve(FIRST)
        made.serve(SECOND)
    with engine(kind, **disk(tmp_path)) as made:
        made.poison()
        assert made.serve(SECOND) == Served(0, 12, 0)
        counts = made.linker.statistics()
        assert counts["loaded_storage"] >= 12 and counts["storage_read_bytes"] > 0 and counts["loaded_host"] == 0
        assert made.wrong == []
        if kind not in ("mha", "mla"):
            made.drop_device()  # a prompt that branches off needs the window or state at its own end
        served = made.serve(FIRST)
        assert served.computed == 0 and served.device + served.loaded == 10
        assert made.wrong == []
    with engine(kind, model="another/model", **disk(tmp_path)) as made:
        assert made.serve(SECOND) == Served(0, 0, 12)
        assert made.linker.statistics()["loaded_storage"] == 0


def test_a_page_that_was_changed_on_the_way_is_noticed_by_these_tests() -> None:
    with engine("mha") as made:
        made.serve(FIRST)
        made.drop_device()
        load = made.linker._cache.load

        def wrong_slots(job: int, keys: Any, *, slots: list[int], **order: Any) -> None:
            load(job, keys, slots=slots[::-1], **order)

        made.linker._cache.load = wrong_slots
        assert made.serve(FIRST).loaded == 10
        assert len(made.wrong) == 10 * LAYERS


@pytest.mark.parametrize("kind", KINDS)
def test_random_prompts_with_little_memory_never_have_wrong_bytes(kind: str, tmp_path: Path) -> None:
    chance = random.Random(KINDS.index(kind))
    options = {**disk(tmp_path), "capacity": "4MiB", "host_capacity": "1600KiB"}
    prompts: list[list[int]] = [[]]
    loaded = aborted = 0
    for _ in range(3):
        with engine(kind, pages=24, **options) as made:
            for _ in range(40):
                start = chance.choice(prompts)
                cut = chance.randint(0, len(start) // PAGE) * PAGE
                prompt = start[:cut] + [chance.randrange(1 << 20) for _ in range(PAGE * chance.randint(1, 4))]
                prompt = prompt[: 12 * PAGE]
                prompts.append(prompt)
                made.drop_device()
                served = made.serve(prompt if chance.random() < 0.5 else chance.choice(prompts[1:]))
                aborted += served.aborted  # the disk may evict a page between look-up and load; it holds few pages here
                loaded += served.loaded
            assert made.wrong == []
    assert loaded > 50 and aborted <= 6


# ---- by layer


def test_the_first_layers_are_ready_before_the_last() -> None:
    with engine("mha", config={"rank": [{"swap-in-bandwidth": "512KiB/s"}], "transfers": {"piece-bytes": "4KiB"}}) as made:
        made.serve(FIRST)
        made.drop_device()
        take = made.linker._take
        seen: list[tuple[JobEventKind, int]] = []
        made.linker._take = lambda event: (seen.append((event.kind, event.layers)), take(event))
        assert made.serve(FIRST) == Served(0, 10, 0)
        layers = [leading for kind, leading in seen if kind is JobEventKind.LAYERS]
        assert layers and 0 < layers[0] < LAYERS and layers == sorted(layers)
        assert seen[-1][0] is JobEventKind.ENDED
        assert made.wrong == []  # each layer was compared as soon as it was ready


def test_a_layer_waits_for_the_layers_of_all_pools_before_it() -> None:
    with engine("swa") as made:
        full, window = made.linker._pools
        assert (full.layers, window.layers) == ([1], [0, 2, 3])
        assert [full.ready(leading) for leading in range(2)] == [1, LAYERS]
        assert [window.ready(leading) for leading in range(4)] == [0, 2, 3, LAYERS]


# ---- what SGLang's tree sees


def test_it_is_what_sglang_calls() -> None:
    abstract = UnifiedCacheLinker.__abstractmethods__
    assert len(abstract) == 10
    for name in abstract:
        ours, theirs = getattr(TerraceLinker, name), getattr(UnifiedCacheLinker, name)
        parameters = [list(inspect.signature(each).parameters.values()) for each in (ours, theirs)]
        assert [(each.name, each.default) for each in parameters[0]] == [(each.name, each.default) for each in parameters[1]]


def test_every_length_is_restorable_with_full_attention_and_only_whole_windows_otherwise() -> None:
    names = page_hashes(FIRST)
    with engine("mha") as made:
        made.serve(FIRST)
        assert made.linker.lookup("r", [PoolTransfer(PoolName.KV, keys=[*names, "gone"])]) == list(range(1, 11))
        assert made.linker.lookup("r", [PoolTransfer(PoolName.KV, keys=["gone", *names])]) == []
    with engine("mamba") as made:
        made.serve(SYSTEM)
        made.serve(FIRST)
        state = PoolTransfer(PoolName.MAMBA, keys=names[-1:], hit_policy=PoolHitPolicy.TRAILING_PAGES)
        assert made.linker.lookup("r", [PoolTransfer(PoolName.KV, keys=names), state]) == [6, 10]
        assert made.linker.lookup("r", [PoolTransfer(PoolName.KV, keys=names)]) == []


def test_offloads_end_in_their_order() -> None:
    made_ready: list[Any] = []

    class Held(linker_module.Ready):
        """The first one waits for an event of the device."""

        def __init__(self, indices: Any, record: Any) -> None:
            super().__init__(indices, record)
            made_ready.append(self)
            self.reached = len(made_ready) > 1

        def __bool__(self) -> bool:
            return self.reached

    with engine("mha") as made, pytest.MonkeyPatch.context() as patch:
        patch.setattr(linker_module, "Ready", Held)
        linker = made.linker
        first, second = page_hashes(FIRST)[:2], page_hashes(SECOND)[-2:]
        pages = torch.arange(PAGE, 5 * PAGE)
        assert linker.offload([PoolTransfer(PoolName.KV, device_indices=pages[: 2 * PAGE], keys=first)])
        assert linker.offload([PoolTransfer(PoolName.KV, device_indices=pages[2 * PAGE :], keys=second)])
        linker._cache.drain(60)
        assert linker.num_completed_offloads() == 0
        with pytest.raises(IndexError):
            linker.pop_completed_offload()
        for layer in range(LAYERS):
            made._write(layer, PAGE, first[0])  # the forward pass ends
        made_ready[0].reached = True
        wait_for_offloads(linker, 2)
        assert [linker.pop_completed_offload(), linker.pop_completed_offload()] == [True, True]
        target = torch.arange(8 * PAGE, 9 * PAGE)
        assert linker.lookup("r", [PoolTransfer(PoolName.KV, keys=first[:1])]) == [1]
        assert linker.load("r", [PoolTransfer(PoolName.KV, device_indices=target, keys=first[:1])])
        assert linker.finish_layer_wise_loading(linker.start_layer_wise_loading())
        assert all(made.has(layer, 8 * PAGE, first[0]) for layer in range(LAYERS))


def test_a_load_waits_for_the_device_while_the_disk_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Held(linker_module.Ready):
        reached = False

        def __bool__(self) -> bool:
            return self.reached

    names = page_hashes(FIRST)
    with engine("mha", **disk(tmp_path)) as made:
        made.serve(FIRST)
    with engine("mha", load_timeout=600, **disk(tmp_path)) as made:
        made.poison()
        monkeypatch.setattr(linker_module, "Ready", Held)
        linker = made.linker
        assert linker.lookup("r", [PoolTransfer(PoolName.KV, keys=names)])[-1] == 10
        assert linker.load("r", [PoolTransfer(PoolName.KV, device_indices=torch.arange(PAGE, 11 * PAGE), keys=names)])
        index = linker.start_layer_wise_loading()
        linker._cache.drain(60)
        linker.num_completed_offloads()
        counts = linker.statistics()
        assert counts["loaded_storage"] == 10 and counts["swapped_in_bytes"] == 0  # in host memory so far
        assert not made.has(0, PAGE, names[0])
        Held.reached = True
        assert linker.finish_layer_wise_loading(index)
        assert all(made.has(layer, PAGE * (1 + page), name) for page, name in enumerate(names) for layer in range(LAYERS))


def test_pages_of_a_gpu_are_read_and_written_only_after_the_events_of_the_device() -> None:
    class Event:
        reached = False

        def query(self) -> bool:
            return self.reached

    class OnGpu:
        device = torch.device("cuda:0")

        def to(self, device: str, non_blocking: bool) -> Any:
            assert device == "cpu" and non_blocking
            copied.append(self)
            return torch.arange(PAGE)

    copied: list[Any] = []
    event = Event()

    def record() -> list[Event]:
        assert copied  # the copy of the indices is before the event
        return [event]

    ready = linker_module.Ready([OnGpu()], record)
    assert not ready
    event.reached = True
    assert ready


def test_an_offload_without_room_fails_and_can_be_repeated() -> None:
    with engine("mha", host_capacity=str(4 * 32768) + "B") as made:
        made.serve(FIRST)
        assert made.stored == [False]
        made.drop_device()
        assert made.serve(FIRST) == Served(0, 4, 6)  # what had room is found
        made.drop_device()
        assert made.serve(SECOND[-3 * PAGE :]) == Served(0, 0, 3)
        assert made.stored[-1]
        made.drop_device()
        assert made.serve(SECOND[-3 * PAGE :]) == Served(0, 3, 0)
        assert made.wrong == []


def test_a_queued_load_is_cancelled_before_its_start() -> None:
    with engine("mha") as made:
        made.serve(FIRST)
        made.drop_device()
        names = page_hashes(FIRST)[:2]
        load = [PoolTransfer(PoolName.KV, device_indices=torch.arange(PAGE, 3 * PAGE), keys=names)]
        assert made.linker.lookup("a", [PoolTransfer(PoolName.KV, keys=names)]) == [1, 2]
        assert made.linker.load("a", load)
        with pytest.raises(ValueError, match="the request a is queued already"):
            made.linker.load("a", load)
        assert made.linker.cancel_queued_load("a") and not made.linker.cancel_queued_load("a")
        assert made.linker.start_layer_wise_loading() == -1
        made.linker._cache.drain(60)
        buffer = made.pool.get_key_buffer(0)[PAGE : 3 * PAGE].reshape(-1).view(torch.uint8)
        assert bool((buffer == 0xA5).all())
        assert not made.linker.load("b", [PoolTransfer(PoolName.KV, device_indices=torch.arange(0), keys=[])])


def test_what_a_queued_load_will_read_is_kept() -> None:
    names, others = page_hashes(FIRST), page_hashes(SECOND)[-6:]
    with engine("mha", host_capacity=f"{12 * 32768}B") as made:
        linker = made.linker

        def offload_others() -> bool:
            pages = torch.arange(20 * PAGE, 26 * PAGE)
            assert linker.offload([PoolTransfer(PoolName.KV, device_indices=pages, keys=others)])
            wait_for_offloads(linker, 1)
            return bool(linker.pop_completed_offload())

        made.serve(FIRST)
        load = [PoolTransfer(PoolName.KV, device_indices=torch.arange(11 * PAGE, 21 * PAGE), keys=names)]
        for rid in ("started", "cancelled"):
            assert len(linker.lookup(rid, [PoolTransfer(PoolName.KV, keys=names)])) == 10
            assert linker.load(rid, load)
            assert not offload_others()  # 2 of the 12 pages of host memory are free
            if rid == "started":
                assert linker.finish_layer_wise_loading(linker.start_layer_wise_loading())
                assert all(made.has(layer, PAGE * page, name) for page, name in enumerate(names, 11) for layer in range(LAYERS))
        assert linker.cancel_queued_load("cancelled")
        assert offload_others()


# ---- prefixes


def roots(made: Engine, tokens: list[int]) -> list[int]:
    """The pages of a prompt that begin a prefix of their own in the cache."""
    chains = made.linker._chains
    return [page for page, key in enumerate(made.linker._kv_keys(page_hashes(tokens))) if chains._before(key) == bytes(32)]


def test_the_cache_sees_prefixes() -> None:
    with engine("mha") as made:
        made.serve(FIRST)
        assert roots(made, FIRST) == [0]
        made.drop_device()
        made.serve(LONGER)  # its look-up shows that the new pages continue the old ones
        assert roots(made, LONGER) == [0]
        made.drop_device()
        assert made.serve(SECOND) == Served(0, 6, 6)
        assert roots(made, SECOND) == [0]


def test_the_chunks_of_a_long_prompt_are_one_prefix() -> None:
    names = page_hashes(FIRST)
    with engine("mha") as made:
        assert made.linker.lookup("r", [PoolTransfer(PoolName.KV, keys=names)]) == []
        for first, end in ((0, 4), (4, 9), (9, 10)):
            pages = torch.arange(PAGE * (1 + first), PAGE * (1 + end))
            assert made.linker.offload([PoolTransfer(PoolName.KV, device_indices=pages, keys=names[first:end])])
        wait_for_offloads(made.linker, 3)
        assert roots(made, FIRST) == [0]


def test_what_look_ups_have_shown_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_chains, "_SHOWN_MIN", 10)
    with engine("mha") as made:
        for first in range(0, 100, 15):
            made.linker.lookup("r", [PoolTransfer(PoolName.KV, keys=[str(i) for i in range(first, first + 16)])])
            assert len(made.linker._chains._shown) <= 20
        assert len(made.linker._chains._shown) >= 10


def test_a_turn_whose_place_nothing_shows_begins_a_piece_that_is_found(tmp_path: Path) -> None:
    with engine("mha", **disk(tmp_path)) as made:
        made.serve(FIRST)
        assert made.serve(LONGER) == Served(10, 0, 3)  # SGLang asks only for the pages after those of the device
        assert roots(made, LONGER) == [0, 10]
        made.drop_device()
        assert made.serve(LONGER) == Served(0, 13, 0)
    with engine("mha", **disk(tmp_path)) as made:
        made.serve(SECOND)
        assert made.serve(LONGER) == Served(6, 7, 0)  # a branch that begins below pages of the device
        assert roots(made, LONGER) == [0, 10]
        assert made.wrong == []


# ---- failures


def damage(path: Path) -> None:
    """Changes a byte in the middle of each stored page."""
    for file in path.rglob("*"):
        if file.is_file() and file.name.startswith("blocks"):
            content = bytearray(file.read_bytes())
            for at in range(2048, len(content), 4096):
                content[at] ^= 1
            file.write_bytes(content)


def test_a_damaged_page_aborts_its_request_and_touches_no_other_page(tmp_path: Path) -> None:
    with engine("mha", **disk(tmp_path)) as made:
        made.serve(SECOND)
    assert any(file.name.startswith("blocks") for file in tmp_path.rglob("*"))
    damage(tmp_path)
    with engine("mha", **disk(tmp_path)) as made:
        other = list(range(7000, 7000 + PAGE * 3))
        made.serve(other)
        served = made.serve(SECOND)
        assert served.aborted and made.linker.statistics()["load_failures"] > 0
        assert made.serve(other) == Served(3, 0, 0)
        pages = enumerate(page_hashes(other), 1)
        assert all(made.has(layer, PAGE * page, name) for page, name in pages for layer in range(LAYERS))
        assert made.serve(SECOND).computed > 0  # what is damaged is not found again
        made.drop_device()
        assert made.serve(SECOND) == Served(0, 12, 0)
        assert made.wrong == []


def test_a_load_that_takes_too_long_fails_and_writes_nothing_afterwards() -> None:
    slow = {"rank": [{"swap-in-bandwidth": "256KiB/s"}], "transfers": {"piece-bytes": "4KiB"}}
    with engine("mha", load_timeout=0.1, config=slow) as made:
        made.serve(FIRST)
        made.drop_device()
        assert made.serve(FIRST).aborted
        assert made.linker.statistics()["blocks_in_flight"] == 0
        made.poison()
        made.linker._cache.drain(60)
        assert all(bool((buffer.view(torch.uint8) == 0xA5).all()) for buffer in made.pool.k_buffer)
        object.__setattr__(made.linker._options, "load_timeout", 60.0)
        assert made.serve(FIRST) == Served(0, 10, 0) and made.wrong == []


def test_transfers_that_an_operator_has_paused_delay_a_load_until_its_time_is_over() -> None:
    with engine("mha", load_timeout=0.1) as made:
        made.serve(FIRST)
        made.drop_device()
        made.linker._cache.pause_transfers()
        assert made.serve(FIRST).aborted
        assert made.serve(FIRST) == Served(0, 10, 0) and made.wrong == []


def test_a_load_that_the_cache_refuses_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    with engine("mha") as made:
        made.serve(FIRST)
        made.drop_device()

        def refuse(*_arguments: Any, **_options: Any) -> None:
            raise Busy(REFUSED, "too much is under way")

        with monkeypatch.context() as patch:
            patch.setattr(made.linker._cache, "load", refuse)
            assert made.serve(FIRST).aborted
        assert made.serve(FIRST) == Served(0, 10, 0) and made.wrong == []


@pytest.mark.usefixtures("mistakes_are_misses")
@pytest.mark.parametrize("refused", [1, 2])
def test_an_offload_that_is_ordered_in_part_has_failed_and_leaves_no_page_behind(refused: int, monkeypatch: pytest.MonkeyPatch) -> None:
    cached = page_hashes(FIRST)[2]
    names = ["before", cached, "after"]  # the cached page has a place of its own, so there are two orders

    def store_of(linker: Any) -> Any:
        store, calls = linker._cache.store, []

        def refuse(*arguments: Any, **options: Any) -> None:
            calls.append(arguments)
            if len(calls) == refused:
                raise error  # noqa: B023
            store(*arguments, **options)

        return refuse

    for error in (Busy(REFUSED, "too much is under way"), RuntimeError("a defect")):
        with engine("mha") as made:
            made.serve(FIRST)
            linker = made.linker
            pages = PoolTransfer(PoolName.KV, device_indices=torch.arange(20 * PAGE, 23 * PAGE), keys=names)
            with monkeypatch.context() as patch:
                patch.setattr(linker._cache, "store", store_of(linker))
                assert linker.offload([pages])
                wait_for_offloads(linker, 1)
            assert not linker.pop_completed_offload() and linker.errors == 1
            assert linker._chains._storing == {}
            assert linker.offload([pages])
            wait_for_offloads(linker, 1)
            assert linker.pop_completed_offload() and linker._chains._storing == {}
            assert linker.lookup("r", [PoolTransfer(PoolName.KV, keys=names)]) == [1, 2, 3]


def calls_of_the_cache() -> list[str]:
    """What the linker calls, except for what it does before it serves and at its end."""
    sources = [inspect.getsource(module) for module in (linker_module, page_chains)]
    names = set(re.findall(r"_cache\.(\w+)[(,)]", "".join(sources)))
    assert names > {"wait", "checkpoint", "close", "statistics"}
    return sorted(names - {"wait", "checkpoint", "close", "statistics"})  # wait() fails at the end only


@pytest.mark.usefixtures("mistakes_are_misses")
@pytest.mark.parametrize("call", calls_of_the_cache())
def test_an_error_of_the_cache_is_a_miss_and_counted(call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Late(linker_module.Ready):
        asked = False

        def __bool__(self) -> bool:
            asked, self.asked = self.asked, True
            return asked

    names = page_hashes(FIRST)
    transfer = PoolTransfer(PoolName.KV, device_indices=torch.arange(20 * PAGE, 30 * PAGE), keys=names)
    monkeypatch.setattr(linker_module, "Ready", Late)
    with engine("swa", **disk(tmp_path)) as made:
        linker = made.linker
        right = getattr(linker._cache, call)

        def fails_once(*arguments: Any, **options: Any) -> Any:
            if not raised:
                raised.append(error)  # noqa: B023
                raise error  # noqa: B023
            return right(*arguments, **options)

        for status in STATUSES:
            error, raised = error_of(status, "thrown by the test"), list[Any]()
            before = linker.errors
            setattr(linker._cache, call, fails_once)
            made.serve(FIRST)
            made.drop_device()
            made.serve(FIRST)
            made.drop_device()
            for rid in ("cancelled", "started"):
                linker.lookup(rid, [PoolTransfer(PoolName.KV, keys=names)])
                linker._cache.pause_transfers()
                assert linker.load(rid, [transfer])
                if rid == "cancelled":
                    linker.cancel_queued_load(rid)
            linker.start_layer_wise_loading()
            linker._pump()
            linker.reset()
            made.cache.reset()
            made.params.token_to_kv_pool_allocator.clear()
            setattr(linker._cache, call, right)
            assert raised and (linker.errors > before or isinstance(error, (Busy, NotFound)))
            assert made.serve(FIRST).loaded == 0, "it was reset"
            made.drop_device()
            assert made.serve(FIRST) == Served(0, 10, 0)
            made.drop_device()
        assert made.wrong == []
        with monkeypatch.context() as patch, pytest.raises(InvalidArgument):
            patch.setattr(_report, "RAISE_MISUSE", True)
            linker._reports["storing pages"].failed(error_of(INVALID_ARGUMENT, "a mistake"))


# ---- the end


def test_a_reset_drops_every_tier(tmp_path: Path) -> None:
    with engine("mha", **disk(tmp_path)) as made:
        made.serve(FIRST)
        made.cache.reset()
        made.params.token_to_kv_pool_allocator.clear()
        assert made.serve(FIRST) == Served(0, 0, 10)
        made.drop_device()
        assert made.serve(FIRST) == Served(0, 10, 0)  # stored after the reset: found by this process
        assert made.wrong == []
    with engine("mha", **disk(tmp_path)) as made:
        assert made.serve(FIRST) == Served(0, 0, 10)  # the weights after a reset are not known


def test_a_reset_with_fixed_weights_drops_nothing(tmp_path: Path) -> None:
    with engine("mha", weights_fixed=True, **disk(tmp_path)) as made:
        made.serve(FIRST)
        made.cache.reset()
        made.params.token_to_kv_pool_allocator.clear()
        made.poison()
        assert made.serve(FIRST) == Served(0, 10, 0) and made.wrong == []


def test_a_reset_ends_what_is_queued_and_under_way() -> None:
    with engine("mha") as made:
        made.serve(FIRST)
        made.drop_device()
        names = page_hashes(FIRST)
        transfer = PoolTransfer(PoolName.KV, device_indices=torch.arange(PAGE, 11 * PAGE), keys=names)
        made.linker.lookup("a", [PoolTransfer(PoolName.KV, keys=names)])
        made.linker._cache.pause_transfers()
        assert made.linker.load("a", [transfer])
        assert made.linker.start_layer_wise_loading() == 0
        assert made.linker.load("b", [transfer])
        assert made.linker.offload([PoolTransfer(PoolName.KV, device_indices=torch.arange(11 * PAGE, 12 * PAGE), keys=["new"])])
        made.linker.reset()
        assert made.linker.num_completed_offloads() == 0
        assert made.linker.start_layer_wise_loading() == -1
        assert made.linker.finish_layer_wise_loading(0)
        assert made.linker.statistics()["blocks_in_flight"] == 0


def test_other_weights_find_and_store_nothing() -> None:
    with engine("mha") as made:
        made.serve(FIRST)
        made.drop_device()
        with get_context().override_server_args(model_path="a/model", weight_version="updated"):
            assert made.serve(FIRST) == Served(0, 0, 10)
            assert made.linker.statistics()["stores"] == 10
        made.drop_device()
        assert made.serve(FIRST) == Served(0, 10, 0)


@pytest.mark.parametrize("fixed", [False, True])
def test_weights_that_change_without_a_version_are_noticed(fixed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    with engine("mha", weights_fixed=fixed) as made:
        made.serve(FIRST)
        made.drop_device()
        monkeypatch.setattr(updates, "_mark", "changed")
        assert made.serve(FIRST) == Served(0, 0, 10) and made.stored[-1] is False
        made.cache.reset()
        made.params.token_to_kv_pool_allocator.clear()
        assert made.serve(FIRST) == Served(0, 0, 10), "pages of the former weights are gone"
        made.drop_device()
        assert made.serve(FIRST) == Served(0, 10, 0) and made.wrong == []


def test_a_closed_linker_finds_nothing() -> None:
    with engine("mha") as made:
        made.serve(FIRST)
        made.linker.close()
        made.drop_device()
        assert made.serve(FIRST[: 2 * PAGE]) == Served(0, 0, 2)
        made.linker.close()


def test_a_linker_that_nobody_closes_ends_before_its_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    alive: list[bool] = []
    close = TerraceLinker.close

    def closing(linker: Any) -> None:
        alive.append(all(pool.entries for pool in linker._pools))
        close(linker)

    monkeypatch.setattr(TerraceLinker, "close", closing)
    with get_context().override_server_args(model_path="a/model"):
        dropped = Engine("mha", disk(tmp_path))
        dropped.serve(FIRST)
        del dropped
        gc.collect()
    assert alive == [True]
    with engine("mha", **disk(tmp_path)) as made:
        assert made.serve(FIRST) == Served(0, 10, 0)


def test_ranks_have_stores_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config_of = linker_module._config_of

    def rank(number: int) -> Callable[[Any], Any]:
        def config(params: Any) -> Any:
            made = config_of(params)
            made.tp_rank, made.tp_size = number, 2
            return made

        return config

    monkeypatch.setattr(linker_module, "_config_of", rank(0))
    with engine("mha", **disk(tmp_path)) as first:
        first.serve(FIRST)
        with pytest.raises(Busy), engine("mha", **disk(tmp_path)):
            pass
        monkeypatch.setattr(linker_module, "_config_of", rank(1))
        with engine("mha", **disk(tmp_path)) as second:
            assert second.serve(FIRST) == Served(0, 0, 10)
            assert second.linker._namespace != first.linker._namespace  # should the stores ever be one
    assert sorted(each.name for each in tmp_path.iterdir()) == ["linker-tp0of2-32768", "linker-tp1of2-32768"]
