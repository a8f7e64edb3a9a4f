"""Hit rates on real traces through vLLM's interfaces: what was reached stays reached. TERRACE_TRACES names the traces' folder."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

pytest.importorskip("vllm", reason="vLLM is not installed; tools/check --engines installs it")
sys.path.append(str(Path(__file__).parent.parent / "benchmarks"))

import vllm_manager  # noqa: E402

pytestmark = pytest.mark.gate
TRACES = Path(os.environ.get("TERRACE_TRACES", "none"))
WHOLE = 1 << 30


# The least is 0.5 points below what the default policy has: it depends a little on the names of chunks. LRU has 0.26 of the
# agent's chunks, 0.065 of the conversations', and 0.083 of the synthetic ones.
@pytest.mark.parametrize("step", [WHOLE, 8], ids=["whole", "in-steps"])
@pytest.mark.parametrize(("trace", "chunks", "least"), [("agent", 3000, 0.465), ("conversation", 3000, 0.128), ("synthetic", 1000, 0.083)])
def test_host_memory_keeps_what_comes_back(trace: str, chunks: int, least: float, step: int) -> None:
    file = TRACES / f"{trace}_trace.jsonl.gz"
    if not file.exists():
        pytest.skip("TERRACE_TRACES names no folder with this trace")
    manager = vllm_manager.Terrace(chunks, "adaptive")
    assert vllm_manager.hit_rate(manager, file, step_chunks=step) >= least
    manager.shutdown()
