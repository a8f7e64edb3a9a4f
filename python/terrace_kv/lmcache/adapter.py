"""TerraceL2Adapter, an L2 adapter of LMCache's storage manager."""

from __future__ import annotations

import importlib.metadata
import select
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

from lmcache.lmcache_native import Bitmap
from lmcache.v1.distributed.api import KeyEntry, KeyListPage
from lmcache.v1.distributed.internal_api import L2StoreResult
from lmcache.v1.distributed.l2_adapters.base import L2AdapterInterface
from lmcache.v1.platform import create_event_notifier

from .._keys import KEY_BYTES, Keys, chosen, joined, raw_keys
from .._library import TerraceError, status_text
from .._report import Report
from ..identity import namespace, weights_revision
from ..store import Health, Store
from .layouts import Form, Layouts, logger
from .options import TerraceL2AdapterConfig
from .residents import Resident, Residents
from .transfers import Move, Part, Transfers

_LEVELS = (logger.info, logger.warning, logger.error)
_CLOSE_SECONDS = 60.0
_MANY_BLOCKS = 64
_LOOK_UP, _LOAD, _STORE, _DELETE = "looking objects up", "loading objects", "storing objects", "deleting objects"


@dataclass(frozen=True)
class _Task:
    number: int
    what: str
    failure: Any
    """The result if the task fails as a whole."""


