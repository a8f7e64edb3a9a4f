"""A short run of soak.py; an hour of it is `tests/servers/soak.py --minutes 60`."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HAS_SERVER = shutil.which("redis-server") is not None or shutil.which("redis-check-rdb") is not None
HAS_ALL = HAS_SERVER and "TERRACE_PROGRAM" in os.environ
pytestmark = pytest.mark.skipif(not HAS_ALL, reason="needs redis-server (package redis-tools) and TERRACE_PROGRAM")


def test_commands_and_faults_reach_processes_that_work_and_rest() -> None:
    command = [sys.executable, str(Path(__file__).with_name("soak.py")), "--minutes", "0.8", "--phase", "5"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0 and done.stdout.endswith("clean\n"), done.stdout + done.stderr
