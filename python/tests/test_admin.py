"""The admin endpoint of an OffloadCache: the configuration is all that it needs."""

from __future__ import annotations

import ctypes
import http.client
import json
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from terrace_kv import DeviceRegion, InvalidArgument, OffloadCache, TerraceError

BLOCK = 4096
SLOTS = 4


class UnixConnection(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=20)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(20)
        self.sock.connect(str(self._path))


def ask(path: Path, method: str, target: str, body: dict[str, Any] | None = None) -> tuple[int, dict[str, Any]]:
    connection = UnixConnection(path)
    connection.request(method, target, None if body is None else json.dumps(body))
    answer = connection.getresponse()
    return answer.status, json.loads(answer.read())


def cache_with(listen: str) -> tuple[OffloadCache, object]:
    memory = bytearray(SLOTS * BLOCK)
    view = (ctypes.c_char * len(memory)).from_buffer(memory)
    config = {
        "key-order": "flat",
        "admin": {"listen": listen, "interval": "10ms"},
        "pool": [{"block-bytes": "4KiB", "device-blocks": SLOTS, "host-blocks": 8}],
        "engine-owns-slots": True,
    }
    region = DeviceRegion(base=ctypes.addressof(view), stride=BLOCK, bytes=BLOCK)
    return OffloadCache(config, regions=[region]), view


def while_polling(cache: OffloadCache, work: Callable[[], Any]) -> Any:
    """Runs `work` on a thread of its own, and polls the cache meanwhile, as an engine does."""
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(work()))
    thread.start()
    while thread.is_alive():
        cache.poll()
        thread.join(0.001)
    return results[0]


def test_operators_reach_a_cache_of_python(tmp_path: Path) -> None:
    path = tmp_path / "s"
    cache, _memory = cache_with(f"unix:{path}")
    with cache:
        status, health = ask(path, "GET", "/healthz")
        assert (status, health["status"]) == (200, "ok")
        status, resized = while_polling(cache, lambda: ask(path, "POST", "/v1/resize", {"tier": "host", "blocks": 3}))
        assert (status, resized["blocks"]) == (202, 3)
        status, state = ask(path, "GET", "/v1/status")
        assert state["pools"][0]["host"]["blocks"] == 3
        status, refused = ask(path, "POST", "/v1/resize", {"tier": "disk", "blocks": 3})
        assert status == 400
        assert "device, host, storage" in refused["error"]
    assert not path.exists()


def test_a_wrong_address_is_refused(tmp_path: Path) -> None:
    with pytest.raises((InvalidArgument, TerraceError), match=r"admin\.listen"):
        cache_with("tcp:0.0.0.0:80")
