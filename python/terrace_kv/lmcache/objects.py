"""Objects of LMCache as blocks of a Store."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

from .._keys import KEY_BYTES, Keys, joined, raw_keys
from .._library import TerraceError
from ..store import Health, Store
from .layouts import Form, Layouts, logger
from .options import TerraceL2AdapterConfig
from .transfers import Part, Transfers

CLOSE_SECONDS = 60.0
_PREFIX = "lmcache-"
_FIRST_BLOCK_BYTES = 64 << 10
_BLOCK_BYTES_MAX = 1 << 20
_ALIGNMENT = 4096
_WASTE_MAX = 1 / 4  # fraction of the blocks of an object that may be padding without a warning
_BLOCKS_MAX = 64  # blocks of an object without a warning
_LEVELS = (logger.info, logger.warning, logger.error)


def block_bytes_for(size: int) -> int:
    """The size of blocks for objects of this size: equal parts of at most 1 MiB. Large blocks are less work, and few of them need
    little memory; equal parts waste little space."""
    parts = max(1, -(-size // _BLOCK_BYTES_MAX))
    return max(1, -(-size // (parts * _ALIGNMENT))) * _ALIGNMENT


class Objects:
    """A store of objects, the names of their blocks, and the transfers from and to LMCache's memory.

    Without the option block_bytes, the size of blocks is that of the store that is there; a store without blocks gets the size
    that suits the first object (fit()). The size is part of the directory's name.

    Threads: the thread of the adapter; the members of Store and Layouts, any.
    """

    def __init__(self, config: TerraceL2AdapterConfig, namespace: bytes, label: str) -> None:
        self._config = config
        self._namespace = namespace
        self._label = label
        self._advised = False
        self._open(config.block_bytes or _existing(Path(config.path[0])) or _FIRST_BLOCK_BYTES)

    def _open(self, block_bytes: int) -> None:
        directory, name = Path(self._config.path[0]), f"{_PREFIX}{block_bytes}"
        self.store = Store(
            self._config.path,
            self._config.capacity,
            block_bytes,
            namespace=self._namespace,
            name=name,
            log=lambda level, sentence: _LEVELS[min(level, 2)]("%s", sentence),
            **{"label": self._label, **self._config.store},
        )
        try:
            self.layouts = Layouts(directory / f"{name}.layouts.json", block_bytes)
            self.transfers = Transfers(self.store)
            self.capacity: int = self.store.statistics()["capacity_blocks"] * block_bytes
            """Bytes of all blocks."""
        except BaseException:
            self.store.close(CLOSE_SECONDS)
            raise
        others = sorted(each.name for each in directory.glob(_PREFIX + "*") if each.is_dir() and each.name != name)
        if others:
            logger.warning("%s: stores for other block sizes take disk space, too: %s", directory, ", ".join(others))
        logger.info(
            "%s of %s, blocks of %d bytes, I/O %s", self._config.capacity, self._config.path, block_bytes, self.store.io()
        )

    def fit(self, size: int) -> bool:
        """Chooses the size of blocks by the first object. Returns True if `store`, `layouts` and `transfers` are new ones."""
        old, wanted = self.store.block_bytes, block_bytes_for(size)
        if self._config.block_bytes is not None or wanted == old or not self.transfers.is_idle():
            return False
        statistics = self.store.statistics()
        if statistics["blocks"] or statistics["stored"] or self.store.health()[0] is not Health.WELL:
            return False
        self.store.close(CLOSE_SECONDS)
        for path in map(Path, self._config.path):
            shutil.rmtree(path / f"{_PREFIX}{old}", ignore_errors=True)
        self.layouts.forget()
        try:
            self._open(wanted)
        except (TerraceError, OSError):
            self._open(old)
            raise
        return True

    # ---- names and memory

    def names(self, keys: Sequence[Any], forms: Sequence[Form]) -> Keys:
        """The keys of all blocks of these objects."""
        return self.store.keys([name for key, form in zip(keys, forms) for name in form.names(key)])

    def forms(self, keys: Sequence[Any], memories: Sequence[Any]) -> list[Form]:
        """By object, how it is named. `memories` are LMCache's MemoryObj."""
        if len(keys) != len(memories):
            raise ValueError(f"there are {len(keys)} keys and {len(memories)} objects")
        return list(map(self.layouts.of_object, keys, memories))

    def parts(self, forms: Sequence[Form], memories: Sequence[Any]) -> list[Part]:
        """The memory of all blocks, in the order of names()."""
        block_bytes = self.store.block_bytes
        parts: list[Part] = []
        for form, memory in zip(forms, memories):
            address, size = _address(memory), form.layout.size
            parts += [(address + at, min(block_bytes, size - at)) for at in range(0, max(1, size), block_bytes)]
        return parts

    # ---- what is there

    def find(self, keys: Sequence[Any], hints: Mapping[int, Any]) -> dict[int, tuple[Form, bytes]]:
        """By number of an object that is there: its layout, and the keys of its blocks. `hints` are LMCache's layouts by group."""
        found: dict[int, tuple[Form, bytes]] = {}
        candidates = [self.layouts.candidates(key, hints.get(key.object_group_id)) for key in keys]
        attempt = 0
        while True:
            asked = [(i, forms[attempt]) for i, forms in enumerate(candidates) if len(forms) > attempt and i not in found]
            if not asked:
                return found
            forms = [form for _i, form in asked]
            made = self.names([keys[i] for i, _form in asked], forms)
            there = whole(self.store.contains_many(made), forms)
            for at, blocks in zip(there, blocks_of(made, forms, there)):
                found[asked[at][0]] = forms[at], blocks
            attempt += 1

    def use(self, keys: Sequence[Any], blocks: Sequence[bytes]) -> None:
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
            self.store.touch(joined(chunk))

    def advise(self, form: Form) -> None:
        """Says once if another size of blocks would be better."""
        block_bytes, size = self.store.block_bytes, form.layout.size
        waste = form.blocks * block_bytes - size
        is_wasteful = waste > max(_WASTE_MAX * form.blocks * block_bytes, _ALIGNMENT)
        if self._advised or not (is_wasteful or form.blocks > _BLOCKS_MAX):
            return
        self._advised = True
        reason = f"{waste} bytes of disk space are not used" if is_wasteful else "each takes much work and memory"
        logger.warning(
            "objects of %d bytes take %d blocks of %d bytes, so that %s; state a better block_bytes, for example %d",
            size, form.blocks, block_bytes, reason, block_bytes_for(size),
        )  # fmt: skip


