"""Stand-ins for SGLang's host pools over numpy: the same layouts, addresses and flat pages, in memory that begins at 4 KiB."""

from __future__ import annotations

import mmap
from math import prod
from typing import Any

import numpy as np


def memory(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    size = prod(shape) * np.dtype(dtype).itemsize
    return np.frombuffer(mmap.mmap(-1, size), dtype=dtype, count=prod(shape)).reshape(shape)


class _Paged:
    """A pool of one array, of which a page is some slices in the order of the memory."""

    start_layer = 0
    storage_format_tag = None

    def __init__(self, layout: str, pages: int, page_size: int, layers: int, width: int, halves: int) -> None:
        self.layout, self.page_num, self.page_size, self.layer_num = layout, pages, page_size, layers
        self.size, self.end_layer, self.dtype = pages * page_size, layers, np.dtype(np.uint16)
        self._halves = halves
        half = {
            "layer_first": (layers, self.size, width),
            "page_first": (self.size, layers, width),
            "page_first_direct": (pages, layers, page_size, width),
            "page_head": (pages, width // 128, page_size, layers, 128),
        }[layout]
        self.kv_buffer = memory((halves, *half), np.uint16)

    def _slices(self, index: int) -> list[np.ndarray]:
        page = index // self.page_size
        where = slice(index, index + self.page_size) if self.layout in ("layer_first", "page_first") else slice(page, page + 1)
        halves = list(self.kv_buffer)
        if self.layout == "layer_first":
            return [layer[where] for half in halves for layer in half]
        return [half[where] for half in halves]

    def get_page_buffer_meta(self, indices: Any) -> tuple[list[int], list[int]]:
        assert len(indices) % self.page_size == 0
        pieces: list[np.ndarray] = []
        for index in indices.tolist()[:: self.page_size]:
            slices = self._slices(index)
            if self.layout == "layer_first":  # SGLang names K and V of a layer one after the other
                slices = [slices[i + half * self.layer_num] for i in range(self.layer_num) for half in range(self._halves)]
            pieces += slices
        return [piece.__array_interface__["data"][0] for piece in pieces], [piece.nbytes for piece in pieces]

    def get_data_page(self, index: int, flat: bool = True) -> np.ndarray:
        return np.concatenate([piece.reshape(-1) for piece in self._slices(int(index))])

    def get_dummy_flat_data_page(self) -> np.ndarray:
        return np.zeros(self.kv_buffer.size // self.page_num, dtype=np.uint16)

    def set_from_flat_data_page(self, index: int, data_page: np.ndarray) -> None:
        for piece in self._slices(int(index)):
            piece[...] = data_page[: piece.size].reshape(piece.shape)
            data_page = data_page[piece.size :]


class MHATokenToKVPoolHost(_Paged):
    def __init__(self, layout: str, pages: int, page_size: int = 16, layers: int = 4, heads: int = 4) -> None:
        self.head_num, self.head_dim = heads, 128
        super().__init__(layout, pages, page_size, layers, heads * 128, 2)


class MLATokenToKVPoolHost(_Paged):
    def __init__(self, layout: str, pages: int, page_size: int = 16, layers: int = 4) -> None:
        super().__init__(layout, pages, page_size, layers, 576, 1)


class MambaPoolHost:
    """One state a page; its parts lie in memories of their own."""

    layout, page_size, layer_num, start_layer, end_layer = "page_first", 1, 3, 0, 3

    def __init__(self, layout: str, pages: int) -> None:
        self.page_num = self.size = pages
        self.dtype = np.dtype(np.uint16)
        self.temporal_buffer = memory((pages, 3, 1, 2048), np.uint32)
        self.conv_buffer = [memory((pages, 3, 1, 100), np.uint16)]
        self.kv_buffer = [self.temporal_buffer, *self.conv_buffer]

    def get_hybrid_pool_buffer(self) -> list[np.ndarray]:
        return self.kv_buffer

    def get_page_buffer_meta(self, indices: Any) -> tuple[list[int], list[int]]:
        pieces = [buffer[index] for index in indices.tolist() for buffer in self.kv_buffer]
        return [piece.__array_interface__["data"][0] for piece in pieces], [piece.nbytes for piece in pieces]

    def get_data_page(self, index: int, flat: bool = True) -> np.ndarray:
        return np.concatenate([buffer[int(index)].reshape(-1).view(np.uint8) for buffer in self.kv_buffer])


class FlatPool(_Paged):
    """A pool that says no addresses, as SGLang's pools for layer_first beside MHA and MLA."""

    def __init__(self, layout: str, pages: int) -> None:
        super().__init__(layout, pages, 16, 4, 300, 1)

    def get_page_buffer_meta(self, indices: Any) -> tuple[list[int], list[int]]:
        raise ValueError(f"Unsupported layout: {self.layout}")


class LogicalHostPool:
    """Indices without memory."""

    page_size, layout, kv_buffer = 16, "layer_first", None

    def get_page_buffer_meta(self, indices: Any) -> None:
        return None


class SealedPool:
    """A pool that gives its pages to nobody, as SGLang's MXFP8 pool."""

    page_size, layout = 16, "page_first"

    def _refuse(self, *arguments: Any, **named: Any) -> Any:
        raise NotImplementedError("its scales live outside kv_buffer")

    get_page_buffer_meta = get_data_page = get_dummy_flat_data_page = set_from_flat_data_page = _refuse


_KINDS = {"mha": MHATokenToKVPoolHost, "mla": MLATokenToKVPoolHost, "mamba": MambaPoolHost, "flat": FlatPool}


def make_pool(kind: str, layout: str = "page_first", pages: int = 9) -> Any:
    """A host pool of a kind and layout."""
    if kind == "logical":
        return LogicalHostPool()
    if kind == "sealed":
        return SealedPool()
    return _KINDS[kind](layout, pages)
