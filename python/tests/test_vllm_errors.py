"""Whatever a call of the library fails with, vLLM goes on: it is a miss, or a chunk that is not stored, and it is counted."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import vllm_modules  # noqa: F401  (before vLLM)
from test_vllm_chains import Engine, Request
from test_vllm_tier import Engine as TierEngine
from vllm_modules import damage, keys

from terrace_kv import _interface, _report
from terrace_kv._library import error_of

STATUSES = [
    *(getattr(_interface, name) for name in (
        "INVALID_ARGUMENT", "NO_ROOM", "NEVER_FITS", "UNKNOWN_REQUEST", "DUPLICATE_REQUEST", "NOT_READY", "NOT_FOUND", "CORRUPT",
        "PARENT_MISSING", "FULL", "IO_FAILED", "LOAD_FAILED", "REFUSED", "CANCELLED", "DEADLINE_EXCEEDED", "INCOMPATIBLE", "IN_USE",
        "PAUSED", "CLEARED", "STOPPED", "UNAVAILABLE", "NO_MEMORY", "INTERNAL",
    )),
    -5,
]  # fmt: skip
HINTS = {"terrace": {"returns_in": 5, "priority": 9, "pin_for": 5}}


@pytest.fixture(autouse=True)
def as_in_production(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_report, "RAISE_MISUSE", False)


@contextmanager
def failing(owner: Any, call: str, status: int) -> Iterator[list[int]]:
    """In this block the call fails. Yields a list with an entry for each call."""
    made: list[int] = []

    def fail(*_arguments: Any, **_options: Any) -> Any:
        made.append(status)
        raise error_of(status, "by a test")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, call, fail)
        yield made


def spec_day(engine: Engine, first: int) -> list[int]:
    """Requests that find chunks in host memory and on disk, or store chunks. Then a reset. Returns the chunks that each request has
    found."""
    hits = []
    for wanted in (keys(3, first), keys(3, first + 50), keys(3, first + 50), keys(6, first + 100)):
        hits.append(Request(engine, wanted, params=HINTS).run())
        engine.manager.touch(wanted, Request(engine, wanted).context)
    engine.manager.get_stats()
    engine.manager.reset_cache()
    engine.manager.on_reset_flushed()
    engine.step()
    return hits


SPEC_CALLS = [
    "pause_idle_service", "_raw_changes", "_states", "find", "reserve", "publish", "unpin", "touch", "fetch", "poll", "clear",
    "expect_use", "retain", "pin_prefix", "statistics", "new_use",
]  # fmt: skip


def is_refusal(status: int) -> bool:
    """Too much is under way, which is usual."""
    return status in (_interface.NO_ROOM, _interface.NOT_READY, _interface.REFUSED, _interface.IN_USE)


@pytest.mark.parametrize("call", SPEC_CALLS)
def test_the_spec(tmp_path: Path, call: str) -> None:
    engine: Engine | None = None
    for turn, status in enumerate(STATUSES):
        if engine is None:
            engine = Engine(tmp_path, chunks=8, shared={"url": "redis://127.0.0.1:1"})  # where nobody answers
        counts, first = engine.manager._metrics.counts, 10_000 * turn
        Request(engine, keys(3, first)).run()
        engine.settle()
        Request(engine, keys(8, first + 500)).run()
        before = counts.errors + counts.hints_ignored
        with failing(engine.manager._cache, call, status) as made:
            spec_day(engine, first)
        assert made, "the call was not made"
        engine.manager.get_stats()
        assert counts.errors + counts.hints_ignored > before or is_refusal(status)
        engine.step()
        if call in ("publish", "unpin"):  # the rows are lost
            engine.close()
            engine = None
        else:
            assert spec_day(engine, first + 5000)[2] == 3, "it works again"
    if engine is not None:
        engine.close()


TIER_CALLS = ["contains_many", "touch", "submit_put", "submit_get", "submit_probe", "poll", "events", "health", "statistics"]


@pytest.mark.parametrize("call", TIER_CALLS)
def test_the_tier(tmp_path: Path, call: str) -> None:
    for status in STATUSES:
        engine = TierEngine(tmp_path / str(status), shared={"url": "redis://127.0.0.1:1"})
        assert engine.finish(keys(3), [0, 1, 2], load=False).success
        damage(tmp_path, engine.rows[0].tobytes())
        with failing(engine.tier._store, call, status) as made:
            engine.look_up(keys(6))
            engine.tier.touch(keys(3), None)
            engine.job(keys(3, 100), [3, 4, 5], load=False)
            engine.job(keys(3), [6, 7, 8], load=True)
            engine.tier.get_finished_jobs()
            while engine.tier._jobs and call != "poll":
                engine.tier._store.wait(1.0)
                engine.tier.get_finished_jobs()
            engine.tier._next_report = 0.0
            engine.tier.get_stats()
        assert made, "the call was not made"
        while engine.tier._jobs:
            engine.tier._store.wait(1.0)
            engine.tier.get_finished_jobs()
        engine.counters()
        assert engine.tier._counts.errors > 0 or is_refusal(status)
        assert engine.finish(keys(3, 50), [0, 1, 2], load=False).success
        assert engine.look_up(keys(3, 50)) == [True] * 3, "it works again"
        engine.close()
