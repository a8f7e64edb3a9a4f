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
        assert len(kv.group_data_refs) == 1, "one group of layers"
        self._tensors = [kv.tensors[ref.tensor_idx].tensor for ref in kv.group_data_refs[0]]
        self._sizes = [ref.page_size_bytes for ref in kv.group_data_refs[0]]
        self._blocks_per_chunk = blocks_per_chunk
        self._region = region
        self._rows = [region.create_next_worker_view(size * blocks_per_chunk) for size in self._sizes]
        self._done: list[TransferResult] = []

    def submit_store(self, job_id: int, src_spec: Any, dst_spec: Any) -> bool:
        return self._copy(job_id, src_spec, dst_spec, is_store=True)

    def submit_load(self, job_id: int, src_spec: Any, dst_spec: Any, expedited: bool = False) -> bool:
        return self._copy(job_id, dst_spec, src_spec, is_store=False)

    def _copy(self, job_id: int, device: Any, host: Any, *, is_store: bool) -> bool:
        begin, moved = time.monotonic(), 0
        first = int(device.block_indices[0])
        for i, block in enumerate(device.block_ids):
            chunk = int(host.block_ids[(first + i) // self._blocks_per_chunk - first // self._blocks_per_chunk])
            place = (first + i) % self._blocks_per_chunk
            for tensor, size, rows in zip(self._tensors, self._sizes, self._rows):
                page = tensor[int(block)].reshape(-1).view(torch.int8)[:size]
                row = rows[chunk, place * size : (place + 1) * size]
                if is_store:
                    row.copy_(page)
                elif "ZERO_LOADS" in os.environ:
                    page.zero_()
                else:
                    page.copy_(row)
                moved += size
        self._done.append(TransferResult(job_id, True, moved, time.monotonic() - begin))
        return True

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
