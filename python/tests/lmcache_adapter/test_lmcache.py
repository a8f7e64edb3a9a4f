"""TerraceL2Adapter: what LMCache's controllers ask of it. Skipped without LMCache."""

from __future__ import annotations

import importlib.metadata
from ctypes import create_string_buffer
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("lmcache", reason="LMCache is not installed")

import lmcache_under_test as under_test
import torch
from lmcache_under_test import (
    BLOCK,
    Listener,
    Log,
    Memory,
    MemoryLayoutDesc,
    blank,
    content,
    hint,
    key,
    keys,
    load,
    look_up,
    memories,
    open_adapter,
    store,
)
from terrace_kv import Busy, StorageError
from terrace_kv._keys import Keys
from terrace_kv.lmcache import TerraceL2AdapterConfig
from terrace_kv.lmcache import objects as objects_module
from terrace_kv.lmcache.objects import block_bytes_for

SIZE = 3 * BLOCK


# ---- options


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"pathh": "x"}, "'pathh' is no option of TerraceL2Adapter; did you mean 'path'?"),
        ({"path": None}, '"path" must be a directory'),
        ({"path": []}, '"path" must be a directory'),
        ({"capacity": None}, '"capacity" must be the disk space of all objects'),
        ({"weights_revision": None}, '"weights_revision" must be a text that changes whenever the weights of a model do'),
        ({"weights_revision": 1}, '"weights_revision" must be a text'),
        ({"block_bytes": 5000}, '"block_bytes" is 5000, must be a multiple of 4096 up to 512 MiB'),
        ({"block_bytes": "2 megs"}, "\"block_bytes\" is '2 megs', must be a multiple"),
        ({"timeout": 0}, '"timeout" is 0, must be a number of seconds up to 240'),
        ({"timeout": 300}, '"timeout" is 300, must be a number of seconds up to 240'),
    ],
)
def test_a_wrong_option_is_refused(tmp_path: Path, changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match="adapter_params: ") as refusal:
        open_adapter(tmp_path, **changes)
    assert sentence in str(refusal.value)


def test_sizes_are_numbers_or_texts(tmp_path: Path) -> None:
    for size in (8192, "8192", "8KiB", "8 KiB", "8192B"):
        assert TerraceL2AdapterConfig.from_dict(under_test.params(tmp_path, block_bytes=size)).block_bytes == 8192
    assert '"500GiB"' in TerraceL2AdapterConfig.help()


def test_a_second_adapter_on_a_path_is_refused(tmp_path: Path, adapter: Any) -> None:
    with pytest.raises(Busy, match="process"):
        open_adapter(tmp_path)


def test_descriptors_differ(adapter: Any) -> None:
    assert len({adapter.get_store_event_fd(), adapter.get_lookup_and_lock_event_fd(), adapter.get_load_event_fd()}) == 3


# ---- objects


@pytest.mark.parametrize("size", [1, 100, BLOCK, BLOCK + 1, SIZE, 40 * BLOCK - 7], ids=str)
def test_an_object_of_any_size_and_address_comes_back(adapter: Any, size: int) -> None:
    given = [Memory(content(n, size), at=64 + n) for n in range(5)]
    result = store(adapter, keys(5), given)
    assert result.is_successful() and result.bytes_transferred() == 5 * size
    assert look_up(adapter, keys(6)) == [True] * 5 + [False]
    into = [Memory(bytes(size), at=64 + 3 * n) for n in range(6)]
    assert load(adapter, keys(6), into) == [True] * 5 + [False]
    assert [each.bytes() for each in into[:5]] == [each.bytes() for each in given]
    assert all(each.surroundings_are_untouched() for each in into)


def test_more_bytes_than_the_staging_memory_has_come_back(tmp_path: Path) -> None:
    size = 9 << 20
    adapter = open_adapter(tmp_path, block_bytes="1MiB", capacity="64MiB")
    given = [Memory(bytes([n + 1]) * size) for n in range(3)]
    assert store(adapter, keys(3), given).is_successful()
    into = blank(3, size)
    assert load(adapter, keys(3), into) == [True] * 3
    assert [each.bytes() for each in into] == [each.bytes() for each in given]
    adapter.close()


def test_objects_of_several_sizes_share_a_task(adapter: Any) -> None:
    sizes = [SIZE, 10, BLOCK]
    given = [Memory(content(n, size)) for n, size in enumerate(sizes)]
    assert store(adapter, keys(3), given).is_successful()
    assert look_up(adapter, keys(3)) == [True] * 3
    into = [Memory(bytes(size)) for size in sizes]
    assert load(adapter, keys(3), into) == [True] * 3
    assert [each.bytes() for each in into] == [each.bytes() for each in given]


