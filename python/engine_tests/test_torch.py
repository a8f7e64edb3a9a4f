"""The library and torch live in one process, whichever is loaded first: each catches its own exceptions of C++."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
{imports}
try:
    torch.zeros(2) @ torch.zeros(3)
except RuntimeError as error:
    print("torch:", str(error)[:12])
try:
    terrace_kv.Cache({{"pool": [{{"block-bytes": 0}}]}})
except terrace_kv.InvalidArgument as error:
    print("terrace:", "block-bytes" in str(error))
try:
    terrace_kv.OffloadCache({{"storage": {{"where": "file:/proc/no", "capacity": "1MiB"}}, "pool": [{{"block-bytes": 4096}}]}})
except terrace_kv.TerraceError as error:
    print("terrace:", "/proc/no" in str(error))
"""


@pytest.mark.gate
@pytest.mark.parametrize("imports", ["import torch, terrace_kv", "import terrace_kv, torch"])
def test_an_error_in_the_library_is_caught_in_it_beside_torch(imports: str) -> None:
    done = subprocess.run([sys.executable, "-P", "-c", PROGRAM.format(imports=imports)], capture_output=True, text=True)
    assert done.stdout.splitlines() == ["torch: inconsistent", "terrace: True", "terrace: True"], done.stdout + done.stderr
