"""Names of objects in the store.

LMCache names an object by model, rank, group and the hash of its tokens, but not by the layout of its bytes. After a restart with
another data type or chunk size, equal names can stand for other bytes. So the layout is a part of the name of each block here.
A look-up does not always say which layout it wants: LMCache's hint is the layout before a serialiser, and may be missing. So the
layouts that were stored are remembered in a small file beside the store.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lmcache.logging import init_logger

logger = init_logger("terrace_kv.lmcache")  # LMCache shows messages of its own kind of loggers

LAYOUTS_MAX = 8
"""The largest number of layouts that are remembered for one group of a model; the oldest are forgotten."""


@dataclass(frozen=True)
class Layout:
    """What the bytes of an object are, beside its key."""

    model: str
    group: int
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[str, ...]
    size: int
    """Bytes of an object."""

    def digest(self) -> bytes:
        """32 bytes that begin the names of all blocks of such objects."""
        return hashlib.sha256(json.dumps(self.fields(), sort_keys=True).encode()).digest()

    def fields(self) -> dict[str, Any]:
        """The fields, for JSON."""
        return {
            "model": self.model,
            "group": self.group,
            "shapes": [list(shape) for shape in self.shapes],
            "dtypes": list(self.dtypes),
            "size": self.size,
        }


def _layout_of(fields: dict[str, Any]) -> Layout:
    shapes = tuple(tuple(int(n) for n in shape) for shape in fields["shapes"])
    dtypes = tuple(str(each) for each in fields["dtypes"])
    return Layout(str(fields["model"]), int(fields["group"]), shapes, dtypes, int(fields["size"]))


class Form:
    """The names of the objects of one layout."""

    def __init__(self, layout: Layout, block_bytes: int) -> None:
        self.layout = layout
        self.blocks = max(1, -(-layout.size // block_bytes))
        """Number of blocks of an object."""
        self._prefix = layout.digest()
        self._ends = [i.to_bytes(4, "big") for i in range(self.blocks)]

    def names(self, key: Any) -> list[bytes]:
        """The names of the blocks of an object. Different objects have different names: a salt has no zero byte, and the end has
        a fixed length."""
        begin = self._prefix + f"{key.kv_rank:x}\0{key.cache_salt}\0".encode() + key.chunk_hash
        return [begin + end for end in self._ends]


class Layouts:
    """The layouts that are known, by model and group. Threads: any.

    Args:
        file: Where they are kept. A file that cannot be read or written costs look-ups without a hint their hits until the next
            store; so it is only reported.
        block_bytes: The size of a block.
    """

    def __init__(self, file: Path, block_bytes: int) -> None:
        self._file = file
        self._block_bytes = block_bytes
        self._lock = threading.Lock()
        self._forms: dict[Layout, Form] = {}
        self._known: dict[tuple[str, int], list[Layout]] = {}  # the newest first
        self._seen: dict[Any, Form] = {}  # by LMCache's own objects, which are faster to compare
        self._last: tuple[Any, Form | None] = None, None
        self._read()

    def of_object(self, key: Any, memory: Any) -> Form:
        """The names for objects like this one. `memory` is LMCache's MemoryObj."""
        meta = memory.metadata
        is_of_several = meta.shapes and meta.dtypes
        shapes = tuple(meta.shapes) if is_of_several else (meta.shape,)
        dtypes = tuple(meta.dtypes) if is_of_several else (meta.dtype,)
        seen = (key.model_name, key.object_group_id, shapes, dtypes, memory.get_size())
        last, form = self._last
        if form is None or last != seen:  # objects of a task are alike
            form = self._form(key, shapes, dtypes, seen[-1])
            self._last = seen, form
        return form

    def stored(self, form: Form) -> None:
        """Remembers a layout, because objects of it are being stored."""
        layout = form.layout
        with self._lock:
            known = self._known.setdefault((layout.model, layout.group), [])
            if known and known[0] == layout:
                return
            is_new = layout not in known
            if not is_new:
                known.remove(layout)
            known.insert(0, layout)
            del known[LAYOUTS_MAX:]
            if is_new:
                self._write()

    def forget(self) -> None:
        """Removes the file."""
        self._file.unlink(missing_ok=True)

    def candidates(self, key: Any, hint: Any) -> Sequence[Form]:
        """The layouts that an object of this key can have. `hint` is LMCache's MemoryLayoutDesc for the group of the key, or None.
        If objects of this layout were stored, others are old, except the layout that was stored last: that of a serialiser."""
        with self._lock:
            known = self._known.get((key.model_name, key.object_group_id), [])
            forms = [self._form_of(layout) for layout in known]
        if hint is None or not hint.shapes:
            return forms
        size = sum(shape.numel() * dtype.itemsize for shape, dtype in zip(hint.shapes, hint.dtypes))
        wanted = self._form(key, hint.shapes, hint.dtypes, size)
        if wanted not in forms:
            return [*forms, wanted]
        return forms[:1] if wanted is forms[0] else [forms[0], wanted]

    def _form(self, key: Any, shapes: Sequence[Any], dtypes: Sequence[Any], size: int) -> Form:
        seen = (key.model_name, key.object_group_id, tuple(shapes), tuple(dtypes), size)
        form = self._seen.get(seen)
        if form is None:
            as_numbers = tuple(tuple(int(n) for n in shape) for shape in shapes)
            layout = Layout(key.model_name, key.object_group_id, as_numbers, tuple(map(str, dtypes)), size)
            with self._lock:
                form = self._seen[seen] = self._form_of(layout)
        return form

    def _form_of(self, layout: Layout) -> Form:
        form = self._forms.get(layout)
        if form is None:
            form = self._forms[layout] = Form(layout, self._block_bytes)
        return form

    def _read(self) -> None:
        try:
            for fields in json.loads(self._file.read_text()):
                layout = _layout_of(fields)
                self._known.setdefault((layout.model, layout.group), []).append(layout)
        except FileNotFoundError:
            pass
        except (OSError, ValueError, KeyError, TypeError) as error:
            logger.warning("%s cannot be read, and is written anew: %s", self._file, error)

    def _write(self) -> None:
        all_known = [layout.fields() for known in self._known.values() for layout in known]
        new = self._file.with_suffix(".new")
        try:
            new.write_text(json.dumps(all_known, indent=1))
            os.replace(new, self._file)
        except OSError as error:
            logger.warning("%s cannot be written: %s", self._file, error)
