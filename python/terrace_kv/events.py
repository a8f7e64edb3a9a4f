"""A publisher of what is cached, for routers."""

from __future__ import annotations

import ctypes
import os
import threading
from array import array
from collections.abc import Iterable, Sequence
from ctypes import byref, c_uint32, c_void_p

from . import _interface
from ._caches import CHANGE
from ._keys import KEY_BYTES, Keys
from ._library import check, error_of, lib
from ._offload_types import Change, ChangeKind
from ._polling import Closing, nanoseconds, tell_of_forks
from ._structures import in_range

_NO_KEY = bytes(KEY_BYTES)


class EventPublisher(Closing):
    """Publishes over ZeroMQ which blocks are cached where, in the format of vLLM, for routers that send a prompt to the engine
    that has most of it (docs/events.md):

        publisher = EventPublisher("tcp://10.0.0.7:5557", replay_endpoint="tcp://10.0.0.7:5558")
        cache.record_changes()
        publisher.describe(cache.token_keys(tokens, 16), tokens, 16)  # a new request
        publisher.publish(cache.changes())                            # in every step

    Nothing is published about a block whose tokens nobody has described. Describe only blocks of full attention whose content
    depends on nothing but the tokens before their end and the adapter. Copies in a shared store are not published.

    Args:
        endpoint: Address for subscribers, "tcp://ADDRESS:PORT" or "ipc://PATH". With port 0 the system chooses one. Events have
            the tokens of prompts, and subscribers are not authenticated, so the default can be reached from this machine only.
        replay_endpoint: Address for requests for past batches. None: there is no replay.
        topic: Topic of all messages.
        connect: Connect to `endpoint`, where a subscriber is bound, instead of binding it.
        data_parallel_rank: A field of each batch; also added to the ports that are bound and not 0.
        buffer_steps, buffer_bytes: Limits of the past batches that are kept for replay. None, here and below: the default of
            EventPublisherOptions in <terrace/event_publisher.hpp>.
        hwm: Number of batches that a subscriber may be behind. A slower one loses batches.
        max_queue_size: Number of changes, and of described blocks, that may wait for the publisher's thread.
        max_blocks: Number of blocks whose tokens are kept.
        heartbeat: After so many seconds without changes an empty batch is published.

    Raises:
        InvalidArgument: An argument is wrong; the sentence says which, and what would be right.
        StorageError: An address cannot be used; `errno` is EADDRINUSE if another process uses the port or path.

    Threads: any, several at once. No call waits for a subscriber. In a child process made by os.fork() the publisher is closed.
    """

    def __init__(
        self,
        endpoint: str = "tcp://127.0.0.1:5557",
        *,
        replay_endpoint: str | None = None,
        topic: str = "",
        connect: bool = False,
        data_parallel_rank: int = 0,
        buffer_steps: int | None = None,
        buffer_bytes: int | None = None,
        hwm: int | None = None,
        max_queue_size: int | None = None,
        max_blocks: int | None = None,
        heartbeat: float | None = None,
    ) -> None:
        self._make_once()
        self._handle: c_void_p | None = None
        self._lock = threading.RLock()  # held by calls, so that close() waits for them
        self._end = "the publisher is closed"
        limits = {
            "buffer_steps": buffer_steps,
            "buffer_bytes": buffer_bytes,
            "hwm": hwm,
            "max_queue_size": max_queue_size,
            "max_blocks": max_blocks,
        }
        for name, limit in limits.items():
            if limit == 0:
                raise ValueError(f"{name} is 0, must be at least 1")
        given = _interface.EventOptions(
            endpoint=endpoint,
            replay_endpoint=replay_endpoint,
            topic=topic,
            connect=int(connect),
            data_parallel_rank=data_parallel_rank,
            heartbeat=0 if heartbeat is None else max(1, nanoseconds(heartbeat, "heartbeat")),
            **{name: limit for name, limit in limits.items() if limit is not None},
        )
        handle = c_void_p()
        check(lib.terrace_event_publisher_open(byref(given), byref(handle)))
        self._handle = handle
        self._process = os.getpid()
        self.endpoint: str = lib.terrace_event_publisher_endpoint(handle).decode()
        self.replay_endpoint: str = lib.terrace_event_publisher_replay_endpoint(handle).decode()
        tell_of_forks(self)

    def describe(
        self,
        keys: Keys,
        tokens: Sequence[int],
        block_tokens: int,
        *,
        parent: bytes | None = None,
        group: int = 0,
        adapter: str | None = None,
    ) -> None:
        """Tells the tokens of consecutive blocks of a prompt, before or after they are cached. Blocks that are described already
        keep their description.

        Args:
            keys: The keys of the blocks.
            tokens: The tokens from the first block on. Tokens after the last block are ignored, so that the arguments of
                OffloadCache.token_keys() can be used.
            block_tokens: Tokens of a block.
            parent: The key of the block before the first one. None: the prompt begins with it.
            group: The KV cache group, as in changes.
            adapter: The name of the LoRA adapter.

        Raises:
            Busy: The queue is full. The blocks can be described later.
            ValueError: A token is not from 0 to 2**32 - 1, or there are too few.
        """
        count = keys.count * in_range("block_tokens", block_tokens, c_uint32)
        if len(tokens) < count:
            each = f"{block_tokens} for each of {keys.count} keys"
            raise ValueError(f"there are {len(tokens)} tokens, must be at least {count}: {each}")
        if parent is not None and len(parent) != KEY_BYTES:
            raise ValueError(f"parent has {len(parent)} bytes, must have {KEY_BYTES}")
        try:
            packed = array("I", tokens[:count])
        except OverflowError:
            wrong = next(i for i, token in enumerate(tokens) if not 0 <= token < 1 << 32)
            raise ValueError(f"tokens[{wrong}] is {tokens[wrong]}, must be from 0 to 2**32 - 1") from None
        address, size = packed.buffer_info()
        before = None if parent is None else _interface.Key.from_buffer_copy(parent)
        given = _interface.BlockTokens(
            keys=ctypes.addressof(keys._array),
            count=keys.count,
            tokens=address,
            token_count=size,
            parent=None if before is None else ctypes.addressof(before),
            adapter=adapter or None,
            block_tokens=block_tokens,
            group=group,
        )
        with self._lock:
            check(lib.terrace_event_publisher_describe(self._open(), byref(given)))

    def publish(self, changes: Iterable[Change]) -> None:
        """Publishes the changes that OffloadCache.changes() has returned, all of them and in their order.

        Raises:
            Busy: The queue is full. Subscribers are told that all blocks are gone.
        """
        self._publish(
            CHANGE.pack(each.key, each.parent or _NO_KEY, each.tenant, each.kind, each.source, each.depth, each.group)
            for each in changes
        )

    def publish_device(self, keys: Keys, *, removed: bool = False, group: int = 0) -> None:
        """Publishes that the engine has stored blocks in its own device memory, or has removed them. Errors are those of
        publish()."""
        kind = ChangeKind.REMOVED if removed else ChangeKind.STORED
        group = in_range("group", group, c_uint32)
        self._publish(CHANGE.pack(key, _NO_KEY, 0, kind, _interface.DEVICE, 0, group) for key in keys)

    def _publish(self, events: Iterable[bytes]) -> None:
        packed = b"".join(events)
        count = len(packed) // CHANGE.size
        with self._lock:
            given = (_interface.CacheEvent * count).from_buffer_copy(packed)
            check(lib.terrace_event_publisher_publish(self._open(), given, count))

    def statistics(self) -> dict[str, int]:
        """Counts since the publisher was opened, by the names of EventPublisherStats in <terrace/event_publisher.hpp>."""
        value = _interface.EventStatistics()
        with self._lock:
            check(lib.terrace_event_publisher_read_statistics(self._open(), byref(value)))
        return {field: getattr(value, field) for field, *_ in value._fields_ if field != "struct_size"}

    def close(self) -> None:
        """Publishes what is queued, and closes the sockets. A second call does nothing."""
        with self._lock:
            handle, self._handle = self._handle, None
            lib.terrace_event_publisher_destroy(handle)

    def _open(self) -> c_void_p:
        if self._handle is None:
            raise error_of(_interface.STOPPED, self._end)
        return self._handle

    def _forked(self) -> None:
        self._lock = threading.RLock()
        self._handle = None
        self._end = f"the publisher belongs to process {self._process}, which was forked; this process must open one of its own"
