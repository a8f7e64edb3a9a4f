"""Operators reach a cache and a store while their engine makes no call."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from admin_endpoint import ask

from terrace_kv import DeviceRegion, OffloadCache, Store

BLOCK = 4096
SLOTS = 4
PATIENCE = 120.0


def comes(condition: Callable[[], bool]) -> bool:
    """Waits until the condition is true, without a call of the engine."""
    end = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


def test_an_idle_cache_writes_back_resizes_and_clears(tmp_path: Path) -> None:
    socket = tmp_path / "s"
    memory = bytearray(SLOTS * BLOCK)
    view = (ctypes.c_char * len(memory)).from_buffer(memory)
    config = {
        "key-order": "flat",
        "write-policy": "none",
        "admin": {"listen": f"unix:{socket}", "interval": "10ms"},
        "storage": {"where": f"file:{tmp_path / 'disk'}", "capacity": "1MiB"},
        "pool": [{"block-bytes": "4KiB", "device-blocks": SLOTS, "host-blocks": 8}],
    }
    with OffloadCache(config, regions=[DeviceRegion(ctypes.addressof(view), BLOCK, BLOCK)]) as cache:
        cache.store(1, [b"a", b"b"], slots=[0, 1])

        def state() -> Any:
            return ask(socket, "GET", "/v1/status")[1]

        assert comes(lambda: bool(state()["offload"]["stored"] == 2)), "although nobody polls"
        status, written = ask(socket, "POST", "/v1/jobs", {"scope": "all"})
        assert status == 201
        path = f"/v1/jobs/{written['id']}"
        assert comes(lambda: bool(ask(socket, "GET", path)[1]["state"] == "done"))
        assert ask(socket, "GET", path)[1]["blocks"]["stored"] == 2
        assert ask(socket, "POST", "/v1/resize", {"tier": "storage", "blocks": 4})[0] == 202
        assert comes(lambda: bool(state()["pools"][0]["storage"]["capacity_blocks"] == 4))
        results = [event for event in cache.poll() if event.job == 1]
        assert len(results) == 3, "two blocks and the end of the job wait for the engine"
        assert ask(socket, "POST", "/v1/clear")[0] in (200, 202)
        assert cache.leading([b"a", b"b"]) == 0


def test_an_idle_store_clears(tmp_path: Path) -> None:
    socket = tmp_path / "s"
    with Store(tmp_path / "store", "1MiB", BLOCK, admin={"listen": f"unix:{socket}", "interval": "10ms"}) as store:
        store.put(b"a", bytes(BLOCK))
        assert store.contains(b"a")
        assert ask(socket, "POST", "/v1/clear")[0] == 202
        assert comes(lambda: not ask(socket, "GET", "/v1/status")[1]["erasing"])
        assert not store.contains(b"a")


def test_a_store_without_the_service_waits_for_its_owner(tmp_path: Path) -> None:
    socket = tmp_path / "s"
    admin = {"listen": f"unix:{socket}", "interval": "10ms", "command-deadline": "300ms"}
    with Store(tmp_path / "store", "1MiB", BLOCK, admin=admin, idle_service=False) as store:
        store.put(b"a", bytes(BLOCK))
        assert ask(socket, "POST", "/v1/clear")[0] == 503
        assert store.contains(b"a")