class TerraceL2Adapter(L2AdapterInterface):  # type: ignore[misc]
    """Keeps objects in a Store: on local disks, verified when they are read, found again after a restart.

    LMCache's controllers submit tasks on their threads, and are told of results by event descriptors. One thread of the adapter
    does all work; no call waits for the disk, except delete() and close(). An object that is missing, damaged, of another layout
    or not read in time is a miss. A store task with an object that is not stored fails as a whole, as LMCache wants it.

    A lock of a look-up keeps an object from delete(). It does not keep the store from giving it up, but a look-up is a use: the
    store gives up all objects that were not used since then first. If it has been given up by then, the load is a miss.

    Args:
        config: The options; docs/lmcache.md lists them.
        l1_memory_desc: Not used: the disk does not use LMCache's memory.

    Raises:
        ValueError: An option is wrong; the sentence says which.
        Busy: Another process has the store.
        StorageError: The directory cannot be used.
    """

    def __init__(self, config: TerraceL2AdapterConfig, l1_memory_desc: Any = None) -> None:
        fields = {
            "lmcache": importlib.metadata.version("lmcache"),
            "weights": weights_revision("", config.weights_revision),
        }
        self._config = config
        self._reports = {what: Report(logger, "LMCache", what) for what in (_LOOK_UP, _LOAD, _STORE, _DELETE)}
        # The size of blocks is part of the directory's name, so that another size makes another store.
        name = _store_name(config.block_bytes)
        self._store = store = Store(
            config.path,
            config.capacity,
            config.block_bytes,
            namespace=namespace("lmcache", fields),
            name=name,
            log=lambda level, sentence: _LEVELS[min(level, 2)]("%s", sentence),
            **{"label": "LMCache " + fields["lmcache"], **config.store},
        )
        try:
            _warn_of_others(Path(config.path[0]), name)
            super().__init__(store.statistics()["capacity_blocks"] * store.block_bytes)
            self._layouts = Layouts(Path(config.path[0]) / f"{name}.layouts.json", store.block_bytes)
            self._transfers = Transfers(store)
            self._residents = Residents()
            self._lock = threading.Lock()
            self._orders: deque[tuple[_Task, Callable[[_Task], None]]] = deque()
            self._next_task = 0
            self._stored: dict[int, Any] = {}
            self._found: dict[int, Any] = {}
            self._loaded: dict[int, Any] = {}
            self._stopping = self._broken = False
            self._has_large = False
            self._store_ready, self._lookup_ready, self._load_ready = (create_event_notifier() for _ in range(3))
            self._bell = create_event_notifier()
            self._thread = threading.Thread(target=self._run, name="terrace-l2", daemon=True)
            self._thread.start()
        except BaseException:
            store.close(_CLOSE_SECONDS)
            raise
        logger.info("%s of %s, blocks of %s bytes, I/O %s", config.capacity, config.path, store.block_bytes, store.io())

    # ---- tasks of LMCache

    def get_store_event_fd(self) -> int:
        """Readable when a store task has ended."""
        return int(self._store_ready.fileno())

    def get_lookup_and_lock_event_fd(self) -> int:
        """Readable when a look-up has ended."""
        return int(self._lookup_ready.fileno())

    def get_load_event_fd(self) -> int:
        """Readable when a load task has ended."""
        return int(self._load_ready.fileno())

    def submit_store_task(self, keys: list[Any], objects: list[Any]) -> int:
        """Stores objects that are not there yet. LMCache keeps their memory until the task has ended."""
        return self._order(_STORE, L2StoreResult(False, 0), lambda task: self._begin_store(task, keys, objects))

    def pop_completed_store_tasks(self) -> dict[int, Any]:
        """By task that has ended since the last call: whether all its objects are stored, and the bytes written."""
        with self._lock:
            stored = dict(self._stored)
            self._stored.clear()
        return stored

    def submit_lookup_and_lock_task(self, keys: list[Any], group_layout_descs: dict[int, Any]) -> int:
        """Looks objects up, and locks those that are there. Without a layout for a group, objects of any layout are found that was
        stored for it."""
        return self._order(_LOOK_UP, Bitmap(len(keys)), lambda task: self._look_up(task, keys, group_layout_descs))

    def query_lookup_and_lock_result(self, task_id: int) -> Any:
        """The objects that are there; None while the task has not ended, and after the first call that returned them."""
        with self._lock:
            return self._found.pop(task_id, None)

    def submit_unlock(self, keys: list[Any]) -> None:
        """Takes back one lock of each object."""
        self._residents.unlock(keys)

    def submit_load_task(self, keys: list[Any], objects: list[Any]) -> int:
        """Reads objects into memory of LMCache, which keeps it until the task has ended. The memory of an object that is not
        loaded has undefined bytes then."""
        return self._order(_LOAD, Bitmap(len(keys)), lambda task: self._begin_load(task, keys, objects))

    def query_load_result(self, task_id: int) -> Any:
        """The objects that are loaded; None while the task has not ended, and after the first call that returned them."""
        with self._lock:
            return self._loaded.pop(task_id, None)

    # ---- all objects

    def delete(self, keys: list[Any]) -> None:
        """Removes objects of every layout, except those that are locked. Waits until this is durable. A failure is reported to the
        log; the objects are not served any more nevertheless."""
        forms = [(key, form) for key in self._residents.unlocked(keys) for form in self._layouts.candidates(key, None)]
        if not forms:
            return
        made = self._names([form.names(key) for key, form in forms])
        last = [made[end - 1] for end in _ends([form for _key, form in forms])]
        try:
            self._store.remove(made)
        except TerraceError as error:
            self._reports[_DELETE].failed(error)
        else:
            self._reports[_DELETE].well()
        self._tell_deleted(self._residents.remove(last))

    def list_l2_keys(self, model_name: str | None = None, page_size: int = 500, cursor: str | None = None) -> Any:
        """A page of the objects that this process has stored or found.

        Raises:
            ValueError: The page size or the cursor is wrong.
        """
        if page_size < 1:
            raise ValueError(f"page_size is {page_size}, must be at least 1")
        try:
            after = bytes.fromhex(cursor or "")
        except ValueError:
            raise ValueError(f"cursor {cursor!r} is none of an earlier page") from None
        page, has_more = self._residents.page(model_name, page_size, after)
        entries = tuple(KeyEntry(key=each.key.to_encoded_object_key(), size_bytes=each.size) for _block, each in page)
        return KeyListPage(entries=entries, next_page_token=page[-1][0].hex() if has_more else None)

    def report_status(self) -> dict[str, Any]:
        """The state of the adapter, with the counts of Store.statistics()."""
        health, reason = (Health.DOWN, "the adapter is closed") if self._store.closed else self._store.health()
        status: dict[str, Any] = {
            "is_healthy": self._thread.is_alive() and not self._broken and health is not Health.DOWN,
            "type": type(self).__name__,
            "path": list(self._config.path),
            "disk": health.name.lower(),
            "reason": reason,
            "known_objects": len(self._residents),
            "locked_objects": self._residents.locked,
        }
        if not self._store.closed:
            status["statistics"] = self._store.statistics()
        return status

    def close(self) -> None:
        """Ends all tasks and makes everything durable. Tasks that have not begun fail. A second call does nothing."""
        with self._lock:
            if self._stopping:
                return
            self._stopping = True
        self._bell.notify()
        self._thread.join()
        try:
            self._store.close(_CLOSE_SECONDS)
        except TerraceError as error:
            logger.error("closing the store: %s", error)
        for each in (self._store_ready, self._lookup_ready, self._load_ready, self._bell):
            each.close()

    # ---- the thread of the adapter

    def _order(self, what: str, failure: Any, work: Callable[[_Task], None]) -> int:
        """Gives a task a number, and orders its work."""
        with self._lock:
            if self._stopping:
                raise RuntimeError("the adapter is closed")
            task = _Task(self._next_task, what, failure)
            self._next_task += 1
            self._orders.append((task, work))
        self._bell.notify()
        return task.number

    def _attempt(self, task: _Task, work: Callable[[_Task], None]) -> None:
        """Does work of a task. If it raises an exception, the task fails."""
        try:
            if self._broken:
                raise RuntimeError("the thread of the adapter has failed before; the log has the reason")
            work(task)
        except Exception as error:
            self._reports[task.what].failed(f"{type(error).__name__}: {error}")
            self._end(task, task.failure)

    def _end(self, task: _Task, result: Any) -> None:
        results, ready = {
            _STORE: (self._stored, self._store_ready),
            _LOOK_UP: (self._found, self._lookup_ready),
            _LOAD: (self._loaded, self._load_ready),
        }[task.what]
        with self._lock:
            results[task.number] = result
        ready.notify()

    def _run(self) -> None:
        poller = select.poll()
        poller.register(self._bell.fileno(), select.POLLIN)
        poller.register(self._store.fileno(), select.POLLIN)
        while True:
            self._bell.consume()
            while self._orders:
                self._attempt(*self._orders.popleft())
            if self._stopping or self._broken:
                self._transfers.stop()
            if not self._broken:
                try:
                    self._take_events(self._transfers.step())
                except Exception:
                    logger.exception("the adapter has failed; from now on all its tasks fail")
                    self._broken = True
                    poller.unregister(self._store.fileno())
                    self._transfers.abandon()
            if self._stopping and self._transfers.is_idle():
                return
            left = self._transfers.seconds_left()
            poller.poll(None if left is None else max(1, int(left * 1000)))

    def _take_events(self, gone: list[bytes]) -> None:
        """Blocks have been given up. An object whose last block was stored anew since then is still there."""
        gone = self._residents.known(gone)
        if gone:
            there = self._store.contains_many(joined(gone))
            self._tell_deleted(self._residents.remove([block for block, is_there in zip(gone, there) if not is_there]))

    # ---- look-ups

    def _look_up(self, task: _Task, keys: list[Any], hints: dict[int, Any]) -> None:
        found: dict[int, tuple[Form, bytes]] = {}  # by index of a key: its layout, and the keys of its blocks
        candidates = [self._layouts.candidates(key, hints.get(key.object_group_id)) for key in keys]
        attempt = 0
        while True:
            asked = [(i, forms[attempt]) for i, forms in enumerate(candidates) if len(forms) > attempt and i not in found]
            if not asked:
                break
            made = self._names([form.names(keys[i]) for i, form in asked])
            there = self._store.contains_many(made)
            first = 0
            for i, form in asked:
                if all(there[first : first + form.blocks]):
                    found[i] = form, raw_keys(made, first, first + form.blocks)
                first += form.blocks
            attempt += 1
        bitmap = Bitmap(len(keys))
        indices = sorted(found)
        bitmap.batched_set(indices)
        self._residents.lock([keys[i] for i in indices])
        self._use([keys[i] for i in indices], [found[i][1] for i in indices])
        residents = [(found[i][1][-KEY_BYTES:], Resident(keys[i], found[i][0].layout.size)) for i in indices]
        self._tell_stored(self._residents.add(residents))
        self._reports[_LOOK_UP].well()
        self._end(task, bitmap)

    # ---- stores

    def _begin_store(self, task: _Task, keys: list[Any], objects: list[Any]) -> None:
        forms = self._forms(keys, objects)
        for form in {id(form): form for form in forms}.values():
            self._layouts.stored(form)
            self._advise(form)
        made = self._names([form.names(key) for key, form in zip(keys, forms)])
        missing = [i for i, there in enumerate(self._store.contains_many(made)) if not there]
        parts, all_made = self._parts(forms, objects), made

        def ended(move: Move) -> None:
            there = [True] * len(parts)
            for i, moved in zip(missing, move.moved):
                there[i] = moved
            indices = _whole(there, forms)
            self._follow(keys, forms, all_made, indices)
            well = len(indices) == len(keys)
            self._judge(_STORE, move, well)
            written = sum(part.size for part, moved in zip(move.parts, move.moved) if moved)
            self._end(task, L2StoreResult(well, written if well else 0))

        parents = _parents(made, forms) if made.count > len(keys) else None
        if len(missing) < made.count:
            made = chosen(made, missing)
            parents = None if parents is None else chosen(parents, missing)
        self._move(task, True, made, parents, [parts[i] for i in missing], objects, ended)

    # ---- loads

    def _begin_load(self, task: _Task, keys: list[Any], objects: list[Any]) -> None:
        forms = self._forms(keys, objects)
        made = self._names([form.names(key) for key, form in zip(keys, forms)])

        def ended(move: Move) -> None:
            indices = _whole(move.moved, forms)
            self._follow(keys, forms, made, indices)
            bitmap = Bitmap(len(keys))
            bitmap.batched_set(indices)
            if indices:
                self._guarded(lambda: self._notify_keys_accessed([keys[i] for i in indices]))
            self._judge(_LOAD, move, move.error == 0)
            self._end(task, bitmap)

        self._move(task, False, made, None, self._parts(forms, objects), objects, ended)

    # ---- inside

    def _move(
        self,
        task: _Task,
        is_put: bool,
        made: Keys,
        parents: Keys | None,
        parts: list[Part],
        objects: list[Any],
        ended: Callable[[Move], None],
    ) -> None:
        deadline = time.monotonic() + self._config.timeout
        self._transfers.start(
            Move(is_put, made, parts, parents, objects, deadline, lambda move: self._attempt(task, lambda _task: ended(move)))
        )

    def _names(self, names: Sequence[Sequence[bytes]]) -> Keys:
        return self._store.keys([name for each in names for name in each])

    def _forms(self, keys: list[Any], objects: list[Any]) -> list[Form]:
        if len(keys) != len(objects):
            raise ValueError(f"there are {len(keys)} keys and {len(objects)} objects")
        return [self._layouts.of_object(key, memory) for key, memory in zip(keys, objects)]

    def _parts(self, forms: list[Form], objects: list[Any]) -> list[Part]:
        """The memory of all blocks, in the order of their keys."""
        block_bytes = self._store.block_bytes
        parts: list[Part] = []
        for form, memory in zip(forms, objects):
            address, size = _address(memory), form.layout.size
            parts += [Part(address + at, min(block_bytes, size - at)) for at in range(0, max(1, size), block_bytes)]
        return parts

    def _follow(self, keys: list[Any], forms: list[Form], made: Keys, indices: list[int]) -> None:
        """These objects are stored or loaded."""
        ends = _ends(forms)
        blocks = [raw_keys(made, ends[i] - forms[i].blocks, ends[i]) for i in indices]
        self._use([keys[i] for i in indices], blocks)
        residents = [(block[-KEY_BYTES:], Resident(keys[i], forms[i].layout.size)) for i, block in zip(indices, blocks)]
        self._tell_stored(self._residents.add(residents))

    def _use(self, keys: list[Any], blocks: list[bytes]) -> None:
        """Records a use of objects, whose blocks have these keys. LMCache names the chunks of a prompt from its beginning, for each
        group and rank in turn. The last chunks count as used first, so a full store gives up the ends of prompts first."""
        seen: Counter[tuple[int, int]] = Counter()
        chunks: list[list[bytes]] = []
        for key, of_object in zip(keys, blocks):
            row = key.object_group_id, key.kv_rank
            if seen[row] == len(chunks):
                chunks.append([])
            chunks[seen[row]].append(of_object)
            seen[row] += 1
        for chunk in reversed(chunks):  # blocks of one call count as used at the same time
            self._store.touch(joined(chunk))

    def _judge(self, what: str, move: Move, well: bool) -> None:
        if well:
            self._reports[what].well()
        else:
            failures = move.moved.count(False)
            reason = self._store.health()[1] or status_text(move.error)
            self._reports[what].failed(f"{failures} of {len(move.parts)} blocks: {reason}")

    def _advise(self, form: Form) -> None:
        if form.blocks > _MANY_BLOCKS and not self._has_large:
            self._has_large = True
            logger.warning(
                "objects of %d bytes take %d blocks each; with a larger \"block_bytes\", each object takes less work and less memory",
                form.layout.size,
                form.blocks,
            )

    def _tell_stored(self, residents: list[Resident]) -> None:
        if residents:
            self._guarded(lambda: self._notify_keys_stored([each.key for each in residents], [each.size for each in residents]))

    def _tell_deleted(self, residents: list[Resident]) -> None:
        if residents:
            self._guarded(lambda: self._notify_keys_deleted([each.key for each in residents], [each.size for each in residents]))

    def _guarded(self, tell: Callable[[], None]) -> None:
        """Calls listeners of LMCache. Their failure is none of the task."""
        try:
            tell()
        except Exception:
            logger.exception("a listener of LMCache has failed")


