"""TerraceStorage on ranks whose KV is equal (MLA): one writer, whose store the others read."""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("numpy")

from interruption import in_child
from sglang_under_test import PoolName, PoolTransfer, attach, buffers, config, fill, flat, indices, keys, make_pool

from terrace_kv.sglang import sharing


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharing, "_AGAIN_SECONDS", 0.0)


def rank(path: Path, tp_rank: int, pool: Any, **others: Any) -> Any:
    return attach(of_rank(path, tp_rank), pool, **others)


def of_rank(path: Path, tp_rank: int, **extra: Any) -> Any:
    return config(path, tp_rank=tp_rank, tp_size=2, is_mla_model=True, extra=extra)


def pools(layout: str = "page_first") -> tuple[Any, Any]:
    """The host pools of two ranks, the first of random bytes and the second of zeros."""
    first, second = make_pool("mla", layout, 40), make_pool("mla", layout, 40)
    fill(first, 1)
    for buffer in buffers(second):
        buffer[:] = 0
    return first, second


@pytest.mark.parametrize("layout", ["layer_first", "page_first", "page_first_direct"])
def test_all_ranks_read_what_one_has_written(tmp_path: Path, layout: str) -> None:
    ours, theirs = pools(layout)
    writer, reader = rank(tmp_path, 0, ours), rank(tmp_path, 1, theirs)
    assert writer.batch_set_v1(keys(5), indices(ours, [0, 1, 2, 3, 4])) == [True] * 5
    assert reader.batch_exists(keys(9)) == 5
    assert reader.batch_get_v1([*keys(5), "nothing"], indices(theirs, [9, 8, 7, 6, 5, 4])) == [True] * 5 + [False]
    assert [flat(theirs, page) for page in (9, 8, 7, 6, 5)] == [flat(ours, page) for page in range(5)]
    assert flat(theirs, 4) == bytes(len(flat(theirs, 4)))
    assert reader.statistics() == {} and writer.statistics()["hits"] == 5
    assert sorted(each.name for each in tmp_path.iterdir()) == ["tp0of2-73728", "tp0of2-73728.socket"]
    reader.close()
    writer.close()
    assert [each.name for each in tmp_path.iterdir()] == ["tp0of2-73728"]


def test_only_one_rank_is_a_writer(tmp_path: Path) -> None:
    ours, theirs = pools()
    first, second = of_rank(tmp_path, 0), of_rank(tmp_path, 1)
    writer, reader = attach(first, ours), attach(second, theirs)
    assert first.is_storage_writer and not second.is_storage_writer
    # SGLang does not ask this rank to write; if it did, nothing is lost, because the writer has the same page.
    assert reader.batch_set_v1(keys(1), indices(theirs, [0])) == [True]
    assert writer.batch_exists(keys(1)) == 0 and writer.statistics()["puts"] == 0
    reader.close()
    writer.close()


def test_pages_in_pieces_of_the_readers_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharing, "STAGING_BYTES", 3 * 73728)
    monkeypatch.setattr(sharing, "_KEYS_MAX", 7)
    ours, theirs = pools()
    writer, reader = rank(tmp_path, 0, ours), rank(tmp_path, 1, theirs)
    assert all(writer.batch_set_v1(keys(40), indices(ours, list(range(40)))))
    assert reader.batch_exists(keys(41)) == 40
    assert reader.batch_get_v1(keys(40), indices(theirs, list(range(40)))) == [True] * 40
    assert [flat(theirs, page) for page in range(40)] == [flat(ours, page) for page in range(40)]
    reader.close()
    writer.close()


def test_a_forked_child_ends_nothing_of_the_writer(tmp_path: Path) -> None:
    ours, theirs = pools()
    writer, reader = rank(tmp_path, 0, ours), rank(tmp_path, 1, theirs)
    assert all(writer.batch_set_v1(keys(2), indices(ours, [0, 1])))
    assert in_child(writer.close) == 0
    assert reader.batch_exists(keys(2)) == 2
    assert reader.batch_get_v1(keys(2), indices(theirs, [5, 6])) == [True, True]
    reader.close()
    late = rank(tmp_path, 1, theirs)  # the socket has its name
    assert late.batch_exists(keys(2)) == 2
    late.close()
    writer.close()