def test_what_is_there_is_not_written_again(adapter: Any) -> None:
    store(adapter, keys(2), memories(2, SIZE))
    result = store(adapter, keys(3), memories(3, SIZE))
    assert result.is_successful() and result.bytes_transferred() == SIZE
    assert adapter.report_status()["statistics"]["stored"] == 9


def test_an_empty_task_ends(adapter: Any) -> None:
    assert store(adapter, [], []).is_successful()
    assert look_up(adapter, []) == []
    assert load(adapter, [], []) == []


@pytest.mark.usefixtures("mistakes_are_misses")
def test_a_task_of_wrong_arguments_fails_alone(adapter: Any, log: Log) -> None:
    assert not store(adapter, keys(2), memories(1, SIZE)).is_successful()
    assert "there are 2 keys and 1 objects" in log.said[-1]
    assert store(adapter, keys(1), memories(1, SIZE)).is_successful()
    assert log.said[-1] == "storing objects works again"


@pytest.mark.usefixtures("mistakes_are_misses")
def test_memory_of_a_gpu_is_refused(adapter: Any, log: Log) -> None:
    given = memories(1, SIZE)
    given[0].object.raw_data = torch.empty(SIZE, dtype=torch.uint8, device="meta")
    assert not store(adapter, keys(1), given).is_successful()
    assert "an object of LMCache is on meta" in log.said[-1]


# ---- whose bytes they are


def test_objects_are_found_after_a_restart(tmp_path: Path) -> None:
    first = open_adapter(tmp_path)
    given = memories(4, SIZE)
    store(first, keys(4), given)
    first.close()
    second = open_adapter(tmp_path)
    assert look_up(second, keys(5)) == [True] * 4 + [False]
    assert look_up(second, keys(5), hint(SIZE)) == [True] * 4 + [False]
    into = blank(4, SIZE)
    assert load(second, keys(4), into) == [True] * 4
    assert [each.bytes() for each in into] == [each.bytes() for each in given]
    second.close()


@pytest.mark.parametrize("file", [None, "no JSON", '{"model": 1}', "[{}]"], ids=str)
def test_without_the_file_of_layouts_the_hint_of_lmcache_is_enough(tmp_path: Path, file: str | None) -> None:
    first = open_adapter(tmp_path)
    store(first, keys(1), memories(1, SIZE))
    first.close()
    (layouts,) = tmp_path.glob("*.layouts.json")
    layouts.unlink()
    if file is not None:
        layouts.write_text(file)
    second = open_adapter(tmp_path)
    assert look_up(second, keys(1)) == [False]
    assert look_up(second, keys(1), hint(SIZE)) == [True]
    assert store(second, keys(1), memories(1, SIZE)).bytes_transferred() == 0
    assert look_up(second, keys(1)) == [True]
    second.close()


@pytest.mark.parametrize(
    "change",
    [
        {"chunk_hash": b"other"},
        {"model_name": "org/other"},
        {"kv_rank": 0x02010201},
        {"object_group_id": 1},
        {"cache_salt": "user"},
    ],
    ids=lambda change: next(iter(change)),
)
def test_every_field_of_a_key_names_another_object(adapter: Any, change: dict[str, Any]) -> None:
    store(adapter, [key(1)], memories(1, SIZE))
    other = key(1, **change)
    store(adapter, [key(2, **{name: value for name, value in change.items() if name != "chunk_hash"})], memories(1, SIZE, 5))
    assert look_up(adapter, [other]) == [False]
    assert load(adapter, [other], blank(1, SIZE)) == [False]
    store(adapter, [other], memories(1, SIZE, 7))
    into = blank(2, SIZE)
    assert load(adapter, [key(1), other], into) == [True, True]
    assert [each.bytes() for each in into] == [content(0, SIZE), content(7, SIZE)]


