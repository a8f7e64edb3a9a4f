"""vLLM's own HTTP server gets hints, and the hits of its engine show them."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

if importlib.util.find_spec("vllm") is None:
    pytest.skip("vLLM is not installed (tools/engines)", allow_module_level=True)

import tiny_model
from http_server import Server, serving

CHUNK = 32
CHUNK_BYTES = tiny_model.LAYERS * 2 * CHUNK * tiny_model.HEADS * tiny_model.HEAD * 2
CHUNKS_OF_A_PROMPT = 6


class Prompts:
    """Prompts of six full chunks, to a server with host memory for two of them."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self.metric = server.metric

    def complete(self, seed: int, hint: dict[str, Any] | None = None) -> int:
        """Sends a prompt. Returns how many of its tokens were cached."""
        prompt = [(seed * 37 + i * seed) % (tiny_model.VOCABULARY - 3) + 3 for i in range(CHUNKS_OF_A_PROMPT * CHUNK + 5)]
        return self._server.complete(prompt, **({} if hint is None else {"kv_transfer_params": {"terrace": hint}}))

    def push_out_of_the_gpu(self) -> None:
        """Prompts that are not stored fill the blocks of the GPU, and leave host memory as it is."""
        for seed in range(101, 107):
            self.complete(seed, {"store": False})


@pytest.mark.gate
def test_hints_over_http_decide_what_host_memory_keeps(tmp_path: Path) -> None:
    whole = CHUNKS_OF_A_PROMPT * CHUNK
    model = tiny_model.write_tokenizer(tiny_model.write(tmp_path / "model"))
    extra = {
        "spec_name": "CpuTerraceSpec",
        "spec_module_path": "cpu_worker",
        "cpu_bytes_to_use": 2 * CHUNKS_OF_A_PROMPT * CHUNK_BYTES,
        "terrace": {"weights_revision": "1"},
    }
    options = {"block_size": CHUNK, "max_model_len": 512, "num_gpu_blocks_override": 26}
    with serving(model, extra, tmp_path / "server.log", **options) as serves:
        server = Prompts(serves)
        # Host memory has room for two prompts. Without a hint, the third one takes the place of the first one.
        for seed in (1, 2, 3):
            assert server.complete(seed) == 0
        server.push_out_of_the_gpu()
        assert server.complete(2) == whole
        assert server.complete(1) == 0
        server.push_out_of_the_gpu()

        # The session of the second one has ended, so it goes first.
        assert server.complete(11) == 0
        assert server.complete(12, {"session": "ended"}) == 0
        assert server.complete(13) == 0
        server.push_out_of_the_gpu()
        assert server.complete(11) == whole
        assert server.complete(12) == 0
        server.push_out_of_the_gpu()

        # Chunks of a high priority stay.
        assert server.complete(21, {"priority": 9, "priority_for": 600}) == 0
        for seed in (22, 23, 24):
            assert server.complete(seed) == 0
        server.push_out_of_the_gpu()
        assert server.complete(21) == whole
        hints = server.metric("hints")
        assert hints == 5 * 6 + 2
        assert server.complete(25, {"priority": "high"}) == 0
        assert (server.metric("hints"), server.metric("hints_wrong")) == (hints, 1)