def test_a_reader_may_come_first_and_stay_last(tmp_path: Path) -> None:
    ours, theirs = pools()
    reader = rank(tmp_path, 1, theirs)
    assert reader.batch_exists(keys(2)) == 0
    assert reader.batch_get_v1(keys(2), indices(theirs, [0, 1])) == [False, False]
    for _ in range(2):
        writer = rank(tmp_path, 0, ours)
        assert all(writer.batch_set_v1(keys(2), indices(ours, [0, 1])))
        assert reader.batch_exists(keys(2)) == 2
        assert reader.batch_get_v1(keys(2), indices(theirs, [5, 6])) == [True, True]
        writer.close()
        assert reader.batch_exists(keys(2)) == 0
        assert reader.batch_get_v1(keys(2), indices(theirs, [0, 1])) == [False, False]
    assert flat(theirs, 6) == flat(ours, 1)
    reader.close()


def test_several_ranks_read_at_a_time(tmp_path: Path) -> None:
    from concurrent.futures import ThreadPoolExecutor

    ours, _ = pools()
    writer = rank(tmp_path, 0, ours)
    assert all(writer.batch_set_v1(keys(20), indices(ours, list(range(20)))))

    def read(number: int) -> bool:
        pool = pools()[1]
        reader = attach(config(tmp_path, tp_rank=number, tp_size=5, is_mla_model=True), pool)
        try:
            if number < 5:  # other numbers of ranks have other pages
                return bool(reader.batch_exists(keys(20)) == 0)
        finally:
            reader.close()
        return False

    with ThreadPoolExecutor(4) as threads:
        assert all(threads.map(read, range(1, 5)))
    readers = [rank(tmp_path, 1, pools()[1]) for _ in range(4)]

    def all_pages(reader: Any) -> bool:
        pool = reader.mem_pool_host
        there = all(all(reader.batch_get_v1(keys(20), indices(pool, list(range(20))))) for _ in range(5))
        return there and all(flat(pool, page) == flat(ours, page) for page in range(20))

    with ThreadPoolExecutor(4) as threads:
        assert all(threads.map(all_pages, readers))
    for reader in readers:
        reader.close()
    writer.close()


def test_each_rank_may_keep_a_copy(tmp_path: Path) -> None:
    ours, theirs = pools()
    second = of_rank(tmp_path, 1, mla="copies")
    writer, other = attach(of_rank(tmp_path, 0, mla="copies"), ours), attach(second, theirs)
    assert second.is_storage_writer
    assert all(writer.batch_set_v1(keys(2), indices(ours, [0, 1])))
    assert other.batch_exists(keys(2)) == 0
    assert all(other.batch_set_v1(keys(2), indices(theirs, [0, 1])))
    assert other.batch_exists(keys(2)) == 2
    assert sorted(each.name for each in tmp_path.iterdir()) == ["tp0of2-73728", "tp1of2-73728"]
    writer.close()
    other.close()


def test_states_of_recurrent_layers_are_each_ranks_own(tmp_path: Path) -> None:
    ours, theirs = pools()
    states = [make_pool("mamba"), make_pool("mamba")]
    for seed, pool in enumerate(states):
        fill(pool, 10 + seed)
    second = of_rank(tmp_path, 1)
    ranks = [rank(tmp_path, 0, ours, mamba=states[0]), attach(second, theirs, mamba=states[1])]
    assert not second.is_storage_writer  # SGLang writes these on all ranks by itself
    assert all(ranks[0].batch_set_v1(keys(1), indices(ours, [0])))
    for storage, pool in zip(ranks, states):
        put = PoolTransfer(PoolName.MAMBA, host_indices=indices(pool, [0]), keys=keys(1))
        assert storage.batch_set_v2([put]) == {"mamba": [True]}
        get = PoolTransfer(PoolName.MAMBA, host_indices=indices(pool, [5]), keys=keys(1))
        assert storage.batch_get_v2([get]) == {"mamba": [True]}
        assert flat(pool, 5) == flat(pool, 0)
        assert storage.batch_exists_v2(keys(1), [PoolTransfer(PoolName.MAMBA)]).kv_hit_pages == 1
    assert flat(states[0], 5) != flat(states[1], 5)
    for storage in reversed(ranks):
        storage.close()


