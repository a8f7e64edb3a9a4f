"""Keys of a sequence of tokens, as the blocks of a Cache have."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import POINTER, byref, c_size_t, c_uint32, c_uint64, c_void_p
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from . import _interface
from ._keys import KEY_BYTES, Keys, token_array
from ._library import check, lib
from ._structures import Uncopied, in_range


@dataclass(frozen=True)
class Root:
    """What all keys of a namespace share. If any field differs, all keys differ."""

    model_digest: bytes = b""
    """Names the model and its weights (terrace_kv.identity)."""
    fingerprint: bytes = b""
    """Names the layout of a block."""
    adapter: str | None = None
    """The LoRA adapter."""
    tenant_salt: str | None = None
    weight_epoch: int = 0


class ItemKind(IntEnum):
    """What a run of tokens stands for."""

    MEDIA = 0
    PROMPT_EMBEDDING = 1


@dataclass(frozen=True)
class Item:
    """A run of tokens that stands for other input, such as the placeholders of an image. The digest names everything that
    determines the input of the model."""

    offset: int
    """Of its first token, from the first token of the chain."""
    length: int
    digest: bytes
    kind: ItemKind = ItemKind.MEDIA


class Chain(Uncopied):
    """The tokens of one sequence, and the keys of its full blocks. Hashing costs a fraction of a microsecond for each block, so
    keep the chain of a conversation, and append the tokens of its next turn.

    Args:
        root: What all keys share.
        block_tokens: Tokens of a block; with several groups, of a hash unit.
        tokens: The first tokens.
        items: Images and the like among all tokens that follow.

    Threads: one at a time. While a request has the chain, Cache.step() appends to it.
    """

    __slots__ = ("_handle", "block_tokens")

    def __init__(self, root: Root, block_tokens: int, tokens: Any = (), items: Sequence[Item] = ()) -> None:
        self._make_once()
        self._handle = c_void_p()
        given = _interface.Root(
            model_digest=root.model_digest,
            model_digest_bytes=len(root.model_digest),
            fingerprint=root.fingerprint or None,
            fingerprint_bytes=len(root.fingerprint),
            adapter=root.adapter,
            tenant_salt=root.tenant_salt,
            weight_epoch=root.weight_epoch,
        )
        self.block_tokens = in_range("block_tokens", block_tokens, c_uint32)
        check(lib.terrace_chain_make(byref(given), self.block_tokens, byref(self._handle)))
        if items:
            self.add_items(items)
        self.append(tokens)

    def add_items(self, items: Sequence[Item]) -> None:
        """Adds items, before the first block that they overlap is complete.

        Raises:
            InvalidArgument: An item begins in a block that has its key already, or is empty.
        """
        made = (_interface.Item * len(items))(
            *(
                _interface.Item(
                    offset=item.offset, length=item.length, digest=item.digest, digest_bytes=len(item.digest), kind=int(item.kind)
                )
                for item in items
            )
        )
        check(lib.terrace_chain_add_items(self._handle, made, len(items)))

    def append(self, tokens: Any) -> None:
        """Appends tokens: a list, an array of numpy, or another sequence of integers. Those of an incomplete last block wait for
        more.

        Raises:
            ValueError: A token is not from 0 to 2**32 - 1.
        """
        _kept, address, count = token_array(tokens)
        check(lib.terrace_chain_append(self._handle, address, count))

    @property
    def keys(self) -> Keys:
        """The keys of all full blocks."""
        first = POINTER(_interface.Key)()
        count = c_size_t()
        check(lib.terrace_chain_keys(self._handle, byref(first), byref(count)))
        raw = ctypes.string_at(first, count.value * KEY_BYTES) if count.value else b""
        return Keys(ctypes.create_string_buffer(raw, len(raw) or 1), count.value)

    def __len__(self) -> int:
        """Number of tokens, those of the incomplete block included."""
        return int(lib.terrace_chain_tokens(self._handle))

    @property
    def tenant(self) -> int:
        """The number of the tenant, for quotas and statistics: all chains with an equal root have the same."""
        return int(lib.terrace_chain_tenant(self._handle))

    def before_media(self, blocks: int) -> int:
        """Returns the largest number of blocks, at most `blocks`, that does not end inside a media item: for `hit_units_max`, if
        the encoder of the engine computes an item as a whole."""
        shorter = c_uint32()
        check(lib.terrace_chain_before_media(self._handle, in_range("blocks", blocks, c_uint32), byref(shorter)))
        return shorter.value

    def media_across(self, blocks: int) -> Item | None:
        """The media item inside which a match of so many blocks ends; None if it ends inside none. Of several items, the one that
        begins first."""
        item = _interface.Item()
        check(lib.terrace_chain_media_across(self._handle, in_range("blocks", blocks, c_uint32), byref(item)))
        if item.length == 0:
            return None
        digest = c_void_p.from_buffer(item, _interface.Item.digest.offset).value  # the field would end at a NUL
        return Item(item.offset, item.length, ctypes.string_at(digest or 0, item.digest_bytes))

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            lib.terrace_chain_destroy(self._handle)