@pytest.mark.parametrize("what", ["weights_revision", "lmcache"])
def test_objects_of_other_weights_or_of_another_lmcache_are_misses(
    tmp_path: Path, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = open_adapter(tmp_path)
    store(first, keys(1), memories(1, SIZE))
    first.close()
    if what == "lmcache":
        monkeypatch.setattr(importlib.metadata, "version", lambda package: "0.0.0")
    second = open_adapter(tmp_path, **({what: "2"} if what == "weights_revision" else {}))
    assert look_up(second, keys(1), hint(SIZE)) == [False]
    assert load(second, keys(1), blank(1, SIZE)) == [False]
    second.close()


@pytest.mark.parametrize(
    ("size", "shape", "dtype"),
    [
        (SIZE, [SIZE // 2], torch.float16),
        (SIZE, [SIZE], torch.uint8),
        (SIZE, [2, SIZE // 4], torch.bfloat16),
        (SIZE - BLOCK, [(SIZE - BLOCK) // 2], torch.bfloat16),
        (SIZE + BLOCK, [(SIZE + BLOCK) // 2], torch.bfloat16),
    ],
    ids=str,
)
def test_an_object_is_never_read_in_another_layout(tmp_path: Path, size: int, shape: list[int], dtype: torch.dtype) -> None:
    first = open_adapter(tmp_path)
    store(first, keys(1), [Memory(content(0, SIZE), [SIZE // 2], torch.bfloat16)])
    other = Memory(bytes(size), shape, dtype)
    assert load(first, keys(1), [other]) == [False]
    first.close()
    second = open_adapter(tmp_path)
    assert load(second, keys(1), [other]) == [False]
    assert store(second, keys(2, 8), [Memory(content(n, size), shape, dtype) for n in range(2)]).is_successful()
    wanted = {0: MemoryLayoutDesc([torch.Size(shape)], [dtype])}
    assert look_up(second, keys(1), wanted) == [False], "LMCache would load it in vain"
    assert look_up(second, keys(1), {0: MemoryLayoutDesc([torch.Size([SIZE // 2])], [torch.bfloat16])}) == [True]
    assert other.bytes() == bytes(size)
    second.close()


def test_a_serialiser_whose_layout_is_none_of_the_hints_is_found(tmp_path: Path) -> None:
    first = open_adapter(tmp_path)
    store(first, keys(1), memories(1, SIZE))  # before there was a serialiser
    small = Memory(content(5, 1000))
    store(first, keys(1, 5), [small])
    assert look_up(first, keys(1, 5), hint(SIZE)) == [True]
    first.close()
    second = open_adapter(tmp_path)
    assert store(second, keys(1, 6), [Memory(content(6, 1000))]).is_successful()
    assert look_up(second, keys(1, 5), hint(SIZE)) == [True]
    second.close()


def test_the_newest_layouts_of_a_group_are_remembered(adapter: Any) -> None:
    for size in range(1, 12):
        store(adapter, keys(1, size), [Memory(content(size, size))])
    assert look_up(adapter, keys(11, 1)) == [False] * 3 + [True] * 8
    assert look_up(adapter, keys(1, 1), hint(1)) == [True]


# ---- locks, deletion, eviction


def test_deleted_objects_stay_deleted_after_a_restart(tmp_path: Path) -> None:
    first = open_adapter(tmp_path)
    listener = Listener()
    first.register_listener(listener)
    store(first, keys(4), memories(4, SIZE))
    assert first.get_usage().total_bytes_used == 4 * SIZE
    first.delete([])
    first.delete([key(1), key(2), key(9)])
    assert listener.deleted == [key(1), key(2)]
    assert first.get_usage().total_bytes_used == 2 * SIZE
    assert look_up(first, keys(4)) == [True, False, False, True]
    first.close()
    second = open_adapter(tmp_path)
    assert look_up(second, keys(4)) == [True, False, False, True]
    second.delete(keys(4))
    assert look_up(second, keys(4)) == [True, False, False, True], "all others are locked"
    second.close()


def test_a_lock_keeps_an_object_from_being_deleted_until_each_is_taken_back(adapter: Any) -> None:
    store(adapter, keys(3), memories(3, SIZE))
    assert look_up(adapter, [key(0), key(0), key(7)]) == [True, True, False]
    assert adapter.report_status()["locked_objects"] == 1
    adapter.submit_unlock([key(7), key(1)])  # without a lock
    adapter.delete(keys(3))
    adapter.submit_unlock([key(0)])
    adapter.delete(keys(3))
    into = blank(1, SIZE)
    assert load(adapter, keys(1), into) == [True] and into[0].bytes() == content(0, SIZE)
    adapter.submit_unlock([key(0)])
    assert adapter.report_status()["locked_objects"] == 0
    adapter.delete(keys(3))
    assert look_up(adapter, keys(3)) == [False] * 3


def test_a_full_store_gives_up_what_was_not_used_and_tells_lmcache(tmp_path: Path) -> None:
    adapter = open_adapter(tmp_path, capacity="1MiB")
    listener = Listener()
    adapter.register_listener(listener)
    capacity = adapter.get_usage().total_capacity_bytes
    assert adapter.supports_global_eviction and 0 < capacity <= 1 << 20
    count = capacity // SIZE
    store(adapter, keys(count), memories(count, SIZE))
    assert look_up(adapter, keys(4)) == [True] * 4
    store(adapter, keys(count // 2, 1000), memories(count // 2, SIZE, 1000))
    found = look_up(adapter, keys(count))
    assert found[:4] == [True] * 4, "a look-up is a use"
    gone = [each for each, is_there in zip(keys(count), found) if not is_there]
    assert len(gone) >= count // 2 - 1 and sorted(listener.deleted, key=str) == sorted(gone, key=str)
    assert gone == keys(count)[-len(gone) :], "the ends of prompts go first"
    assert adapter.get_usage().total_bytes_used == SIZE * (len(listener.stored) - len(gone)) <= capacity
    adapter.close()


def test_a_loaded_object_stays_longer(tmp_path: Path) -> None:
    adapter = open_adapter(tmp_path, capacity="1MiB")
    count = adapter.get_usage().total_capacity_bytes // BLOCK
    for n in range(count):
        store(adapter, keys(1, n), memories(1, BLOCK, n))
    assert load(adapter, keys(1), blank(1, BLOCK)) == [True]
    for n in range(count // 2):
        store(adapter, keys(1, count + n), memories(1, BLOCK, n))
    assert look_up(adapter, keys(2)) == [True, False]
    adapter.close()


def test_the_beginnings_of_all_ranks_are_kept(tmp_path: Path) -> None:
    adapter = open_adapter(tmp_path, capacity="1MiB")
    count = adapter.get_usage().total_capacity_bytes // BLOCK // 2
    rows = [[key(n, kv_rank=rank) for n in range(count)] for rank in (1, 2)]
    store(adapter, rows[0] + rows[1], memories(2 * count, BLOCK))
    store(adapter, keys(count, 5000), memories(count, BLOCK))
    for row in rows:
        found = look_up(adapter, row)
        assert found == sorted(found, reverse=True) and count // 3 < found.count(True) < count
    adapter.close()


def test_lmcache_is_told_of_each_object_once(tmp_path: Path) -> None:
    first = open_adapter(tmp_path)
    listener = Listener()
    first.register_listener(listener)
    store(first, keys(2), memories(2, SIZE))
    store(first, keys(2), memories(2, SIZE))
    assert (listener.stored, listener.sizes, listener.accessed) == (keys(2), [SIZE, SIZE], [])
    load(first, keys(3), blank(3, SIZE))
    assert (listener.stored, listener.accessed) == (keys(2), keys(2))
    first.close()
    second = open_adapter(tmp_path)
    listener = Listener()
    second.register_listener(listener)
    assert second.get_usage().total_bytes_used == 0
    look_up(second, keys(1))
    load(second, keys(2), blank(2, SIZE))
    assert (listener.stored, listener.accessed) == (keys(2), keys(2)), "objects of an earlier process, as they are found"
    second.close()


def test_an_object_that_was_stored_anew_is_not_told_as_gone(adapter: Any) -> None:
    listener = Listener()
    adapter.register_listener(listener)
    store(adapter, keys(2), memories(2, SIZE))
    first, _second = adapter._residents._all
    adapter._take_events([first])  # given up before it was stored
    assert listener.deleted == []
    adapter._objects.store.remove(Keys(create_string_buffer(first, 32), 1))
    adapter._take_events([first, first])
    assert len(listener.deleted) == 1


def test_a_listener_that_fails_costs_no_task(adapter: Any) -> None:
    def fail(*arguments: Any) -> None:
        raise RuntimeError("not today")

    listener = Listener()
    listener.on_l2_keys_stored = listener.on_l2_keys_accessed = listener.on_l2_keys_deleted = fail  # type: ignore[method-assign]
    adapter.register_listener(listener)
    assert store(adapter, keys(2), memories(2, SIZE)).is_successful()
    assert load(adapter, keys(2), blank(2, SIZE)) == [True, True]
    adapter.delete(keys(1))
    assert look_up(adapter, keys(2)) == [False, True]


def test_keys_are_listed_in_pages(adapter: Any) -> None:
    store(adapter, keys(7), memories(7, 100))
    store(adapter, [key(1, model_name="other")], memories(1, 100))
    listed: list[Any] = []
    cursor = None
    while True:
        page = adapter.list_l2_keys("org/model", 3, cursor)
        listed += page.entries
        assert len(page.entries) <= 3
        cursor = page.next_page_token
        if cursor is None:
            break
    assert sorted((each.key.to_object_key() for each in listed), key=str) == sorted(keys(7), key=str)
    assert {each.size_bytes for each in listed} == {100}
    assert len(adapter.list_l2_keys().entries) == 8
    with pytest.raises(ValueError, match="cursor 'x' is none of an earlier page"):
        adapter.list_l2_keys(cursor="x")
    with pytest.raises(ValueError, match="page_size is 0, must be at least 1"):
        adapter.list_l2_keys(page_size=0)


# ---- the size of blocks


@pytest.mark.parametrize(
    ("size", "block"),
    [(1, 4096), (4096, 4096), (4097, 8192), (65536, 65536), (1 << 20, 1 << 20), (2 << 20, 1 << 20), (17989632, 999424)],
)
def test_blocks_are_equal_parts_of_an_object(size: int, block: int) -> None:
    assert block_bytes_for(size) == block


def test_the_first_object_chooses_the_size_of_blocks(tmp_path: Path, log: Log) -> None:
    size = 5 * BLOCK + 1
    adapter = open_adapter(tmp_path, block_bytes=None)
    assert adapter.report_status()["block_bytes"] == 65536
    assert look_up(adapter, keys(1)) == [False] and load(adapter, keys(1), blank(1, size)) == [False]
    adapter.delete(keys(1))
    assert store(adapter, keys(2), memories(2, size)).is_successful()
    assert adapter.report_status()["block_bytes"] == 6 * BLOCK
    blocks = adapter.report_status()["statistics"]["capacity_blocks"]
    assert adapter.get_usage().total_capacity_bytes == blocks * 6 * BLOCK
    assert store(adapter, keys(1, 5), memories(1, 100, 5)).is_successful()
    advice = "24476 bytes of disk space are not used; state a better block_bytes, for example 4096"
    assert [said for said in log.said if advice in said]
    adapter.close()
    assert [each.name for each in sorted(tmp_path.iterdir())] == ["lmcache-24576", "lmcache-24576.layouts.json"]
    again = open_adapter(tmp_path, block_bytes=None)
    into = blank(2, size)
    assert look_up(again, keys(2)) == [True] * 2 and load(again, keys(2), into) == [True] * 2
    assert [each.bytes() for each in into] == [content(n, size) for n in range(2)]
    assert store(again, keys(1, 7), memories(1, BLOCK, 7)).is_successful()
    assert look_up(again, keys(2)) == [True] * 2, "a store with blocks keeps their size"
    again.submit_unlock(keys(2) * 2)
    again.delete(keys(8))
    again.close()
    empty = open_adapter(tmp_path, block_bytes=None)
    assert store(empty, keys(1), memories(1, BLOCK)).is_successful()
    assert empty.report_status()["block_bytes"] == BLOCK
    empty.close()
    assert [each.name for each in sorted(tmp_path.iterdir())] == ["lmcache-4096", "lmcache-4096.layouts.json"]


def test_a_store_on_several_disks_chooses_its_size_too(tmp_path: Path) -> None:
    paths = [str(tmp_path / name) for name in ("a", "b")]
    for path in paths:
        Path(path).mkdir()
    adapter = open_adapter(tmp_path, path=paths, block_bytes=None, stripe_size="64KiB")
    assert store(adapter, keys(40), memories(40, SIZE)).is_successful()
    adapter.close()
    assert [sorted(each.name for each in Path(path).glob("lmcache-*") if each.is_dir()) for path in paths] == [
        ["lmcache-12288"]
    ] * 2
    again = open_adapter(tmp_path, path=paths, block_bytes=None, stripe_size="64KiB")
    assert look_up(again, keys(40)) == [True] * 40
    again.close()


def test_without_space_for_another_size_of_blocks_the_first_one_stays(
    tmp_path: Path, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    adapter = open_adapter(tmp_path, block_bytes=None)
    monkeypatch.setattr(objects_module, "Store", refuse_once(objects_module.Store))
    assert not store(adapter, keys(1), memories(1, SIZE)).is_successful()
    assert "no space" in log.said[-1]
    assert look_up(adapter, keys(1)) == [False]
    assert store(adapter, keys(1), memories(1, SIZE)).is_successful()
    adapter.close()


def refuse_once(real: Any) -> Any:
    refusals = [StorageError(-28, "no space")]

    def make(*arguments: Any, **options: Any) -> Any:
        if refusals:
            raise refusals.pop()
        return real(*arguments, **options)

    return make


def test_an_unsuitable_size_of_blocks_is_advised_against_once(adapter: Any, log: Log) -> None:
    store(adapter, keys(2), memories(2, 65 * BLOCK))
    store(adapter, keys(2, 2), memories(2, 70 * BLOCK))
    advice = [said for said in log.said if "state a better block_bytes" in said]
    assert len(advice) == 1 and "objects of 266240 bytes take 65 blocks of 4096 bytes" in advice[0]
    assert advice[0].endswith("for example 266240")