def test_a_draft_model_with_heads_makes_each_rank_a_writer_of_it(tmp_path: Path) -> None:
    ours, theirs = pools()
    drafts = [make_pool("mha"), make_pool("mha")]
    for seed, pool in enumerate(drafts):
        fill(pool, 20 + seed)
    second = of_rank(tmp_path, 1)
    ranks = [rank(tmp_path, 0, ours, draft=drafts[0]), attach(second, theirs, draft=drafts[1])]
    assert second.is_storage_writer
    assert all(ranks[0].batch_set_v1(keys(1), indices(ours, [0])))
    assert ranks[1].batch_set_v1(keys(1), indices(theirs, [0])) == [True]
    assert ranks[1].statistics()["puts"] == 0
    for storage, pool in zip(ranks, drafts):
        put = PoolTransfer(PoolName.DRAFT, host_indices=indices(pool, [0]), keys=keys(1))
        assert storage.batch_set_v2([put]) == {"draft": [True]}
        get = PoolTransfer(PoolName.DRAFT, host_indices=indices(pool, [5]), keys=keys(1))
        assert storage.batch_get_v2([get]) == {"draft": [True]}
        assert flat(pool, 5) == flat(pool, 0)
    assert ranks[1].batch_get_v1(keys(1), indices(theirs, [7])) == [True]
    assert flat(theirs, 7) == flat(ours, 0)
    for storage in reversed(ranks):
        storage.close()


# ---- connections


def test_a_path_longer_than_a_socket_may_have(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 100) / ("e" * 100)
    deep.mkdir(parents=True)
    ours, theirs = pools()
    writer, reader = rank(deep, 0, ours), rank(deep, 1, theirs)
    assert all(writer.batch_set_v1(keys(1), indices(ours, [0])))
    assert reader.batch_get_v1(keys(1), indices(theirs, [0])) == [True]
    reader.close()
    writer.close()


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"GET / HTTP/1.1\r\n\r\n",
        sharing._HELLO.pack(sharing._PROTOCOL, 4096, 1),
        sharing._HELLO.pack(sharing._PROTOCOL, 73728, 1),
    ],
)
def test_strangers_are_turned_away(tmp_path: Path, message: bytes) -> None:
    ours, theirs = pools()
    writer, reader = rank(tmp_path, 0, ours), rank(tmp_path, 1, theirs)
    assert all(writer.batch_set_v1(keys(1), indices(ours, [0])))
    with socket.socket(socket.AF_UNIX) as stranger:
        stranger.settimeout(30)
        with sharing._short_path(tmp_path / "tp0of2-73728.socket") as path:
            stranger.connect(path)
        stranger.sendall(message)
        stranger.shutdown(socket.SHUT_WR)
        assert stranger.recv(1) == b""
    assert reader.batch_get_v1(keys(1), indices(theirs, [0])) == [True]
    reader.close()
    writer.close()


def hello(path: Path, block_bytes: int, seals: int) -> tuple[socket.socket, bytes]:
    """Greets the writer with memory of one block. Returns the connection and the answer."""
    memory = os.memfd_create("a test", os.MFD_ALLOW_SEALING)
    os.ftruncate(memory, block_bytes)
    fcntl.fcntl(memory, fcntl.F_ADD_SEALS, seals)
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(30)
    with sharing._short_path(path) as short:
        connection.connect(short)
    socket.send_fds(connection, [sharing._HELLO.pack(sharing._PROTOCOL, block_bytes, 1)], [memory])
    os.close(memory)
    return connection, connection.recv(1)


