"""Requests tell TerraceOffloadingSpec what becomes of their prefixes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from test_vllm_chains import HIT, ROW, Engine, Request
from vllm_modules import keys

from vllm.v1.kv_offload.base import ReqContext  # isort: skip

from terrace_kv.vllm.hints import NO_HINTS, HintReader, Hints, WrongHint, hints_of, tenant_number


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


def test_a_wrong_hint_is_a_short_line_a_minute() -> None:
    said: list[str] = []
    reader = HintReader(said.append)
    long = "x" * 3_000_000
    for given in ({"terrace": long}, {"terrace": {long: 1}}, {"terrace": {"tenant": [long]}}, {"terrace": {"priority": long}}, [long]):
        reader._silent_until = 0.0
        for _ in range(100):
            assert reader.read(ReqContext(req_id=long, kv_transfer_params=given), long) is NO_HINTS
    assert reader.wrong == 500 and len(said) == 5 and max(map(len, said)) < 400
    assert "kv_transfer_params is" in said[-1]


def test_a_hint_counts_although_chunks_are_stored_after_the_end_of_their_request(engine: Engine) -> None:
    told(engine, keys(4), None)
    request = Request(engine, keys(4, 100), params={"terrace": {"session": "ended", "priority": 0}})
    output = engine.manager.prepare_store(request.chains[0], request.context)
    request.finish()
    assert engine.manager._metrics.counts.hints_ignored == 0
    engine.manager.complete_store(output.keys_to_store, request.context)
    assert not engine.manager._late_hints and not engine.manager._storing
    told(engine, keys(4, 200), None)
    assert cached(engine, keys(4)) == 4, "used less recently"
    assert cached(engine, keys(4, 100)) == 0


def test_chunks_of_a_higher_priority_and_pinned_ones_stay(engine: Engine) -> None:
    told(engine, keys(2), {"priority": 9, "priority_for": 60})
    told(engine, keys(2, 100), {"pin_for": 60})
    for other in range(200, 900, 100):
        told(engine, keys(3, other), None)
    assert cached(engine, keys(2)) == 2
    assert cached(engine, keys(2, 100)) == 2
    told(engine, keys(4, 900), {"pin_for": 60})
    assert engine.manager._metrics.counts.hints_ignored == 1, "half of the chunks may be pinned"


def test_chunks_of_a_request_that_says_so_are_not_stored(engine: Engine) -> None:
    told(engine, keys(4), {"store": False})
    assert cached(engine, keys(4)) == 0
    told(engine, keys(4), {"store": True})
    assert cached(engine, keys(4)) == 4


def test_a_tenant_keeps_no_more_than_its_quota() -> None:
    engine = Engine(chunks=8, tenants={"team": 3 * ROW + 1})
    told(engine, keys(6), {"tenant": "team"})
    told(engine, keys(2, 100), None)
    told(engine, keys(3, 200), {"tenant": "another"})
    assert cached(engine, keys(2, 100)) == 2
    assert engine.manager._cache.tenant_blocks(tenant_number("team")) == 3
    engine.close()
    with pytest.raises(ValueError, match="tenants.team is 3, must be bytes for at least one chunk"):
        Engine(tenants={"team": 3})


def test_a_hint_may_come_in_either_way() -> None:
    def context(**given: Any) -> ReqContext:
        return ReqContext(req_id="one", **given)

    assert hints_of(context()) is NO_HINTS
    assert hints_of(context(kv_transfer_params={"other": 1})) is NO_HINTS
    assert hints_of(context(kv_transfer_params={"terrace": {"session": "ended"}})) == Hints(ended=True)
    assert hints_of(context(kv_transfer_params={"terrace": {"returns_in": 2, "tenant": "a"}})) == Hints(
        returns_in=2.0, tenant=tenant_number("a")
    )
    kv_hints = pytest.importorskip("vllm.v1.kv_hints")
    action = kv_hints.KvHintAction("1", "terrace.session", "1", {"session": "ended"})
    other = kv_hints.KvHintAction("0", "kv.fetch", "1", {})
    assert hints_of(context(kv_hints=kv_hints.KvHintsEnvelope("1", "2", [other, action]))) == Hints(ended=True)
    assert hints_of(context(kv_hints=kv_hints.KvHintsEnvelope("1", "2", [other]))) is NO_HINTS


@pytest.mark.parametrize(
    ("hint", "right"),
    [
        ({}, "must be an object with some of session, returns_in"),
        ("ended", "must be an object"),
        (3, "must be an object"),
        ({"session": "begun"}, 'terrace.session is .begun., must be "ended"'),
        ({"returns_in": -1}, "terrace.returns_in is -1, must be seconds from 0 to 1000000000"),
        ({"returns_in": 1e300}, "must be seconds from 0 to 1000000000"),
        ({"returns_in": 10**400}, "must be seconds from 0 to 1000000000"),
        ({"returns_in": True}, "must be seconds"),
        ({"returns_in": float("nan")}, "must be seconds"),
        ({"session": "ended", "returns_in": 3}, "give one of the two"),
        ({"return": 3}, "terrace has 'return'; there are session"),
        ({"priority": 15}, "terrace.priority is 15, must be a whole number from 0 to 14"),
        ({"priority": True}, "must be a whole number"),
        ({"priority_for": 3}, "priority_for without a priority"),
        ({"pin_for": 3601}, "must be seconds from 0 to 3600"),
        ({"store": 0}, "must be true or false"),
        ({"tenant": ""}, "must be a name"),
    ],
)
def test_a_hint_without_a_meaning_names_what_would_have_one(hint: Any, right: str) -> None:
    with pytest.raises(WrongHint, match=right):
        hints_of(ReqContext(req_id="one", kv_transfer_params={"terrace": hint}))
