"""Terrace as a storage back end of SGLang's HiCache: pages of the KV cache on disk, which are found again after a restart.

SGLang loads it by name; no code of SGLang changes:

    python -m sglang.launch_server --model-path MODEL --enable-hierarchical-cache --hicache-storage-backend dynamic \\
        --hicache-storage-backend-extra-config '{"backend_name": "terrace", "module_path": "terrace_kv.sglang",
            "class_name": "TerraceStorage", "path": "/mnt/nvme/kv", "capacity": "64GiB"}'

docs/sglang.md has the options and the limits.
"""

from __future__ import annotations

from .storage import TerraceStorage

__all__ = ["TerraceStorage"]
