"""The position of chunks: in the chain of their request, or alone."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from vllm.v1.kv_offload.base import OffloadKey, ReqContext

from .._keys import KEY_BYTES, Keys

_NAME = struct.Struct(f"{KEY_BYTES}s")
_GROUP = slice(-4, None)  # bytes of an OffloadKey that have the number of the KV cache group
_SPARE = 2  # chunks of a window that are kept beyond those that a token attends to (Chains.useful)


class Chain:
    """The chunks of a request in one KV cache group, from the first token on."""

    __slots__ = ("keys", "names", "states")

    def __init__(self) -> None:
        self.keys: list[OffloadKey] = []
        self.names = bytearray()
        """The names of the first chunks in the cache, one after the other: those that Chains.prefix() has needed so far."""
        self.states: tuple[int, bytes] | None = None
        """Where the chunks are, and the version of the cache for which this is valid (TerraceOffloadingManager)."""

    def names_of(self, first: int, end: int) -> list[bytes]:
        """The names of these chunks."""
        return [name for (name,) in _NAME.iter_unpack(memoryview(self.names)[first * KEY_BYTES : end * KEY_BYTES])]


class Window(NamedTuple):
    """A group of which a token attends only to the last chunks before it: a window, or states (with one chunk)."""

    tokens: int
    """Of a chunk."""
    chunks: int


class Run(NamedTuple):
    """Chunks that one call of the cache can name: neighbours in a chain, or chunks that stand alone."""

    keys: list[OffloadKey]
    chain: Chain | None
    """None: the chunks stand alone."""
    first: int
    """The index of the first chunk in the chain."""
    beside: tuple[Chain, int] | None = None
    """Of chunks that stand alone: each is of use only with one chunk of this chain; the last of them with the one before this
    index."""

    def between(self, keys: Sequence[OffloadKey]) -> Run:
        """The shortest part of the run that has all these chunks. They are some of the run's chunks, in order."""
        if self.beside is not None:
            return self
        if self.chain is None:
            return Run(list(keys), None, 0)
        begin, end = self.keys.index(keys[0]), self.keys.index(keys[-1]) + 1
        return Run(self.keys[begin:end], self.chain, self.first + begin)


