"""The tutorial examples/mini_engine.py runs as a program: hits from all tiers, a restart, and a comparison that can fail."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parents[2] / "examples" / "mini_engine.py"
TABLE = ["request", "prompt", "=", "device", "+", "host", "+", "storage", "+", "computed"]
SAME = "as without a cache"

if subprocess.run([sys.executable, "-c", "import torch"], capture_output=True).returncode != 0:
    pytest.skip("torch cannot be imported", allow_module_level=True)


@dataclass
class Row:
    """A line of the table. Numbers are in tokens of the prompt."""

    request: str
    prompt: int
    device: int
    host: int
    storage: int
    computed: int
    answer: str


def run(*arguments: str | Path) -> tuple[int, list[list[Row]]]:
    """Returns the exit status, and the rows between opening and closing the cache."""
    command = [sys.executable, PROGRAM, "--device", "cpu", *arguments]
    ended = subprocess.run(command, capture_output=True, text=True)
    assert "Traceback" not in ended.stderr, ended.stderr
    heading, *lines = ended.stdout.splitlines()
    assert heading.split()[: len(TABLE)] == TABLE
    times: list[list[Row]] = [[]]
    for line in lines:
        if line.startswith("closing"):
            times.append([])
            continue
        request, *numbers, answer = line.split(maxsplit=6)[:7]
        times[-1].append(Row(request, *map(int, numbers[:5]), answer))
    assert times.pop() == []
    return ended.returncode, times


def test_hits_come_from_all_tiers_and_change_nothing(tmp_path: Path) -> None:
    status, (before, after) = run("--path", tmp_path / "kv")
    assert status == 0
    for row in before + after:
        assert row.answer == SAME
        assert row.prompt == row.device + row.host + row.storage + row.computed
    assert before[0].computed == before[0].prompt
    assert any(row.device > 0 for row in before) and any(row.host > 0 for row in before)
    # A restart empties the device and the host. What was stored comes from storage once, and then from the device.
    assert after[0].storage > 0 and after[0].device == after[0].host == 0
    assert after[1].device == after[0].storage and after[1].storage == 0

    # The same in another process, over the same directory.
    status, (warm, _) = run("--path", tmp_path / "kv")
    assert status == 0
    assert warm[0].storage == after[0].storage and warm[0].answer == SAME

    # Blocks of other weights are no hits.
    status, (other, _) = run("--path", tmp_path / "kv", "--seed", "2")
    assert status == 0
    assert other[0].computed == other[0].prompt


def test_wrong_kv_changes_the_answers() -> None:
    status, (before, after) = run("--zero")
    assert status == 1
    assert before[0].answer == SAME
    for row in before + after:
        assert (row.answer == SAME) == (row.host + row.storage == 0) or row.device > 0
    assert after[0].storage > 0 and after[0].answer != SAME
