"""EventPublisher: what a subscriber gets, read with pyzmq and with decoders that are not ours."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from terrace_kv import (
    Change,
    ChangeKind,
    EventPublisher,
    InvalidArgument,
    OffloadCache,
    State,
    Stopped,
    StorageError,
    TerraceError,
)

zmq = pytest.importorskip("zmq", reason="pyzmq is not installed (python3-zmq)")

BLOCK = 4096
TOKENS = 16
ANY_PORT = "tcp://127.0.0.1:0"
PATIENCE = 120.0
END = (-1).to_bytes(8, "big", signed=True)


def decoder_of_msgpack() -> Callable[[bytes], Any]:
    """A decoder of MessagePack that knows nothing of vLLM."""
    return pytest.importorskip("msgpack", reason="msgpack is not installed (python3-msgpack)").unpackb


def decoder_of_vllm() -> Callable[[bytes], Any]:
    """vLLM's own: it refuses a batch that is not of its types. Returns events as mappings, without what is not set."""
    events = pytest.importorskip("vllm.distributed.kv_events", reason="vLLM is not installed (tools/engines)")
    msgspec = pytest.importorskip("msgspec")
    decode = msgspec.msgpack.Decoder(type=events.KVEventBatch).decode

    def to_builtins(payload: bytes) -> Any:
        batch = decode(payload)
        its = [{"type": type(each).__name__, **msgspec.structs.asdict(each)} for each in batch.events]
        return [batch.ts, its, batch.data_parallel_rank]

    return to_builtins


@pytest.fixture(params=[decoder_of_msgpack, decoder_of_vllm])
def decode(request: pytest.FixtureRequest) -> Callable[[bytes], Any]:
    return request.param()


@pytest.fixture
def publisher() -> Iterator[EventPublisher]:
    try:
        made = EventPublisher(ANY_PORT, replay_endpoint=ANY_PORT, topic="kv", data_parallel_rank=2, heartbeat=3600.0)
    except TerraceError as error:
        pytest.skip(str(error))
    with made:
        yield made


def configuration(path: Path) -> dict[str, Any]:
    return {
        "key-order": "prefix",
        "write-policy": "write-through",
        "storage": {"where": f"file:{path / 'disk'}", "capacity": "1MiB"},
        "pool": [{"block-bytes": BLOCK, "device-blocks": 4, "host-blocks": 8}],
    }


@pytest.fixture
def cache(tmp_path: Path) -> Iterator[OffloadCache]:
    with OffloadCache(configuration(tmp_path)) as made:
        made.record_changes()
        yield made


def store(cache: OffloadCache, keys: Any) -> None:
    """Stores the blocks of a prompt, and waits until they are on the disk."""
    cache.store(1, keys, memory=[bytes(BLOCK)] * keys.count)
    cache.drain(PATIENCE)
    job = cache.start_write_back()
    end = time.monotonic() + PATIENCE
    while cache.write_back(job).state == 0:
        cache.poll()
        assert time.monotonic() < end
    cache.poll()


class Subscriber:
    """Has what vllm-router has: a SUB socket, and a DEALER for what it missed."""

    def __init__(self, publisher: EventPublisher) -> None:
        self.context = zmq.Context()
        self.live = self.context.socket(zmq.SUB)
        self.replay = self.context.socket(zmq.DEALER)
        for socket, endpoint in ((self.live, publisher.endpoint), (self.replay, publisher.replay_endpoint)):
            socket.setsockopt(zmq.RCVTIMEO, int(PATIENCE * 1000))
            socket.setsockopt(zmq.LINGER, 0)
            socket.connect(endpoint)
        self.live.setsockopt(zmq.SUBSCRIBE, b"kv")

    def ask(self, start: int) -> list[tuple[int, bytes]]:
        """The past batches from a number on."""
        self.replay.send_multipart([b"", start.to_bytes(8, "big")])
        batches = []
        while True:
            empty, topic, number, payload = self.replay.recv_multipart()
            assert empty == b""
            if number == END:
                assert topic == b"" and payload == b""
                return batches
            assert topic == b"kv"
            batches.append((int.from_bytes(number, "big"), payload))

    def close(self) -> None:
        self.context.destroy(linger=0)


