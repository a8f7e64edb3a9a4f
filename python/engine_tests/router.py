"""vllm-router as a process, with its policy that reads events."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

PATIENCE = 120.0


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def post(url: str, order: Mapping[str, Any]) -> Any:
    body = json.dumps(order).encode()
    request = urllib.request.Request(url, body, {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
        return json.load(answer)


def complete(url: str, prompt: Sequence[int]) -> Any:
    """Asks an engine or the router to continue the prompt."""
    return post(url + "/v1/completions", {"model": "a model", "prompt": list(prompt), "max_tokens": 1})


class Router:
    """Routes to the engines of these URLs.

    Args:
        engines: URLs.
        events: By URL, the addresses of events and of replay. Empty: the router reads no events.
        block_tokens: Tokens of a block.
        log: A file for what the router says.
    """

    def __init__(self, engines: Sequence[str], events: Mapping[str, tuple[str, str]], block_tokens: int, log: Path) -> None:
        program = shutil.which("vllm-router", path=os.path.dirname(sys.executable))
        if program is None:
            pytest.skip("vllm-router is not installed (tools/engines)")
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        command = [program, "--host", "127.0.0.1", "--port", str(port), "--prometheus-port", str(free_port())]
        command += ["--policy", "kv_aware"]
        command += ["--worker-urls", *engines, "--kv-event-block-size", str(block_tokens), "--kv-event-model", "a model"]
        for engine, (live, replay) in events.items():
            command += ["--kv-event-source", f"{engine}={live}", "--kv-event-replay-source", f"{engine}={replay}"]
        self._log = log
        with open(log, "w") as output:
            self._process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)

    def __enter__(self) -> Router:
        end = time.monotonic() + PATIENCE
        while True:
            try:
                with urllib.request.urlopen(self.url + "/readiness", timeout=PATIENCE):
                    return self
            except (urllib.error.URLError, ConnectionError):
                if self._process.poll() is not None or time.monotonic() > end:
                    self.__exit__()
                    pytest.fail(f"the router does not serve: {self._log.read_text()[-2000:]}")
                time.sleep(0.1)

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait(PATIENCE)
