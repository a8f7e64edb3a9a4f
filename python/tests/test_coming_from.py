"""docs/coming-from.md names only calls that exist, and its examples run. (House tests check the names of C++.)"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import terrace_kv

ROOT = Path(__file__).parents[2]


def test_every_named_call_of_python_exists() -> None:
    rows = [line.split("|") for line in (ROOT / "docs" / "coming-from.md").read_text().splitlines() if line.startswith("| ")]
    named = {name for row in rows if len(row) == 6 for name in re.findall(r"`([A-Z]\w+(?:\.\w+)?)`", row[3])} - {"Python"}
    assert len(named) > 20
    for name in named:
        kind, _, member = name.partition(".")
        assert hasattr(getattr(terrace_kv, kind), member or "__init__"), name


@pytest.mark.parametrize(
    ("example", "says"),
    [
        ("easydel_pages.py", ["after the prompt: [1, 2, 3, 4, 9] [0, 0, 7, 8, 10]", "shared pages: [1, 2, 3] hits: 3", "reset: 0"]),
        ("fastdeploy_flow.py", ["GPU 4, CPU 0, storage 0", "GPU 0, CPU 4, storage 0", "GPU 0, CPU 0, storage 4", "blocks: 24"]),
    ],
)
def test_the_example_runs_and_is_short(example: str, says: list[str]) -> None:
    program = ROOT / "examples" / example
    assert len(program.read_text().splitlines()) <= 60
    ended = subprocess.run([sys.executable, program], capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stderr
    for each in says:
        assert each in ended.stdout
