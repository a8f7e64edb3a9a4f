"""Store.clear() and remove() are durable when they return, and nothing that they have overtaken is stored."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from terrace_kv import Store
from terrace_kv._interface import CANCELLED

BLOCK = 4096
COUNT = 64

# Stores blocks, makes them durable, erases them as the argument says, says so, and waits to be killed.
_ERASER = """
import signal, sys
from terrace_kv import Store
path, erase, count, block = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
store = Store(path, "1MiB", block)
names = [b"%d" % n for n in range(count)]
for name in names:
    store.put(name, name.ljust(block, b"."))
store.submit_flush(1)
store.drain()
store.clear() if erase == "clear" else store.remove(names[: count // 2])
print("erased", flush=True)
signal.pause()
"""


@pytest.mark.parametrize("erase", ["clear", "remove"])
def test_what_was_erased_is_not_back_after_a_kill(tmp_path: Path, erase: str) -> None:
    words = [sys.executable, "-c", _ERASER, str(tmp_path / "store"), erase, str(COUNT), str(BLOCK)]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None and child.stdout.readline() == b"erased\n"
        os.kill(child.pid, signal.SIGKILL)
    gone = COUNT if erase == "clear" else COUNT // 2
    with Store(tmp_path / "store", "1MiB", BLOCK) as store:
        assert [store.contains(b"%d" % n) for n in range(COUNT)] == [n >= gone for n in range(COUNT)]


def test_puts_that_a_clear_overtakes_are_cancelled_and_not_stored(tmp_path: Path) -> None:
    rows = bytearray(os.urandom(COUNT * BLOCK))
    names = [b"%d" % n for n in range(COUNT)]
    with Store(tmp_path / "store", "1MiB", BLOCK, io="threads", bandwidth="20MiB/s") as store:
        store.submit_put(1, names, store.register(rows), range(COUNT))
        store.clear()
        (result,) = store.poll()
        assert set(result.statuses) == {CANCELLED}
        assert not any(store.contains(name) for name in names)
        store.put(names[0], bytes(BLOCK))
    with Store(tmp_path / "store", "1MiB", BLOCK) as store:
        assert [name for name in names if store.contains(name)] == names[:1]
