"""The example that docs/vllm.md shows."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

if importlib.util.find_spec("vllm") is None:
    pytest.skip("vLLM is not installed (tools/engines)", allow_module_level=True)


def test_a_server_that_starts_again_finds_its_prompt_on_the_disk() -> None:
    program = Path(__file__).parents[2] / "examples" / "try_vllm.py"
    ended = subprocess.run([sys.executable, "-P", program], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    first, second = re.findall(r" s; (\d+) of 1500 tokens cached; chunks from disk: (\d+)\n", ended.stdout)
    assert first == ("0", "0")
    assert second[0] == "1472" and int(second[1]) >= 1472 // 32
