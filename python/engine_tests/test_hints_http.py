"""vLLM's own HTTP server gets hints, and the hits of its engine show them."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from socket import socket
from typing import Any

import pytest

if importlib.util.find_spec("vllm") is None:
    pytest.skip("vLLM is not installed (tools/engines)", allow_module_level=True)

import tiny_model

PATIENCE = 240.0
CHUNK = 32
CHUNK_BYTES = tiny_model.LAYERS * 2 * CHUNK * tiny_model.HEADS * tiny_model.HEAD * 2
CHUNKS_OF_A_PROMPT = 6


class Server:
    """vLLM's OpenAI server over the tiny model, with host memory for two prompts."""

    def __init__(self, url: str, model: Path) -> None:
        self._url, self._model = url, model

    def complete(self, seed: int, hint: dict[str, Any] | None = None) -> int:
        """Sends a prompt of six full chunks. Returns how many of its tokens were cached."""
        body: dict[str, Any] = {
            "model": str(self._model),
            "prompt": [(seed * 37 + i * seed) % (tiny_model.VOCABULARY - 3) + 3 for i in range(CHUNKS_OF_A_PROMPT * CHUNK + 5)],
            "max_tokens": 1,
            "temperature": 0,
        }
        if hint is not None:
            body["kv_transfer_params"] = {"terrace": hint}
        request = urllib.request.Request(
            self._url + "/v1/completions", json.dumps(body).encode(), {"content-type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            usage = json.load(answer)["usage"]
        return int((usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0)

    def metric(self, name: str) -> float:
        with urllib.request.urlopen(self._url + "/metrics", timeout=PATIENCE) as answer:
            lines = answer.read().decode().splitlines()
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(f"vllm:kv_offload_terrace_{name}_total{{"))

    def push_out_of_the_gpu(self) -> None:
        """Prompts that are not stored fill the blocks of the GPU, and leave host memory as it is."""
        for seed in range(101, 107):
            self.complete(seed, {"store": False})


@contextmanager
def serving(directory: Path) -> Iterator[Server]:
    model = tiny_model.write(directory / "model")
    words = {f"t{i}": i for i in range(tiny_model.VOCABULARY)}
    tokenizer = {"version": "1.0", "added_tokens": [], "pre_tokenizer": {"type": "Whitespace"},
                 "model": {"type": "WordLevel", "vocab": words, "unk_token": "t0"}}  # fmt: skip
    (model / "tokenizer.json").write_text(json.dumps(tokenizer))
    (model / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "t0"}))
    with socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    extra = {
        "spec_name": "CpuTerraceSpec",
        "spec_module_path": "cpu_worker",
        "cpu_bytes_to_use": 2 * CHUNKS_OF_A_PROMPT * CHUNK_BYTES,
        "terrace": {"weights_revision": "1"},
    }
    transfer = {"kv_connector": "OffloadingConnector", "kv_role": "kv_both", "kv_connector_extra_config": extra}
    options = {
        "model": model, "load-format": "safetensors", "host": "127.0.0.1", "port": port, "dtype": "bfloat16", "block-size": CHUNK,
        "max-model-len": 512, "num-gpu-blocks-override": 26, "max-num-seqs": 4, "kv-transfer-config": json.dumps(transfer),
    }  # fmt: skip
    here = str(Path(__file__).parent)
    settings = {
        "PYTHONPATH": os.pathsep.join([here, os.environ.get("PYTHONPATH", "")]),
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
    }
    arguments = [part for name, value in options.items() for part in (f"--{name}", str(value))]
    log = directory / "server.log"
    with open(log, "w") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "vllm.entrypoints.openai.api_server", *arguments, "--enforce-eager",
             "--enable-prompt-tokens-details"],
            env={**os.environ, **settings}, stdout=out, stderr=subprocess.STDOUT,
        )  # fmt: skip
    url = f"http://127.0.0.1:{port}"
    try:
        end = time.monotonic() + PATIENCE
        while True:
            try:
                urllib.request.urlopen(url + "/health", timeout=5).close()
                break
            except (urllib.error.URLError, OSError):
                assert process.poll() is None and time.monotonic() < end, log.read_text()[-4000:]
                time.sleep(0.2)
        yield Server(url, model)
    finally:
        process.terminate()
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()


@pytest.mark.gate
def test_hints_over_http_decide_what_host_memory_keeps(tmp_path: Path) -> None:
    whole = CHUNKS_OF_A_PROMPT * CHUNK
    with serving(tmp_path) as server:
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