@pytest.fixture
def subscriber(publisher: EventPublisher) -> Iterator[Subscriber]:
    made = Subscriber(publisher)
    yield made
    made.close()


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


def test_blocks_of_a_cache_are_read_by_other_decoders(
    cache: OffloadCache, publisher: EventPublisher, subscriber: Subscriber, decode: Callable[[bytes], Any]
) -> None:
    tokens = list(range(70_000, 70_000 + 3 * TOKENS + 5))
    keys = cache.token_keys(tokens, TOKENS)
    publisher.describe(keys, tokens, TOKENS, adapter="poems")
    store(cache, keys)
    publisher.publish(cache.changes())
    publisher.publish_device(keys[:1])
    publisher.publish_device(keys[:1], removed=True)
    cache.clear()
    publisher.publish(cache.changes())
    until(lambda: publisher.statistics()["cleared"] == 1)
    batches = subscriber.ask(0)
    assert [number for number, _ in batches] == list(range(len(batches)))
    events = []
    for _, payload in batches:
        when, its, rank = decode(payload)
        assert abs(when - time.time()) < 3600 and rank == 2
        events += its
    stored = [each for each in events if each["type"] == "BlockStored"]
    assert {each["medium"] for each in stored} == {"GPU", "CPU", "STORAGE"}
    for medium, count in (("GPU", 1), ("CPU", 3), ("STORAGE", 3)):
        its = [each for each in stored if each["medium"] == medium]
        assert [key for each in its for key in each["block_hashes"]] == list(keys)[:count]
        assert [token for each in its for token in each["token_ids"]] == tokens[: count * TOKENS]
        assert its[0]["parent_block_hash"] is None
        assert all(after["parent_block_hash"] == before["block_hashes"][-1] for before, after in zip(its, its[1:]))
        for each in its:
            assert (each["block_size"], each["lora_name"], each["lora_id"], each["group_idx"]) == (TOKENS, "poems", None, 0)
    removed = [each for each in events if each["type"] == "BlockRemoved"]
    assert ("GPU", [keys[0]]) in [(each["medium"], each["block_hashes"]) for each in removed]
    assert events[-1]["type"] == "AllBlocksCleared"


def test_a_subscriber_gets_live_batches_with_topic_and_number(
    publisher: EventPublisher, subscriber: Subscriber, cache: OffloadCache
) -> None:
    tokens = list(range(TOKENS))
    keys = cache.token_keys(tokens, TOKENS)
    publisher.describe(keys, tokens, TOKENS)
    end = time.monotonic() + PATIENCE
    while not subscriber.live.poll(10):  # until the subscription has arrived
        assert time.monotonic() < end
        publisher.publish_device(keys)
    topic, number, payload = subscriber.live.recv_multipart()
    assert topic == b"kv"
    start = int.from_bytes(number, "big")
    assert subscriber.ask(start)[0] == (start, payload)


def test_a_continued_prompt_is_described_from_its_parent(
    publisher: EventPublisher, subscriber: Subscriber, cache: OffloadCache, decode: Callable[[bytes], Any]
) -> None:
    tokens = list(range(2 * TOKENS))
    keys = cache.token_keys(tokens, TOKENS)
    publisher.describe(keys[:1], tokens, TOKENS)
    publisher.describe(keys[1:], tokens[TOKENS:], TOKENS, parent=keys[0])
    publisher.publish_device(keys)
    until(lambda: publisher.statistics()["stored"] == 2)
    ((_, payload),) = subscriber.ask(0)
    assert [event["type"] for event in decode(payload)[1]] == ["AllBlocksCleared", "BlockStored"]
    assert decode(payload)[1][1]["token_ids"] == tokens


