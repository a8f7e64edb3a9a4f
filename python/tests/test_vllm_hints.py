"""Requests tell TerraceOffloadingSpec when their prefix is used next."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from test_vllm_chains import HIT, Engine, Request
from vllm_modules import keys

from vllm.v1.kv_offload.base import ReqContext  # isort: skip

from terrace_kv.vllm.hints import NextUse, WrongHint, next_use


@pytest.fixture
def engine() -> Iterator[Engine]:
    made = Engine(chunks=8)
    yield made
    made.close()


def told(engine: Engine, chain: list[bytes], hint: Any) -> None:
    """A request with this hint."""
    request = Request(engine, chain, params=None if hint is None else {"terrace": hint})
    request.run()


def cached(engine: Engine, chain: list[bytes]) -> int:
    return Request(engine, chain).look_up().count(HIT)


def test_chunks_of_a_session_that_has_ended_go_first(engine: Engine) -> None:
    told(engine, keys(4), None)
    told(engine, keys(4, 100), {"session": "ended"})
    told(engine, keys(4, 200), None)
    assert cached(engine, keys(4)) == 4, "used less recently"
    assert cached(engine, keys(4, 100)) == 0


def test_a_session_that_goes_on_after_all_is_like_others(engine: Engine) -> None:
    told(engine, keys(3), None)
    told(engine, keys(3, 100), {"session": "ended"})
    told(engine, keys(3, 100) + keys(1, 150), None)
    told(engine, keys(2, 200), None)
    assert cached(engine, keys(3)) < 3
    assert cached(engine, keys(3, 100)) == 3


def test_hints_are_counted_and_wrong_ones_are_ignored(engine: Engine) -> None:
    told(engine, keys(2), {"returns_in": 5})
    told(engine, keys(2, 100), {"returns_in": "soon"})
    counts = engine.manager._metrics.counts
    assert (counts.hints, counts.hints_wrong) == (1, 1)
    assert cached(engine, keys(2, 100)) == 2


def test_a_hint_may_come_in_either_way() -> None:
    def context(**given: Any) -> ReqContext:
        return ReqContext(req_id="one", **given)

    assert next_use(context()) is None
    assert next_use(context(kv_transfer_params={"other": 1})) is None
    assert next_use(context(kv_transfer_params={"terrace": {"session": "ended"}})) == NextUse(None)
    assert next_use(context(kv_transfer_params={"terrace": {"returns_in": 2}})) == NextUse(2.0)
    kv_hints = pytest.importorskip("vllm.v1.kv_hints")
    action = kv_hints.KvHintAction("1", "terrace.session", "1", {"session": "ended"})
    other = kv_hints.KvHintAction("0", "kv.fetch", "1", {})
    assert next_use(context(kv_hints=kv_hints.KvHintsEnvelope("1", "2", [other, action]))) == NextUse(None)
    assert next_use(context(kv_hints=kv_hints.KvHintsEnvelope("1", "2", [other]))) is None


@pytest.mark.parametrize(
    "hint", [{}, "ended", 3, {"session": "begun"}, {"returns_in": -1}, {"returns_in": True}, {"returns_in": float("nan")},
             {"session": "ended", "returns_in": 3}, {"return": 3}]
)  # fmt: skip
def test_a_hint_without_a_meaning_names_what_would_have_one(hint: Any) -> None:
    with pytest.raises(WrongHint, match="must be .*session.*returns_in"):
        next_use(ReqContext(req_id="one", kv_transfer_params={"terrace": hint}))
