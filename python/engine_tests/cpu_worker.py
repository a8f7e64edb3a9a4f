"""A worker that copies between a CPU engine's KV tensors and the rows of vLLM's shared region.

vLLM's own worker refuses platforms without a GPU. Everything else of vLLM runs unchanged above this one. With ZERO_LOADS in the
environment it loads zeros, which must change the output: otherwise the comparison of outputs proves nothing.
"""

from __future__ import annotations

import os
import time
from typing import Any

import torch
from vllm.v1.kv_offload.base import OffloadingWorker, TransferResult
from vllm.v1.kv_offload.cpu.shared_offload_region import SharedOffloadRegion
from vllm.v1.kv_offload.tiering.spec import TieringOffloadingSpec

from terrace_kv.vllm.spec import TerraceOffloadingSpec, check_one_host


class CopyingWorker(OffloadingWorker):
    def __init__(self, kv: Any, blocks_per_chunk: int, region: SharedOffloadRegion) -> None:
        # A row of the region has room for each tensor, whatever the group of the chunk: the layers of all groups lie in the same
        # tensors, in blocks of their own.
        self._tensors = [each.tensor for each in kv.tensors]
        self._strides = [each.page_size_bytes for each in kv.tensors]
        self._groups = [[(ref.tensor_idx, ref.page_size_bytes) for ref in refs] for refs in kv.group_data_refs]
        self._blocks_per_chunk = blocks_per_chunk
        self._region = region
        self._rows = [region.create_next_worker_view(stride * blocks_per_chunk) for stride in self._strides]
        self._done: list[TransferResult] = []

    def submit_store(self, job_id: int, src_spec: Any, dst_spec: Any) -> bool:
        return self._copy(job_id, src_spec, dst_spec, is_store=True)

    def submit_load(self, job_id: int, src_spec: Any, dst_spec: Any, expedited: bool = False) -> bool:
        return self._copy(job_id, dst_spec, src_spec, is_store=False)

    def _copy(self, job_id: int, device: Any, host: Any, *, is_store: bool) -> bool:
        begin, moved = time.monotonic(), 0
        blocks = [int(block) for block in device.block_ids]
        chunks = [int(chunk) for chunk in host.block_ids]
        assert len(device.group_sizes) == len(device.block_indices) == len(self._groups)
        for refs, count, first in zip(self._groups, device.group_sizes, device.block_indices):
            begins_at = first % self._blocks_per_chunk
            rows = -(-(begins_at + count) // self._blocks_per_chunk) if count else 0
            for place, block in enumerate(blocks[:count], begins_at):
                for tensor, size in refs:
                    moved += self._copy_page(tensor, size, block, chunks[place // self._blocks_per_chunk], place, is_store)
            del blocks[:count], chunks[:rows]
        assert not blocks and not chunks, "all that was named is copied"
        self._done.append(TransferResult(job_id, True, moved, time.monotonic() - begin))
        return True

    def _copy_page(self, tensor: int, size: int, block: int, chunk: int, place: int, is_store: bool) -> int:
        page = self._tensors[tensor][block].reshape(-1).view(torch.int8)[:size]
        at = place % self._blocks_per_chunk * self._strides[tensor]
        row = self._rows[tensor][chunk, at : at + size]
        if is_store:
            row.copy_(page)
        elif "ZERO_LOADS" in os.environ:
            page.zero_()
        else:
            page.copy_(row)
        return size

    def get_finished(self) -> list[TransferResult]:
        done, self._done = self._done, []
        return done

    def wait(self, job_ids: set[int]) -> None:
        """Every copy has ended when submit returns."""

    def shutdown(self) -> None:
        self._rows.clear()
        self._region.cleanup()


def make_worker(spec: Any, kv_caches: Any) -> CopyingWorker:
    """A worker of the spec, in the place where vLLM makes its own."""
    if spec._worker is None:
        region = SharedOffloadRegion(
            engine_id=spec.config.engine_id,
            num_chunks=spec.num_chunks,
            rank=spec.config.parallel.rank,
            kv_bytes_per_chunk=spec.kv_bytes_per_chunk,
            cpu_page_size=spec.cpu_page_size_per_worker,
        )
        spec._worker = CopyingWorker(kv_caches, spec.blocks_per_chunk, region)
    return spec._worker


class CpuTerraceSpec(TerraceOffloadingSpec):
    """Terrace's spec, with the copying worker."""

    def get_worker(self, kv_caches: Any) -> CopyingWorker:
        check_one_host(self.config.parallel.world_size)
        return make_worker(self, kv_caches)


class CpuTieringSpec(TieringOffloadingSpec):
    """vLLM's spec of tiers, with the copying worker."""

    def get_worker(self, kv_caches: Any) -> CopyingWorker:
        return make_worker(self, kv_caches)