def test_blocks_from_before_a_restart_are_published_when_a_prompt_finds_them(
    publisher: EventPublisher, subscriber: Subscriber, tmp_path: Path, decode: Callable[[bytes], Any]
) -> None:
    tokens = list(range(2 * TOKENS))
    with OffloadCache(configuration(tmp_path)) as before:
        store(before, before.token_keys(tokens, TOKENS))
    with OffloadCache(configuration(tmp_path)) as cache:
        cache.record_changes()
        keys = cache.token_keys(tokens, TOKENS)
        assert cache.look_up(keys) == [State.STORAGE] * 2
        publisher.describe(keys, tokens, TOKENS)
        publisher.publish(Change(ChangeKind.STORED, State.STORAGE, key, None, 0, depth, 0) for depth, key in enumerate(keys))
        until(lambda: publisher.statistics()["stored"] == 2)
        cache.clear()
        publisher.publish(cache.changes())
        until(lambda: publisher.statistics()["published_blocks"] == 0)
    events = [event for _, payload in subscriber.ask(0) for event in decode(payload)[1]]
    assert [event["type"] for event in events] == ["AllBlocksCleared", "BlockStored", "AllBlocksCleared"]
    assert events[1]["token_ids"] == tokens and events[1]["medium"] == "STORAGE"


def test_wrong_arguments_are_refused(publisher: EventPublisher, cache: OffloadCache) -> None:
    keys = cache.token_keys(range(2 * TOKENS), TOKENS)
    with pytest.raises(ValueError, match="there are 31 tokens, must be at least 32: 16 for each of 2 keys"):
        publisher.describe(keys, range(31), TOKENS)
    with pytest.raises(ValueError, match=r"tokens\[1\] is -1, must be from 0"):
        publisher.describe(keys, [0, -1] + [0] * 30, TOKENS)
    with pytest.raises(ValueError, match="parent has 3 bytes, must have 32"):
        publisher.describe(keys, range(32), TOKENS, parent=b"abc")
    with pytest.raises(InvalidArgument, match="group is 65536, must be at most 65535"):
        publisher.publish_device(keys, group=65536)
    with pytest.raises(ValueError, match="hwm is 0, must be at least 1"):
        EventPublisher(ANY_PORT, hwm=0)
    with pytest.raises(InvalidArgument, match="endpoint is \"5557\", must be tcp://"):
        EventPublisher("5557")
    with pytest.raises(StorageError, match="cannot bind") as used:
        EventPublisher(publisher.endpoint)
    assert used.value.errno == errno.EADDRINUSE


@pytest.mark.parametrize("name", ["endpoint", "replay_endpoint"])
def test_a_socket_that_lives_and_a_file_are_not_taken_over(tmp_path: Path, name: str) -> None:
    file = tmp_path / "file"
    file.write_text("mine")
    where = {"endpoint": ANY_PORT, "replay_endpoint": ANY_PORT}
    with EventPublisher(**(where | {name: f"ipc://{tmp_path}/socket"})):
        for path in (file, tmp_path / "socket"):
            with pytest.raises(StorageError, match="cannot bind") as used:
                EventPublisher(**(where | {name: f"ipc://{path}"}))
            assert used.value.errno == errno.EADDRINUSE
    assert [each.name for each in tmp_path.iterdir()] == ["file"] and file.read_text() == "mine"


def test_a_closed_publisher_says_so(publisher: EventPublisher) -> None:
    publisher.close()
    publisher.close()
    assert publisher.closed
    with pytest.raises(Stopped, match="the publisher is closed"):
        publisher.publish([])
    with EventPublisher(publisher.endpoint):
        pass  # the port is free


def test_a_publisher_of_the_parent_is_closed_in_a_child(publisher: EventPublisher) -> None:
    child = os.fork()
    if child == 0:
        try:
            publisher.statistics()
        except Stopped:
            os._exit(0 if publisher.closed else 1)
        os._exit(2)
    assert os.waitpid(child, 0)[1] == 0
    assert publisher.statistics()["batches"] == 0
