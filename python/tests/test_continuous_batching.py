"""examples/continuous_batching.py, which docs/python.md quotes, runs as a program."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("numpy")

ROOT = Path(__file__).parents[2]


def test_prompts_are_batched_and_preempted_and_share_blocks() -> None:
    command = [sys.executable, ROOT / "examples" / "continuous_batching.py"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stderr
    counts = re.fullmatch(r"6 answers are right; (\d+) preemptions; (\d+) tokens were not computed again\n", ended.stdout)
    assert counts is not None and int(counts[1]) > 0 and int(counts[2]) > 12


def test_the_page_names_each_class_of_errors_with_its_statuses() -> None:
    from terrace_kv import TerraceError, _interface
    from terrace_kv._library import _EXCEPTIONS

    told: dict[int, str] = {}
    for line in (ROOT / "docs" / "python.md").read_text().splitlines():
        if found := re.match(r"\| `(\w+)`(?:, an? `\w+`| itself)? \| ([^|]*)\|", line):
            told |= {getattr(_interface, name.upper()): found[1] for name in re.findall(r"`(\w+)`", found[2])}
    assert {status: kind.__name__ for status, kind in _EXCEPTIONS.items()} == {
        status: kind for status, kind in told.items() if kind != TerraceError.__name__
    }
    assert len(told) > len(_EXCEPTIONS)
