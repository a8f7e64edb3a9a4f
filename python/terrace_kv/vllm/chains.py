"""Where chunks stand: each in the chain of its request, or alone."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from vllm.v1.kv_offload.base import OffloadKey, ReqContext

from .._keys import KEY_BYTES, Keys

_GROUP = slice(-4, None)  # of an OffloadKey: the number of the KV cache group


class Chain:
    """The chunks of a request in one KV cache group, from the first token on."""

    __slots__ = ("keys", "names", "shown", "states")

    def __init__(self) -> None:
        self.keys: list[OffloadKey] = []
        self.names = bytearray()
        """Of the first keys, as far as they were needed."""
        self.shown = 0
        """vLLM has loaded chunks, or offered them to be stored, up to this index."""
        self.states: tuple[int, bytes] | None = None
        """Where the chunks are, as of this version of the cache (TerraceOffloadingManager)."""

    def name(self, index: int) -> bytes:
        """The name of a chunk in the cache; Chains.names_to() has made it."""
        return bytes(self.names[index * KEY_BYTES : (index + 1) * KEY_BYTES])

    def names_of(self, first: int, end: int) -> list[bytes]:
        """The same for several."""
        names = bytes(self.names[first * KEY_BYTES : end * KEY_BYTES])
        return [names[at : at + KEY_BYTES] for at in range(0, len(names), KEY_BYTES)]


class Run(NamedTuple):
    """Chunks that one call of the cache can name: neighbours in a chain, or chunks that stand alone."""

    keys: list[OffloadKey]
    chain: Chain | None
    """None: they stand alone."""
    first: int
    """The index of the first of them in the chain."""


class Chains:
    """The chains of all requests.

    vLLM names a chunk by a hash of all tokens up to its end, and tells at which token it ends. So the chunks of a request are a
    prefix in each KV cache group, whatever part of it a call shows: chunks that the GPU has are not looked up, those that were
    loaded are not stored. A chunk of full attention is of no use without those before it, and is only kept behind them.

    Of a group of windows or states vLLM loads and stores only what a later token attends to. Such a group is known by what vLLM
    leaves out: a gap between the chunks that it offers, or a load that begins behind that of another group. From then on its new
    chunks stand alone. So do those for which vLLM tells no token, or one within a chunk.

    Args:
        tokens: By number of the KV cache group: the tokens of a chunk.
        make_names: Makes the names of keys, side by side.
    """

    def __init__(self, tokens: Mapping[int, int], make_names: Callable[[Sequence[OffloadKey]], bytes]) -> None:
        self._tokens = {group.to_bytes(4, "big"): count for group, count in tokens.items()}
        self._most = max(self._tokens.values(), default=0)
        self._make_names = make_names
        self._requests: dict[str, dict[bytes, Chain]] = {}
        self._sparse: set[bytes] = set()
        self._alone: set[OffloadKey] = set()

    # ---- requests

    def end(self, request: str) -> None:
        """The request has finished."""
        self._requests.pop(request, None)

    def forget(self) -> None:
        """Nothing is cached any more, and names mean something else. vLLM stores chunks of living requests again."""
        self._requests.clear()
        self._alone.clear()

    # ---- chunks

    def is_sparse(self, key: OffloadKey) -> bool:
        """New chunks of this group stand alone."""
        return key[_GROUP] in self._sparse

    def stand_alone(self, keys: Iterable[OffloadKey]) -> None:
        """The cache has these chunks, or will, and they stand alone."""
        self._alone.update(keys)

    def is_found_alone(self, key: OffloadKey) -> None:
        """The cache has the chunk alone: an earlier process knew its group to be sparse."""
        self._sparse.add(key[_GROUP])

    def gone(self, key: OffloadKey) -> None:
        """The cache has nothing of the chunk any more."""
        self._alone.discard(key)

    def find(self, key: OffloadKey, context: ReqContext) -> tuple[Chain, int] | None:
        """The chain of which the chunk is a part, and its index there. None: it stands alone, if the cache has it."""
        if key in self._alone:
            return None
        position = context.get_offload_key_position(key)
        tokens = self._tokens.get(key[_GROUP])
        if position is None or tokens is None or position % tokens:
            return None
        chain = self._requests.setdefault(context.req_id, {}).setdefault(key[_GROUP], Chain())
        index = position // tokens - 1
        if index >= len(chain.keys):
            self._grow(chain, key[_GROUP], context)
        return (chain, index) if index < len(chain.keys) and chain.keys[index] == key else None

    def runs(self, keys: Sequence[OffloadKey], context: ReqContext) -> list[Run]:
        """Splits the keys, in their order, as the cache has them."""
        runs: list[Run] = []
        at = 0
        while at < len(keys):
            if (found := self.find(keys[at], context)) is None:
                if not runs or runs[-1].chain is not None:
                    runs.append(Run([], None, 0))
                runs[-1].keys.append(keys[at])
                at += 1
                continue
            chain, first = found
            here = list(keys[at:]) if at > 0 else list(keys)
            if not self._alone.isdisjoint(here):
                here = here[: next(i for i, key in enumerate(here) if key in self._alone)]
            there = chain.keys[first : first + len(here)]
            if there != here:
                end = next((i for i, key in enumerate(there) if key != here[i]), len(there))
                here = here[:end]
            runs.append(Run(here, chain, first))
            at += len(here)
        return runs

    def in_order(self, keys: Iterable[OffloadKey], context: ReqContext) -> list[Run]:
        """The same for keys in any order: of each group from the first token on."""
        end = context.get_offload_key_position
        return self.runs(sorted(keys, key=lambda key: (key[_GROUP], end(key) or 0)), context)

    def loaded(self, runs: Sequence[Run]) -> None:
        """vLLM loads these."""
        begins: dict[bytes, int] = {}
        for run in runs:
            if run.chain is not None:
                run.chain.shown = max(run.chain.shown, run.first + len(run.keys))
                begins.setdefault(run.keys[0][_GROUP], run.first * self._tokens[run.keys[0][_GROUP]])
        if len(begins) > 1:
            # All groups of full attention begin where the tokens end that the GPU has, and at the begin of a chunk.
            least = min(begins.values())
            self._sparse.update(group for group, begin in begins.items() if begin >= least + self._most)

    def offered(self, keys: Sequence[OffloadKey], context: ReqContext) -> list[Run]:
        """vLLM offers these to be stored. Splits them into the runs in which they are to be kept."""
        runs = self.runs(keys, context)
        for run in runs:
            if run.chain is None:
                continue
            if run.first > run.chain.shown:
                self._sparse.add(run.keys[0][_GROUP])
            run.chain.shown = max(run.chain.shown, run.first + len(run.keys))
        return self.to_be_kept(runs)

    def names_to(self, chain: Chain, end: int) -> bytearray:
        """The names of the chain's chunks, of at least the first `end`."""
        known = len(chain.names) // KEY_BYTES
        if known < end:
            chain.names += self._make_names(chain.keys[known:end])
        return chain.names

    def prefix(self, chain: Chain, end: int) -> Keys:
        """The keys of the first `end` chunks."""
        return Keys((ctypes.c_char * (end * KEY_BYTES)).from_buffer_copy(self.names_to(chain, end)), end)

    def to_be_kept(self, runs: list[Run]) -> list[Run]:
        """The runs in which chunks that the cache does not have are to be kept: those of sparse groups alone."""
        if not self._sparse:
            return runs
        apart: list[Run] = []
        for run in runs:
            if run.chain is not None and not self.is_sparse(run.keys[0]):
                apart.append(run)
            elif apart and apart[-1].chain is None:
                apart[-1].keys.extend(run.keys)
            else:
                apart.append(Run(run.keys, None, 0))
        return apart

    def _grow(self, chain: Chain, group: bytes, context: ReqContext) -> None:
        # (A name of vLLM's own, which tools/engines checks: the public call asks for one key, and does not say which there are.)
        positions = getattr(context, "_offload_key_positions", {})
        by_position = {position: key for key, position in positions.items() if key[_GROUP] == group}
        tokens = self._tokens[group]
        while (key := by_position.get((len(chain.keys) + 1) * tokens)) is not None:
            chain.keys.append(key)
