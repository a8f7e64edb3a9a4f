"""TerraceL2Adapter, an L2 adapter of LMCache's storage manager."""

from __future__ import annotations

import importlib.metadata
import select
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from lmcache.lmcache_native import Bitmap
from lmcache.v1.distributed.api import KeyEntry, KeyListPage
from lmcache.v1.distributed.internal_api import L2StoreResult
from lmcache.v1.distributed.l2_adapters.base import L2AdapterInterface
from lmcache.v1.platform import create_event_notifier

from .._interface import STOPPED
from .._keys import KEY_BYTES, Keys, chosen, joined
from .._library import TerraceError, error_of, status_text
from .._report import Report
from ..identity import namespace, weights_revision
from ..store import Health
from .layouts import Form, logger
from .objects import CLOSE_SECONDS, Objects, blocks_of, ends, parents, whole
from .options import TerraceL2AdapterConfig
from .residents import Resident, Residents
from .transfers import Move, Part

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
        self._objects = Objects(config, namespace("lmcache", fields), f"LMCache {fields['lmcache']}, weights {fields['weights']}")
        try:
            super().__init__(self._objects.capacity)
            self._residents = Residents()
            self._lock = threading.Lock()
            self._orders: deque[tuple[_Task, Callable[[_Task], None]]] = deque()
            self._next_task = 0
            self._stored: dict[int, Any] = {}
            self._found: dict[int, Any] = {}
            self._loaded: dict[int, Any] = {}
            self._stopping = self._broken = False
            self._store_ready, self._lookup_ready, self._load_ready = (create_event_notifier() for _ in range(3))
            self._bell = create_event_notifier()
            self._thread = threading.Thread(target=self._run, name="terrace-l2", daemon=True)
            self._thread.start()
        except BaseException:
            self._objects.store.close(CLOSE_SECONDS)
            raise

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
        objects = self._objects
        pairs = [(key, form) for key in self._residents.unlocked(keys) for form in objects.layouts.candidates(key, None)]
        if not pairs:
            return

        def remove() -> None:
            forms = [form for _key, form in pairs]
            made = objects.names([key for key, _form in pairs], forms)
            try:
                objects.store.remove(made)
            finally:
                self._tell_deleted(self._residents.remove([made[end - 1] for end in ends(forms)]))

        self._reports[_DELETE].attempt(None, remove)

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
        store = self._objects.store
        try:
            (health, reason), statistics = store.health(), store.statistics()
        except TerraceError as error:  # it is closed
            health, reason, statistics = Health.DOWN, str(error), {}
        return {
            "is_healthy": self._thread.is_alive() and not self._broken and health is not Health.DOWN,
            "type": type(self).__name__,
            "path": list(self._config.path),
            "block_bytes": store.block_bytes,
            "disk": health.name.lower(),
            "reason": reason,
            "known_objects": len(self._residents),
            "locked_objects": self._residents.locked,
            "errors": sum(report.failures for report in self._reports.values()),
            "statistics": statistics,
        }

    def close(self) -> None:
        """Ends all tasks and makes everything durable. Tasks that have not begun fail. A second call does nothing."""
        with self._lock:
            if self._stopping:
                return
            self._stopping = True
        self._bell.notify()
        self._thread.join()
        try:
            self._objects.store.close(CLOSE_SECONDS)
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
                raise error_of(STOPPED, "the thread of the adapter has failed before; the log has the reason")
            work(task)
        except Exception as error:
            try:
                self._reports[task.what].failed(error)
            finally:
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
        while not self._turn():
            poller = select.poll()
            poller.register(self._bell.fileno(), select.POLLIN)
            if not self._broken:
                poller.register(self._objects.store.fileno(), select.POLLIN)
            left = self._objects.transfers.seconds_left()
            poller.poll(None if left is None else max(1, int(left * 1000)))

    def _turn(self) -> bool:
        """Begins the tasks that were ordered, and continues all others. Returns True at the end."""
        self._bell.consume()
        while self._orders:
            self._attempt(*self._orders.popleft())
        transfers = self._objects.transfers
        if not self._broken:
            try:
                self._take_events(transfers.step())
            except Exception:
                logger.exception("the adapter has failed; from now on all its tasks fail")
                self._broken = True
                transfers.abandon()
        if self._stopping:
            transfers.stop()
        return self._stopping and not self._orders and self._objects.transfers.is_idle()

    def _take_events(self, gone: list[bytes]) -> None:
        """Blocks have been given up. An object whose last block was stored anew since then is still there."""
        gone = self._residents.known(gone)
        if gone:
            there = self._objects.store.contains_many(joined(gone))
            self._tell_deleted(self._residents.remove([block for block, is_there in zip(gone, there) if not is_there]))

    # ---- tasks

    def _look_up(self, task: _Task, keys: list[Any], hints: dict[int, Any]) -> None:
        found = self._objects.find(keys, hints)
        indices = sorted(found)
        self._residents.lock([keys[i] for i in indices])
        self._follow(keys, indices, [found[i][0] for i in indices], [found[i][1] for i in indices])
        self._reports[_LOOK_UP].well()
        self._end(task, _bitmap(len(keys), indices))

    def _begin_store(self, task: _Task, keys: list[Any], memories: list[Any]) -> None:
        objects = self._objects
        if memories and objects.fit(memories[0].get_size()):
            self._max_capacity_bytes = objects.capacity
        forms = objects.forms(keys, memories)
        for form in dict.fromkeys(forms):
            objects.layouts.stored(form)
            objects.advise(form)
        made = objects.names(keys, forms)
        parts = objects.parts(forms, memories)
        missing = [i for i, is_there in enumerate(objects.store.contains_many(made)) if not is_there]

        def ended(move: Move) -> None:
            there = [True] * len(parts)
            for i, moved in zip(missing, move.moved):
                there[i] = moved
            well = self._moved(keys, forms, made, there) == list(range(len(keys)))
            self._judge(_STORE, move, well)
            written = sum(size for (_address, size), moved in zip(move.parts, move.moved) if moved)
            self._end(task, L2StoreResult(well, written if well else 0))

        before = parents(made, forms) if made.count > len(keys) else None
        if len(missing) == made.count:
            self._start(task, True, made, before, parts, memories, ended)
        else:
            some = None if before is None else chosen(before, missing)
            self._start(task, True, chosen(made, missing), some, [parts[i] for i in missing], memories, ended)

    def _begin_load(self, task: _Task, keys: list[Any], memories: list[Any]) -> None:
        forms = self._objects.forms(keys, memories)
        made = self._objects.names(keys, forms)

        def ended(move: Move) -> None:
            indices = self._moved(keys, forms, made, move.moved)
            if indices:
                self._guarded(lambda: self._notify_keys_accessed([keys[i] for i in indices]))
            self._judge(_LOAD, move, move.error == 0)
            self._end(task, _bitmap(len(keys), indices))

        self._start(task, False, made, None, self._objects.parts(forms, memories), memories, ended)

    def _start(
        self,
        task: _Task,
        is_put: bool,
        made: Keys,
        before: Keys | None,
        parts: list[Part],
        memories: list[Any],
        ended: Callable[[Move], None],
    ) -> None:
        deadline = time.monotonic() + self._config.timeout
        move = Move(is_put, made, parts, before, memories, deadline, lambda move: self._attempt(task, lambda _: ended(move)))
        self._objects.transfers.start(move)

    def _moved(self, keys: list[Any], forms: list[Form], made: Keys, there: list[bool]) -> list[int]:
        """Takes note of the objects all of whose blocks are stored or loaded, and returns them."""
        indices = whole(there, forms)
        self._follow(keys, indices, [forms[i] for i in indices], blocks_of(made, forms, indices))
        return indices

    def _follow(self, keys: list[Any], indices: list[int], forms: list[Form], blocks: list[bytes]) -> None:
        """These objects are in the store, and were used."""
        used = [keys[i] for i in indices]
        self._objects.use(used, blocks)
        residents = [(each[-KEY_BYTES:], Resident(key, form.layout.size)) for key, form, each in zip(used, forms, blocks)]
        self._tell_stored(self._residents.add(residents))

    # ---- what others are told

    def _judge(self, what: str, move: Move, well: bool) -> None:
        if well:
            self._reports[what].well()
        else:
            failures = move.moved.count(False)
            reason = self._objects.store.health()[1] or status_text(move.error)
            self._reports[what].failed(error_of(move.error, f"{failures} of {len(move.parts)} blocks: {reason}"))

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


def _bitmap(size: int, indices: list[int]) -> Any:
    bitmap = Bitmap(size)
    bitmap.batched_set(indices)
    return bitmap
