"""The dashboard shows figures of every kind of process: each is asked for its metrics, after some work."""

from __future__ import annotations

import ctypes
import json
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from admin_endpoint import UnixConnection

from terrace_kv import Cache, Chain, DeviceRegion, JobEventKind, OffloadCache, Root, Store

MONITORING = Path(__file__).parents[2] / "docs" / "monitoring"
BLOCK, SLOTS, UNIT, PATIENCE = 4096, 32, 4, 60.0
NAMES = [b"chunk %d" % i for i in range(16)]

Samples = list[tuple[str, dict[str, str], float]]


def metrics(path: Path) -> Samples:
    connection = UnixConnection(path)
    connection.request("GET", "/metrics")
    answer = connection.getresponse()
    text = answer.read().decode()
    if answer.status == 501:
        pytest.skip("this build has no library for Prometheus' format")
    lines = [re.fullmatch(r"(\w+)(?:\{(.*)\})? (\S+)", line) for line in text.splitlines() if not line.startswith("#")]
    return [(line[1], dict(re.findall(r'(\w+)="([^"]*)"', line[2] or "")), float(line[3])) for line in lines if line]


def region_of(memory: bytearray) -> tuple[DeviceRegion, object]:
    view = (ctypes.c_char * len(memory)).from_buffer(memory)
    return DeviceRegion(base=ctypes.addressof(view), stride=BLOCK, bytes=BLOCK), view


@contextmanager
def own_cache(admin: dict[str, str], _directory: Path) -> Iterator[None]:
    """An engine on Cache, without storage."""
    region, view = region_of(bytearray(SLOTS * BLOCK))
    pool = {"block-bytes": BLOCK, "device-blocks": SLOTS, "host-blocks": 32}
    with Cache({"admin": admin, "device": {"reserve-max": 0}, "pool": [pool]}, regions=[region]) as cache:
        for first in (0, 100, 0):
            chain = Chain(Root(model_digest=b"a model"), UNIT, range(first, first + 5 * UNIT))
            with cache.acquire(chain) as request:
                request.wait(PATIENCE)
                request.commit(chain.keys)
                request.release(0)
        yield
    del view


@contextmanager
def offload_cache(admin: dict[str, str], _directory: Path) -> Iterator[None]:
    """An engine that owns the blocks of its device, as vLLM does under TerraceOffloadingSpec."""
    region, view = region_of(bytearray(SLOTS * BLOCK))
    pool = {"block-bytes": BLOCK, "device-blocks": SLOTS, "host-blocks": 32}
    config = {"key-order": "flat", "admin": admin, "pool": [pool], "storage": {"where": "memory:", "capacity": "1MiB"}}
    with OffloadCache({**config, "shared": {"url": "memory:"}}, regions=[region]) as cache:

        def end(job: int) -> None:
            while not any(event.job == job and event.kind is JobEventKind.ENDED for event in cache.poll()):
                cache.wait(PATIENCE)

        cache.store(1, NAMES, slots=range(16))
        end(1)
        assert cache.leading([*NAMES, b"other"]) == len(NAMES)
        cache.load(2, NAMES, slots=range(16, 32))
        end(2)
        yield
    del view


@contextmanager
def store(admin: dict[str, str], directory: Path) -> Iterator[None]:
    """A store alone, as vLLM's tier, SGLang's storage and LMCache's adapter have."""
    with Store(directory / "store", "1MiB", BLOCK, admin=admin, shared={"url": "memory:"}) as opened:
        for name in NAMES:
            opened.put(name, bytes(BLOCK))
        assert opened.leading([*NAMES, b"other"]) == len(NAMES)
        assert opened.get(NAMES[0], bytearray(BLOCK))
        yield


def samples_of(selector: re.Match[str], samples: Samples) -> list[float]:
    """The values that a selector of PromQL chooses."""
    wanted = [match for match in re.findall(r'(\w+)(=~|!=|=)"([^"]*)"', selector[2] or "") if match[0] != "instance"]

    def fits(labels: dict[str, str]) -> bool:
        for name, how, value in wanted:
            here = labels.get(name, "")
            if not (re.fullmatch(value, here) if how == "=~" else (here == value) == (how == "=")):
                return False
        return True

    return [value for name, labels, value in samples if name == selector[1] and fits(labels)]


def figures_of(expression: str, samples: Samples) -> list[float]:
    """The values from which an expression is computed: of its first alternative for which nothing is missing."""
    for alternative in expression.split(" or "):
        chosen = [samples_of(selector, samples) for selector in re.finditer(r"(terrace_\w+)(\{[^}]*\})?", alternative)]
        if chosen and all(chosen):
            return [value for values in chosen for value in values]
    return []


SERVERS = "Shared store: servers"  # a shared store in memory has none
WAITS = "Wait until ready, 99th percentile"  # all requests of `own_cache` are ready at once
NOT_ZERO = ("Hit rate", "Where tokens or blocks come from", WAITS, "Slots by tier and use")


@pytest.mark.parametrize("door", [own_cache, offload_cache, store])
def test_every_panel_of_the_dashboard_shows_a_figure(door: Callable[..., object], tmp_path: Path) -> None:
    panels = json.loads((MONITORING / "dashboard.json").read_text())["panels"]
    shares = door is not own_cache
    path = tmp_path / "socket"

    def empty() -> list[str]:
        samples = metrics(path)
        figures = {
            panel["title"]: [value for target in panel["targets"] for value in figures_of(target["expr"], samples)]
            for panel in panels
        }
        return [
            title
            for title, values in figures.items()
            if title != SERVERS and (shares or not title.startswith("Shared"))
            if not values or (title in NOT_ZERO and not any(values) and (shares or title != WAITS))
        ]

    with door({"listen": f"unix:{path}", "interval": "10ms"}, tmp_path):  # type: ignore[attr-defined]
        end = time.monotonic() + PATIENCE
        while empty() and time.monotonic() < end:
            time.sleep(0.01)  # until the next snapshot
        assert empty() == []