def ends(forms: Sequence[Form]) -> list[int]:
    """By object, the number of the block after its last one among all blocks."""
    return list(accumulate(form.blocks for form in forms))


def whole(there: Sequence[bool], forms: Sequence[Form]) -> list[int]:
    """The objects all of whose blocks are there."""
    return [i for i, (form, end) in enumerate(zip(forms, ends(forms))) if all(there[end - form.blocks : end])]


def blocks_of(made: Keys, forms: Sequence[Form], indices: Sequence[int]) -> list[bytes]:
    """The keys of the blocks of these objects."""
    raw, last = raw_keys(made, 0, made.count), ends(forms)
    return [raw[(last[i] - forms[i].blocks) * KEY_BYTES : last[i] * KEY_BYTES] for i in indices]


def parents(made: Keys, forms: Sequence[Form]) -> Keys:
    """By block, the block before it in its object. So the store gives up an object from its last block, and a damaged block takes
    those behind it along: an object whose last block is gone is gone, and LMCache can be told at once."""
    before = [bytes(KEY_BYTES), *made][: made.count]
    for form, end in zip(forms, ends(forms)):
        before[end - form.blocks] = bytes(KEY_BYTES)
    return joined(before)


def _existing(directory: Path) -> int | None:
    """The size of blocks of the store in the directory; of the one that was used last, if there are several."""
    stores = [each for each in directory.glob(_PREFIX + "*") if each.is_dir() and each.name[len(_PREFIX) :].isdigit()]
    used_last = max(stores, key=lambda each: each.stat().st_mtime, default=None)
    return None if used_last is None else int(used_last.name[len(_PREFIX) :])


def _address(memory: Any) -> int:
    tensor = memory.raw_tensor
    if tensor is not None and not tensor.is_cpu:
        raise ValueError(f"an object of LMCache is on {tensor.device}; this adapter needs objects in host memory")
    return int(memory.data_ptr)