def _store_name(block_bytes: int) -> str:
    return f"lmcache-{block_bytes}"


def _warn_of_others(directory: Path, name: str) -> None:
    """Warns of stores with another size of blocks: they use disk space, and are not read any more."""
    others = sorted(each.name for each in directory.glob("lmcache-*") if each.is_dir() and each.name != name)
    if others:
        logger.warning("%s: stores for other block sizes take disk space, too: %s", directory, ", ".join(others))


def _address(memory: Any) -> int:
    tensor = memory.raw_tensor
    if tensor is not None and tensor.device.type != "cpu":
        raise ValueError(f"an object of LMCache is on {tensor.device}; this adapter needs objects in host memory")
    return int(memory.data_ptr)


def _ends(forms: list[Form]) -> list[int]:
    """By object, the number of the block after its last one among all blocks."""
    return list(accumulate(form.blocks for form in forms))


def _parents(made: Keys, forms: list[Form]) -> Keys:
    """By block, the block before it in its object. So the store gives up an object from its last block, and a damaged block takes
    those behind it along: an object whose last block is gone is gone, and LMCache can be told at once."""
    parents = [bytes(KEY_BYTES), *made][: made.count]
    for form, end in zip(forms, _ends(forms)):
        parents[end - form.blocks] = bytes(KEY_BYTES)
    return joined(parents)


def _whole(there: Sequence[bool], forms: list[Form]) -> list[int]:
    """The objects all of whose blocks are there."""
    return [i for i, (form, end) in enumerate(zip(forms, _ends(forms))) if all(there[end - form.blocks : end])]
