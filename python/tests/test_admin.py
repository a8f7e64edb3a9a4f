"""The admin endpoint of an OffloadCache and of a Store: the configuration is all that it needs."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from admin_endpoint import ask

from terrace_kv import DeviceRegion, InvalidArgument, OffloadCache, Store, TerraceError

BLOCK = 4096
SLOTS = 4


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


def test_operators_reach_a_store_of_python(tmp_path: Path) -> None:
    path = tmp_path / "s"
    admin = {"listen": f"unix:{path}", "interval": "10ms"}
    with Store(tmp_path / "store", capacity="1MiB", block_bytes=BLOCK, admin=admin) as store:
        store.put(b"one", bytes(BLOCK))
        results: list[tuple[int, dict[str, Any]]] = []
        command = threading.Thread(target=lambda: results.append(ask(path, "POST", "/v1/clear")))
        command.start()
        while command.is_alive():
            store.poll()
            store.wait(0.001)
        assert results == [(202, {"cleared": True, "erasing": True, "shared_off": False})]
        assert not store.contains(b"one")
        state = ask(path, "GET", "/v1/status")[1]
        assert (state["store"]["stored"], state["pools"][0]["storage"]["blocks"]) == (1, 0)
        values = {each["name"]: each["value"] for each in ask(path, "GET", "/v1/config")[1]["start"]}
        assert (values["storage.capacity"], values["pool[0].block-bytes"]) == ("1MiB", "4KiB")
    assert not path.exists()
    with pytest.raises(InvalidArgument, match="listn.*listen"):
        Store(tmp_path / "another", capacity="1MiB", block_bytes=BLOCK, admin={"listn": "unix:"})


def test_operators_name_the_weights_of_a_store(tmp_path: Path) -> None:
    path = tmp_path / "s"
    admin = {"listen": f"unix:{path}", "interval": "10ms"}
    with Store(tmp_path / "store", capacity="1MiB", block_bytes=BLOCK, admin=admin, shared={"url": "memory:"}) as store:

        def order(target: str, body: dict[str, Any] | None = None) -> tuple[int, dict[str, Any]]:
            results: list[tuple[int, dict[str, Any]]] = []
            command = threading.Thread(target=lambda: results.append(ask(path, "POST", target, body)))
            command.start()
            while command.is_alive():
                store.poll()
                store.wait(0.001)
            return results[0]

        store.put(b"one", bytes(BLOCK))
        assert order("/v1/clear") == (202, {"cleared": True, "erasing": True, "shared_off": True})
        assert not store.get(b"one", bytearray(BLOCK))
        health = ask(path, "GET", "/healthz")[1]
        assert health["status"] == "degraded" and "terrace update" in health["reasons"][0]
        assert order("/v1/update", {"weights-revision": "2"}) == (202, {"cleared": True, "erasing": True, "shared_off": False})
        assert not store.get(b"one", bytearray(BLOCK))
        assert order("/v1/update", {"weights-revision": ""})[0] == 400
        store.resume_shared("")
        assert store.get(b"one", bytearray(BLOCK))
