"""What the tests of terrace_kv.sglang run against: SGLang itself if it is installed with torch, otherwise stand-ins.

SGLang's host pools and controllers are used on a machine without a GPU. `import sglang` is not run, because it wants all of
SGLang's packages; packages for GPUs that no test calls are empty if they are not installed. TERRACE_TEST_STAND_INS=1 takes the
stand-ins in any case.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import sys
import types
from pathlib import Path
from typing import Any

STAND_INS = Path(__file__).parent / "stand_ins"
_NOT_CALLED = ("triton", "torchvision", "IPython", "gguf")


def _real_package() -> list[str] | None:
    if os.environ.get("TERRACE_TEST_STAND_INS"):
        return None
    if importlib.util.find_spec("torch") is None or importlib.util.find_spec("orjson") is None:
        return None
    spec = importlib.util.find_spec("sglang")
    return list(spec.submodule_search_locations or []) if spec is not None else None


def _use_real(path: list[str]) -> None:
    from unittest.mock import MagicMock

    import torch._dynamo
    import torch._inductor.compile_fx
    import torch._inductor.distributed_autotune
    import torch.nn.attention.flex_attention
    import torch.utils._triton
    import torch.utils.flop_counter
    import transformers  # these two have found out by now what there is not

    missing = [name for name in _NOT_CALLED if importlib.util.find_spec(name) is None]

    class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
        def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
            return importlib.machinery.ModuleSpec(name, self, is_package=True) if name.split(".")[0] in missing else None

        def create_module(self, spec: Any) -> Any:
            module = MagicMock(name=spec.name)
            module.__name__, module.__path__, module.__spec__, module.__file__ = spec.name, [], spec, spec.name
            module.__version__ = "0"
            return module

        def exec_module(self, module: Any) -> None:
            pass

    sys.meta_path.insert(0, Finder())
    package = types.ModuleType("sglang")
    package.__path__ = path
    sys.modules["sglang"] = package


_path = _real_package()
REAL = _path is not None
if _path is not None:
    _use_real(_path)
else:
    sys.path.insert(0, str(STAND_INS))

import numpy as np  # noqa: E402
from sglang.srt.mem_cache.hicache_storage import (  # noqa: E402
    HiCacheStorageConfig,
    HiCacheStorageExtraInfo,
    PoolHitPolicy,
    PoolName,
    PoolTransfer,
)
from sglang.srt.mem_cache.storage.backend_factory import StorageBackendFactory  # noqa: E402

if REAL:
    from sglang_real_pools import make_pool
else:
    from host_pools import make_pool

__all__ = [
    "REAL",
    "HiCacheStorageExtraInfo",
    "PoolHitPolicy",
    "PoolName",
    "PoolTransfer",
    "attach",
    "buffers",
    "config",
    "fill",
    "flat",
    "indices",
    "keys",
    "make_pool",
]


def config(path: Any, **changes: Any) -> HiCacheStorageConfig:
    """SGLang's configuration for one rank. `extra` are options beside those that every test gives."""
    extra = {
        "backend_name": "terrace",
        "module_path": "terrace_kv.sglang",
        "class_name": "TerraceStorage",
        "path": str(path),
        "capacity": "16MiB",
        "weights_revision": "r1",
        **changes.pop("extra", {}),
    }
    fields = dict(
        tp_rank=0,
        tp_size=1,
        pp_rank=0,
        pp_size=1,
        attn_cp_rank=0,
        attn_cp_size=1,
        is_mla_model=False,
        enable_storage_metrics=False,
        is_page_first_layout=True,
        model_name="a model",
        extra_config=extra,
    )
    return HiCacheStorageConfig(**{**fields, **changes})


def attach(configuration: HiCacheStorageConfig, pool: Any, **others: Any) -> Any:
    """Makes the back end as SGLang does: through the factory, then the pools, then the word that there are no more."""
    storage = StorageBackendFactory.create_backend("dynamic", configuration, pool)
    try:
        storage.register_mem_pool_host(pool)
        for name, other in {"kv": pool, **others}.items():
            storage.register_mem_host_pool_v2(other, PoolName(name))
        storage.on_host_pools_registered()
    except BaseException:
        storage.close()
        raise
    return storage


def keys(count: int, first: int = 0) -> list[str]:
    """Keys as SGLang makes them."""
    return [hashlib.sha256(b"%d" % i).hexdigest() for i in range(first, first + count)]


def indices(pool: Any, pages: list[int]) -> Any:
    """The host indices of pages."""
    size = getattr(pool, "page_size", 1)
    numbers = [page * size + i for page in pages for i in range(size)]
    if not REAL:
        return np.array(numbers, dtype=np.int64)
    import torch

    return torch.tensor(numbers, dtype=torch.int64)


def buffers(pool: Any) -> list[np.ndarray]:
    """All memory of a pool as bytes."""
    found = pool.kv_buffer if isinstance(pool.kv_buffer, (list, tuple)) else [pool.kv_buffer]
    if not REAL:
        return [buffer.reshape(-1).view(np.uint8) for buffer in found]
    import torch

    return [buffer.reshape(-1).view(torch.uint8).numpy() for buffer in found]


def flat(pool: Any, page: int) -> bytes:
    """The bytes of a page."""
    try:
        data = pool.get_data_page(page * getattr(pool, "page_size", 1), flat=True)
    except NotImplementedError:  # SGLang's pool with keys and values of different widths; its pages are slices of its buffers
        parts = [buffer.reshape(pool.page_num, -1)[page].tobytes() for buffer in buffers(pool)]
        return b"".join(parts)
    if REAL:
        import torch

        data = data.contiguous().view(torch.uint8).numpy()
    return bytes(data.tobytes())


def fill(pool: Any, seed: int) -> None:
    """Random bytes in all memory of a pool."""
    random = np.random.default_rng(seed)
    for buffer in buffers(pool):
        buffer[:] = random.integers(0, 256, buffer.size, dtype=np.uint8)
