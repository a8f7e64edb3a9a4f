"""Makes vLLM importable for a test: the installed package, or else the stand-in. And what its tests share."""

from __future__ import annotations

import dataclasses
import importlib.util
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from stand_ins import vllm_stand_in

IS_REAL = importlib.util.find_spec("vllm") is not None
if not IS_REAL:
    vllm_stand_in.install()

from vllm.v1.kv_offload.base import ScheduleEndContext  # noqa: E402
from vllm.v1.kv_offload.config import (  # noqa: E402
    OffloadingCacheConfig,
    OffloadingConfig,
    OffloadingGroupConfig,
    OffloadingModelConfig,
    OffloadingParallelConfig,
)

ROW = 8192
ROWS = 32


def config(**changes: Any) -> OffloadingConfig:
    whole = OffloadingConfig(
        groups=(OffloadingGroupConfig(tokens_per_block=16, layer_names=("layer.0", "layer.1"), group_id=0),),
        worker_kv_bytes_per_block=ROW,
        enable_kv_cache_events=True,
        extra_config={},
        engine_id="engine",
        model=OffloadingModelConfig(name="a model", dtype="bfloat16"),
        cache=OffloadingCacheConfig(tokens_per_hash=16, blocks_per_chunk=1),
        parallel=OffloadingParallelConfig(
            rank=0, world_size=1, tp_size=1, pp_size=1, pcp_size=1, dcp_size=1, data_parallel_index=0, data_parallel_size=1,
            data_parallel_rank_local=None, is_parallelism_agnostic=False,
        ),
        kv_cache_layout="NHD",
    )  # fmt: skip
    return dataclasses.replace(whole, **changes)


def vllm_config(**changes: Any) -> Any:
    """The parts of vLLM's own configuration that tests need. Who makes a tier or a spec has it as `vllm_config`, as vLLM has."""
    return SimpleNamespace(**{"lora_config": None, "speculative_config": None, **changes})


def model(path: Path, content: bytes = b"some weights", name: str = "model.safetensors") -> Path:
    """A directory with weights."""
    path.mkdir(exist_ok=True)
    (path / name).write_bytes(content)
    return path


def keys(count: int, first: int = 0) -> list[bytes]:
    """Keys as vLLM makes them: a hash of 32 bytes, and 4 bytes of the group."""
    return [(first + i).to_bytes(32, "little") + (0).to_bytes(4, "big") for i in range(count)]


def damage(path: Path, content: bytes) -> None:
    """Changes one byte of a chunk on disk."""
    for file in path.rglob("*"):
        if file.is_file():
            data = file.read_bytes()
            at = data.find(content[:512])
            if at >= 0:
                with open(file, "r+b") as stream:
                    stream.seek(at + 100)
                    stream.write(bytes([data[at + 100] ^ 1]))
                return
    raise AssertionError("the chunk is on no file")


class SpecEngine:
    """What the engines of the tests of TerraceOffloadingSpec share. `manager` and `rows` are made by the class that inherits."""

    manager: Any
    rows: Any

    def step(self) -> None:
        """The end of a step of vLLM's scheduler."""
        self.manager.on_schedule_end(ScheduleEndContext(new_req_ids=(), preempted_req_ids=()))

    def settle(self) -> None:
        """Waits until everything that was written is in storage."""
        job = self.manager._cache.start_write_back()
        while self.manager._cache.write_back(job).state.name == "RUNNING":
            self.manager._cache.wait(0.1)
            self.step()

    def close(self) -> None:
        """Ends the manager."""
        del self.rows
        self.manager.shutdown()