def test_only_memory_of_its_blocks_that_stays_is_taken(tmp_path: Path) -> None:
    writer = rank(tmp_path, 0, pools()[0])
    path = tmp_path / "tp0of2-73728.socket"
    shrink = fcntl.F_SEAL_SHRINK
    for block_bytes, seals, answer in ((73728, shrink, b"\x01"), (73728, 0, b""), (4096, shrink, b""), (147456, shrink, b"")):
        connection, answered = hello(path, block_bytes, seals)
        assert answered == answer
        connection.close()
    connection, _ = hello(path, 73728, fcntl.F_SEAL_SHRINK)
    with connection:
        connection.sendall(sharing._REQUEST.pack(sharing._READ, 2) + bytes(64))  # more blocks than its memory has
        assert connection.recv(1) == b""
    writer.close()


def test_only_its_user_reaches_the_socket(tmp_path: Path) -> None:
    writer = rank(tmp_path, 0, pools()[0])
    assert (tmp_path / "tp0of2-73728.socket").stat().st_mode & 0o777 == 0o600
    writer.close()


_WRITER = """
import sys
from pathlib import Path
from test_sglang_mla import pools, rank
from sglang_under_test import indices, keys
ours, _ = pools()
writer = rank(Path(sys.argv[1]), 0, ours)
assert all(writer.batch_set_v1(keys(8), indices(ours, list(range(8)))))
print("ready", flush=True)
sys.stdin.read()
writer.close()
"""


def start_writer(path: Path) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])}
    process = subprocess.Popen(
        [sys.executable, "-c", _WRITER, str(path)],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    return process


def test_ranks_are_processes_and_the_writer_may_die(tmp_path: Path) -> None:
    ours, theirs = pools()
    reader = rank(tmp_path, 1, theirs)
    process = start_writer(tmp_path)
    assert reader.batch_exists(keys(9)) == 8
    assert reader.batch_get_v1(keys(8), indices(theirs, list(range(8)))) == [True] * 8
    assert [flat(theirs, page) for page in range(8)] == [flat(ours, page) for page in range(8)]
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert reader.batch_exists(keys(8)) == 0
    assert reader.batch_get_v1(keys(8), indices(theirs, list(range(8)))) == [False] * 8
    process = start_writer(tmp_path)
    assert reader.batch_get_v1(keys(8), indices(theirs, list(range(8, 16)))) == [True] * 8
    assert [flat(theirs, page) for page in range(8, 16)] == [flat(ours, page) for page in range(8)]
    process.communicate()
    assert process.returncode == 0
    reader.close()


@pytest.mark.parametrize("clears", [0, 1])
def test_a_clear_on_one_rank_reaches_all(tmp_path: Path, clears: int) -> None:
    ours, theirs = pools()
    shared = {"shared": {"url": "memory:"}}
    writer, reader = attach(of_rank(tmp_path, 0, **shared), ours), attach(of_rank(tmp_path, 1, **shared), theirs)
    assert all(writer.batch_set_v1(keys(3), indices(ours, [0, 1, 2])))
    assert reader.batch_exists(keys(3)) == 3
    assert (writer, reader)[clears].clear() is True
    for storage, pool in ((writer, ours), (reader, theirs)):
        assert storage.batch_exists(keys(3)) == 0
        assert storage.batch_get_v1(keys(3), indices(pool, [5, 6, 7])) == [False] * 3
    assert all(writer.batch_set_v1(keys(2), indices(ours, [8, 9])))
    assert reader.batch_get_v1(keys(2), indices(theirs, [5, 6])) == [True, True]
    assert flat(theirs, 5) == flat(ours, 8)
    writer.close()
    assert reader.clear() is False
    reader.close()