class Chains:
    """The chains of all requests.

    vLLM names a chunk by a hash of all tokens up to its end, and tells at which token it ends. So the chunks of a request in a
    group of full attention are a prefix. A call may name only a part of it: chunks that the GPU has are not looked up, and loaded
    chunks are not stored. Such a chunk cannot be used without the chunks before it, and is only kept after them.

    For a group of windows or states, vLLM loads only the chunks that a later token attends to; these chunks stand alone. But they
    are of use only together with the prefix before them, so each belongs to the chunk of full attention at its end (Run.beside).

    A partly filled chunk (the tail of a prompt) and a chunk for which vLLM gives no token stand alone, too.

    Args:
        tokens: By number of the KV cache group: the tokens of a chunk, for groups of full attention.
        windows: The same for groups of windows and states.
        make_names: Makes the names of keys.
    """

    def __init__(
        self,
        tokens: Mapping[int, int],
        windows: Mapping[int, Window],
        make_names: Callable[[Sequence[OffloadKey]], Keys],
    ) -> None:
        self._tokens = {group.to_bytes(4, "big"): count for group, count in tokens.items()}
        self._windows = {group.to_bytes(4, "big"): window for group, window in windows.items() if tokens}
        self._owner = min(self._tokens, default=b"")  # the group of full attention to whose chunks the others belong
        self._make_names = make_names
        self._requests: dict[str, dict[bytes, Chain]] = {}

    def of(self, request: str) -> Iterable[Chain]:
        """The chains of the request that were needed so far, one for each group of full attention."""
        return [chain for chain in self._requests.get(request, {}).values() if chain.keys]

    def end(self, request: str) -> None:
        """The request has finished."""
        self._requests.pop(request, None)

    def forget(self) -> None:
        """From now on, names have another meaning."""
        self._requests.clear()

    def find(self, key: OffloadKey, context: ReqContext) -> tuple[Chain, int] | None:
        """The chain of the chunk, and its index in the chain. None: it stands alone."""
        position = context.get_offload_key_position(key)
        tokens = self._tokens.get(key[_GROUP])
        if position is None or tokens is None or position % tokens:
            return None
        chain, index = self._at(key[_GROUP], position, context)
        return (chain, index) if index < len(chain.keys) and chain.keys[index] == key else None

    def useful(self, keys: Sequence[OffloadKey], context: ReqContext, known: Callable[[Chain], int]) -> Sequence[OffloadKey]:
        """Leaves out the chunks of windows that hardly any request will need: a request that continues a prefix needs those
        before its end. A prefix ends where the request ends now, or a little earlier, because the next prompt may differ from
        there on; and where others have gone on differently: at the end of what was cached already.

        Args:
            known: Returns the number of leading chunks of the request's chain that were cached already.
        """
        if not self._windows:
            return keys
        useful = []
        for key in keys:
            owner = self._owner_of(key, context)
            if owner is not None:
                chain, index = owner
                window = self._windows[key[_GROUP]]
                span = -(-window.chunks * window.tokens // self._tokens[self._owner])
                branch = known(chain)
                if index < len(chain.keys) - span - _SPARE and not branch - span <= index < branch:
                    continue
            useful.append(key)
        return useful

    def _owner_of(self, key: OffloadKey, context: ReqContext) -> tuple[Chain, int] | None:
        """The chunk of full attention to which a chunk of a window belongs."""
        position = context.get_offload_key_position(key)
        if position is None or key[_GROUP] not in self._windows:
            return None
        chain, index = self._at(self._owner, position, context)
        return (chain, index) if index < len(chain.keys) else None

    def _at(self, group: bytes, position: int, context: ReqContext) -> tuple[Chain, int]:
        """The chain of the request in a group of full attention, and the index of its chunk that has the last token before this
        position. The chain may be shorter."""
        chains = self._requests.get(context.req_id)
        if chains is None:
            chains = self._requests[context.req_id] = {}
        chain = chains.get(group)
        if chain is None:
            chain = chains[group] = Chain()
        index = (position - 1) // self._tokens[group]
        if index >= len(chain.keys):
            self._grow(chain, group, (index + 1) * self._tokens[group], context)
        return chain, index

    def runs(self, keys: Sequence[OffloadKey], context: ReqContext) -> list[Run]:
        """Splits the keys, in their order."""
        runs: list[Run] = []
        at = 0
        while at < len(keys):
            if (found := self.find(keys[at], context)) is None:
                self._add_lone(runs, keys[at], context)
                at += 1
                continue
            chain, first = found
            here = list(keys[at:] if at > 0 else keys)
            there = chain.keys[first : first + len(here)]
            if there != here:
                here = here[: next((i for i, key in enumerate(there) if key != here[i]), len(there))]
            runs.append(Run(here, chain, first))
            at += len(here)
        return runs

    def _add_lone(self, runs: list[Run], key: OffloadKey, context: ReqContext) -> None:
        owner = self._owner_of(key, context)
        last = runs[-1] if runs else None
        if owner is None:
            if last is None or last.chain is not None or last.beside is not None:
                runs.append(Run([], None, 0))
            return runs[-1].keys.append(key)
        if last is not None and last.beside == owner and last.keys[-1][_GROUP] == key[_GROUP]:
            last.keys.append(key)
            runs[-1] = last._replace(beside=(owner[0], owner[1] + 1))
        else:
            runs.append(Run([key], None, 0, (owner[0], owner[1] + 1)))

    def in_order(self, keys: Iterable[OffloadKey], context: ReqContext) -> list[Run]:
        """The same for keys in any order. The runs of each group begin with the first token."""
        end = context.get_offload_key_position
        return self.runs(sorted(keys, key=lambda key: (key[_GROUP], end(key) or 0)), context)

    def prefix(self, chain: Chain, end: int) -> Keys:
        """The keys of the first `end` chunks."""
        known = len(chain.names) // KEY_BYTES
        if known < end:
            made = self._make_names(chain.keys[known:end])
            chain.names += made._array
            if known == 0:
                return made
        return Keys((ctypes.c_char * (end * KEY_BYTES)).from_buffer_copy(chain.names), end)

    def tokens(self, run: Run) -> float:
        """Number of tokens of a prompt that the run stands for, if the chunks of all groups of full attention are loaded. Chunks
        that stand alone do not count."""
        return len(run.keys) * self._tokens[run.keys[0][_GROUP]] / len(self._tokens) if run.chain is not None else 0

    def _grow(self, chain: Chain, group: bytes, last: int, context: ReqContext) -> None:
        """Reads the chain at least up to the chunk that ends at token `last`."""
        # A private name of vLLM, which tools/engines checks: the public call asks for one key, and does not list the keys.
        positions = getattr(context, "_offload_key_positions", {})
        tokens = self._tokens[group]
        end = (len(chain.keys) + 1) * tokens
        for key, position in positions.items():
            if position == end and key[_GROUP] == group:
                chain.keys.append(key)
                end += tokens
        if end > last:
            return
        # A key whose place was recorded before those of its predecessors.
        by_position = {position: key for key, position in positions.items() if key[_GROUP] == group}
        while (key := by_position.get((len(chain.keys) + 1) * tokens)) is not None:
            chain.keys.append(key)
