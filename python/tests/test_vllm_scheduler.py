"""Terrace in the place of vLLM's KVCacheManager, with vLLM's own requests and configurations."""

from __future__ import annotations

import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from admin_endpoint import ask
from vllm_modules import IS_REAL

if not IS_REAL:
    pytest.skip("vLLM is not installed; tools/check --engines installs it", allow_module_level=True)

from vllm.distributed.kv_events import AllBlocksCleared, BlockRemoved, BlockStored  # noqa: E402
from vllm.v1.core.kv_cache_manager import KVCacheManager  # noqa: E402
from vllm.v1.core.kv_cache_utils import maybe_convert_block_hash  # noqa: E402
from vllm.v1.request import Request, RequestStatus  # noqa: E402
from test_vllm_errors import STATUSES, failing, is_refusal  # noqa: E402
from vllm_requests import BLOCK, a_request, full, own_manager, sliding, tokens  # noqa: E402

from terrace_kv import _interface, _report  # noqa: E402
from terrace_kv import cache as terrace_cache  # noqa: E402
from terrace_kv.vllm.gpu_manager import GpuManager  # noqa: E402


@pytest.fixture
def manager_of(request: pytest.FixtureRequest) -> Any:
    made: list[GpuManager] = []

    def make(blocks: int, *specs: Any, terrace: dict[str, Any] | None = None, **options: Any) -> GpuManager:
        made.append(GpuManager(own_manager(blocks, *specs, **options), terrace))
        return made[-1]

    yield make
    for each in made:
        each.close()


def admit(manager: KVCacheManager, request: Request, count: int | None = None, **options: Any) -> Any:
    """As the scheduler admits a request: what it finds, and blocks for `count` more tokens."""
    found, hit, _ = manager.get_computed_blocks(request)
    new = manager.allocate_slots(request, count or request.num_tokens - hit, hit, found, **options)
    if new is not None:
        request.status = RequestStatus.RUNNING
        request.num_computed_tokens = hit + (count or request.num_tokens - hit)
    return new


def published(hashes: list[bytes]) -> list[bytes | int]:
    """Hashes as events have them."""
    return [maybe_convert_block_hash(each) for each in hashes]


def finish(manager: KVCacheManager, request: Request) -> None:
    request.status = RequestStatus.FINISHED_STOPPED
    manager.free(request)


def ids(manager: GpuManager, request: Request, group: int = 0) -> list[int]:
    return manager.get_block_ids(request.request_id)[group]


def test_a_prefix_is_found_again(manager_of: Any) -> None:
    manager = manager_of(20)
    first = a_request("first", tokens(40))
    assert admit(manager, first).get_block_ids() == ([1, 2, 3],)
    second = a_request("second", tokens(40) + [1000] * 20)
    found, hit, _ = manager.get_computed_blocks(second)
    assert hit == 32 and [len(blocks) for blocks in found.blocks] == [2]
    assert admit(manager, second).get_block_ids() == ([4, 5],)
    assert ids(manager, second) == [1, 2, 4, 5]
    finish(manager, first)
    finish(manager, second)
    assert manager.usage == 0.0
    third = a_request("third", tokens(32))
    assert manager.get_computed_blocks(third)[1] == 16, "the last token is computed, for its logits"


def test_what_vllm_reads_of_a_block(manager_of: Any) -> None:
    manager = manager_of(20, full(), sliding(2 * BLOCK))
    request = a_request("a", tokens(100))
    admit(manager, request)
    request.num_computed_tokens = 100
    manager.remove_skipped_blocks("a", 100)
    whole, window = manager.get_blocks("a").blocks
    assert [block.block_hash is not None for block in whole] == [True] * 6 + [False]
    assert [block.is_null for block in window] == [True] * 4 + [False] * 3
    assert whole[1].block_hash == request.block_hashes[1] + (0).to_bytes(4, "big")
    assert manager.get_blocks("a").get_block_ids(group_ids=[1]) == (ids(manager, request, 1),)
    assert manager.empty_kv_cache_blocks.get_block_ids(allow_none=True) is None
    assert manager.get_block_ids("unknown") == ([], [])
    assert manager.get_block_ids_for_computed_tokens("a", 30)[0] == ids(manager, request)[:2]


def test_salt_adapter_and_media_are_in_the_names(manager_of: Any) -> None:
    manager = manager_of(40)
    admit(manager, a_request("plain", tokens(64)))
    admit(manager, a_request("salted", tokens(64), cache_salt="a tenant"))
    assert manager.get_computed_blocks(a_request("plain again", tokens(64)))[1] == 48
    assert manager.get_computed_blocks(a_request("same salt", tokens(64), cache_salt="a tenant"))[1] == 48
    assert manager.get_computed_blocks(a_request("other salt", tokens(64), cache_salt="another"))[1] == 0
    adapter = SimpleNamespace(lora_name="an adapter", lora_path="/adapter", adapter_id=1)
    assert manager.get_computed_blocks(a_request("adapted", tokens(64), lora_request=adapter))[1] == 0


def test_short_hashes_are_names(manager_of: Any) -> None:
    manager = manager_of(20)
    request = a_request("a", tokens(64))
    request.block_hashes = [each[:16] for each in request.block_hashes]
    admit(manager, request)
    again = a_request("b", tokens(64))
    again.block_hashes = [each[:16] for each in again.block_hashes]
    assert manager.get_computed_blocks(again)[1] == 48


def test_windows_keep_what_a_later_hit_needs(manager_of: Any) -> None:
    """The places of hits: before the last token of the same prompt, its end, and where two prompts go apart."""
    manager = manager_of(400, full(), sliding(4 * BLOCK))

    def hits(prompt: list[int]) -> int:
        request = a_request("a", prompt)
        hit = int(manager.get_computed_blocks(request)[1])
        admit(manager, request)
        finish(manager, request)
        return hit

    prompt = tokens(20 * BLOCK)
    assert hits(prompt) == 0
    assert manager.coordinator.cache.statistics()["device_free"] == 399 - 20 - 5, "of the window, five blocks stay"
    assert hits(prompt) == 19 * BLOCK
    assert hits(prompt + tokens(100, 1000)) == 20 * BLOCK
    assert hits(tokens(10 * BLOCK) + tokens(100, 2000)) == 0, "no window was kept there"
    assert hits(tokens(10 * BLOCK) + tokens(100, 3000)) == 10 * BLOCK, "now it is"


def test_with_windows_a_loop_over_more_than_fits_has_hits(manager_of: Any) -> None:
    """The policy learns which prompts come again; by last use, each goes before it comes."""
    manager = manager_of(161, full(), sliding(4 * BLOCK))
    hits = []
    for turn in range(600):
        request = a_request("a", tokens(10 * BLOCK, turn % 20 * 1000))
        hits.append(manager.get_computed_blocks(request)[1])
        admit(manager, request)
        finish(manager, request)
    assert sum(hits[300:]) > 0.3 * 300 * 10 * BLOCK


@pytest.mark.parametrize("use_eagle", [False, True], ids=["", "draft-model"])
@pytest.mark.parametrize("specs", [(full(),), (full(), sliding(40)), (sliding(40),), (full(2 * BLOCK), sliding(70))])
def test_no_fewer_hits_than_vllms_manager(manager_of: Any, specs: tuple[Any, ...], use_eagle: bool) -> None:
    """Of the same prompt, of its continuation, and of a prompt that goes apart, in memory that is large enough."""
    for length in range(1, 130, 3):
        theirs, ours = own_manager(200, *specs, use_eagle=use_eagle), manager_of(200, *specs, use_eagle=use_eagle)
        found: list[list[int]] = [[], []]
        prompts = [tokens(length), tokens(length), tokens(length + 40), tokens(max(1, length - 30)) + tokens(60, 500)]
        for prompt in [*prompts, *prompts]:
            for hits, manager in zip(found, (theirs, ours), strict=True):
                request = a_request("a", prompt)
                hits.append(manager.get_computed_blocks(request)[1])
                assert admit(manager, request) is not None
                finish(manager, request)
        assert all(mine >= other for mine, other in zip(found[1], found[0], strict=True)), (length, found)
        assert len(specs) > 1 or specs[0] != full() or found[1] == found[0], "with full attention, the same"


def test_a_session_of_streamed_input_changes_names(manager_of: Any) -> None:
    """vLLM drops the last token that it has sampled, and the hash of its block, before the next input."""
    manager = manager_of(20)
    session = a_request("session", tokens(64))
    admit(manager, session, 48)
    other = a_request("other", tokens(48) + tokens(33, 500))
    session.block_hashes[3:] = other.block_hashes[3:4]
    manager.allocate_slots(session, 16)
    assert manager.get_computed_blocks(other)[1] == 64
    assert manager.get_computed_blocks(a_request("as before", tokens(65)))[1] == 48


def test_without_room_nothing_changes(manager_of: Any) -> None:
    manager = manager_of(6)
    first = a_request("first", tokens(48))
    admit(manager, first)
    assert admit(manager, a_request("second", tokens(48, 500))) is None
    assert manager.block_pool.get_num_free_blocks() == 2
    assert admit(manager, a_request("larger than the pool", tokens(400, 500))) is None
    assert manager.get_block_ids("second") == ([],)
    first.append_output_token_ids(tokens(40))
    assert manager.allocate_slots(first, 40) is None, "a running request gets no room: the scheduler preempts one"
    assert len(ids(manager, first)) == 3
    finish(manager, first)
    assert admit(manager, a_request("third", tokens(80, 900))) is not None, "cached blocks are evicted for it"
    assert manager.get_computed_blocks(a_request("first again", tokens(48)))[1] == 0


def test_a_chunk_is_admitted_only_if_the_whole_prompt_fits(manager_of: Any) -> None:
    manager = manager_of(9)
    admit(manager, a_request("first", tokens(48)))
    assert admit(manager, a_request("a", tokens(96, 500)), 16, full_sequence_must_fit=True) is None
    assert admit(manager, a_request("b", tokens(80, 500)), 16, full_sequence_must_fit=True) is not None


def test_held_hits_are_no_room(manager_of: Any) -> None:
    """Of 8 blocks, 4 are cached and all 8 are free. A prompt that finds the 4 has room for 4 more, and not for 8."""
    manager = manager_of(9)
    first = a_request("first", tokens(64))
    admit(manager, first)
    finish(manager, first)
    assert manager.block_pool.get_num_free_blocks() == 8
    assert admit(manager, a_request("long", tokens(64) + tokens(80, 500))) is None
    assert manager.get_computed_blocks(a_request("first again", tokens(65)))[1] == 64, "nothing was evicted for it"
    longer = a_request("longer", tokens(64) + tokens(80, 500))
    assert admit(manager, longer, 16, full_sequence_must_fit=True) is None, "the first chunk has room, and the whole has not"
    assert admit(manager, a_request("fits", tokens(64) + tokens(64, 500))) is not None


def test_watermark_and_reserved_blocks(manager_of: Any) -> None:
    manager = manager_of(10, watermark=0.2)  # 2 blocks
    assert admit(manager, a_request("a", tokens(8 * BLOCK))) is None
    assert admit(manager, a_request("a", tokens(8 * BLOCK)), has_scheduled_reqs=False) is not None
    manager = manager_of(10)
    assert admit(manager, a_request("b", tokens(8 * BLOCK)), reserved_blocks=2) is None
    assert admit(manager, a_request("b", tokens(8 * BLOCK)), reserved_blocks=1) is not None


def test_tokens_that_may_be_rejected_are_not_shared(manager_of: Any) -> None:
    manager = manager_of(20)
    request = a_request("a", tokens(30))
    admit(manager, request)
    manager.allocate_slots(request, 4, num_lookahead_tokens=20)  # a token and three drafts, and slots for more
    assert len(ids(manager, request)) == 4
    assert manager.estimate_cached_tokens(request) == 16
    request.append_output_token_ids([7, 8])
    manager.cache_blocks(request, 32)
    assert manager.get_computed_blocks(a_request("b", [*tokens(30), 7, 8, 9]))[1] == 32


def test_the_last_accepted_drafts_are_shared_at_the_end(manager_of: Any) -> None:
    manager = manager_of(20)
    request = a_request("a", tokens(30))
    admit(manager, request)
    manager.allocate_slots(request, 4)  # a token and three drafts
    request.append_output_token_ids([7, 8, 9])
    request.num_computed_tokens = 32  # two drafts were right; the last token is not computed
    finish(manager, request)
    assert manager.get_computed_blocks(a_request("b", [*tokens(30), 7, 8, 9]))[1] == 32


@pytest.mark.parametrize("specs", [(full(),), (full(), sliding(2 * BLOCK))], ids=["full", "full-and-window"])
def test_what_a_pass_takes_back_is_no_hit(manager_of: Any, specs: tuple[Any, ...]) -> None:
    """With priorities, vLLM may preempt a request in the pass that has planned its chunk."""
    manager = manager_of(40, *specs, enable_kv_cache_events=True)
    request, other = a_request("a", tokens(96)), a_request("other", tokens(96))
    admit(manager, request, 32)
    manager.new_step_starts()
    assert manager.allocate_slots(request, 64) is not None
    request.status = RequestStatus.PREEMPTED
    manager.free(request)
    assert manager.get_computed_blocks(other)[1] == 32
    stored = [name for event in manager.take_events() for name in event.block_hashes]
    assert set(stored) <= set(published(other.block_hashes[:2]))


def test_what_a_pass_has_planned_is_a_hit_of_the_same_pass(manager_of: Any) -> None:
    manager = manager_of(40)
    request = a_request("a", tokens(96))
    admit(manager, request, 32)
    assert manager.allocate_slots(request, 64) is not None
    assert manager.get_computed_blocks(a_request("b", tokens(97)))[1] == 96


def test_what_a_connector_loads_in_a_step_is_shared_after_it(manager_of: Any) -> None:
    manager = manager_of(40)
    request, other = a_request("a", tokens(100)), a_request("b", tokens(100))
    assert manager.allocate_slots(request, 36, num_external_computed_tokens=64) is not None
    assert manager.get_computed_blocks(other)[1] == 0, "the load may fail"
    request.status, request.num_computed_tokens = RequestStatus.RUNNING, 32  # it has failed after two blocks
    assert manager.allocate_slots(request, 68) is not None
    assert manager.get_computed_blocks(other)[1] == 32
    request.num_computed_tokens = 100
    finish(manager, request)
    assert manager.get_computed_blocks(other)[1] == 96


def test_tokens_that_are_computed_again_are_not_shared(manager_of: Any) -> None:
    """Modules that predict several tokens compute the last ones of a chunk again with the next."""
    manager = manager_of(20, num_prefill_lookahead=3)
    request = a_request("a", tokens(66))
    admit(manager, request, 64)
    assert manager.get_computed_blocks(a_request("b", tokens(66)))[1] == 48
    manager.allocate_slots(request, 2)
    assert manager.get_computed_blocks(a_request("b", tokens(66)))[1] == 64


def test_a_draft_model_computes_the_last_block_again(manager_of: Any) -> None:
    manager = manager_of(20, use_eagle=True)
    admit(manager, a_request("a", tokens(64)))
    assert manager.get_computed_blocks(a_request("b", tokens(80)))[1] == 48
    assert manager.get_computed_blocks(a_request("c", tokens(16)))[1] == 0


def test_external_blocks(manager_of: Any) -> None:
    """As the scheduler calls for an asynchronous load of the offloading connector."""
    manager = manager_of(20)
    request = a_request("a", tokens(100))
    assert manager.allocate_slots(request, 0, num_external_computed_tokens=64, delay_cache_blocks=True).get_block_ids() == (
        [1, 2, 3, 4],
    )
    assert all(block.block_hash is None for block in manager.get_blocks("a").blocks[0])
    assert manager.get_computed_blocks(a_request("b", tokens(100)))[1] == 0, "the load has not ended"
    request.num_computed_tokens = 64
    manager.cache_blocks(request, 64)
    assert manager.get_computed_blocks(a_request("b", tokens(100)))[1] == 64
    assert manager.allocate_slots(request, 36, full_sequence_must_fit=True).get_block_ids() == ([5, 6, 7],)


def test_a_load_that_has_not_ended_shares_nothing(manager_of: Any) -> None:
    manager = manager_of(40, full(), sliding(2 * BLOCK))
    request = a_request("a", tokens(100))
    manager.allocate_slots(request, 0, num_external_computed_tokens=96, delay_cache_blocks=True)
    request.num_computed_tokens = 96
    finish(manager, request)  # it is aborted while the load is under way
    assert manager.get_computed_blocks(a_request("b", tokens(100)))[1] == 0


def test_external_blocks_of_a_window(manager_of: Any) -> None:
    """The window needs its last blocks alone, although the prompt is larger than what is free."""
    manager = manager_of(16, sliding(2 * BLOCK))
    request = a_request("a", tokens(20 * BLOCK))
    assert manager.allocate_slots(request, 0, num_external_computed_tokens=19 * BLOCK, delay_cache_blocks=True) is not None
    held = ids(manager, request)
    assert held[:17] == [0] * 17 and all(held[17:]) and len(held) == 19
    assert manager.block_pool.get_num_free_blocks() == 13


def test_blocks_of_a_step_under_way_are_freed_later(manager_of: Any) -> None:
    manager = manager_of(10)
    request = a_request("a", tokens(64))
    admit(manager, request)
    held = manager.pop_blocks_for_free(request)
    assert held and manager.get_block_ids("a") == ([],)
    assert manager.block_pool.get_num_free_blocks() == 5
    assert not manager.reset_prefix_cache()
    request.num_computed_tokens = 0
    assert admit(manager, request) is not None, "it is admitted again meanwhile"
    manager.block_pool.free_blocks(reversed(held))
    finish(manager, request)
    assert manager.block_pool.get_num_free_blocks() == 9
    assert manager.pop_blocks_for_free(request) == []


def test_reset(manager_of: Any) -> None:
    manager = manager_of(10)
    request = a_request("a", tokens(64))
    admit(manager, request)
    assert not manager.reset_prefix_cache(), "a request is alive"
    finish(manager, request)
    assert manager.reset_prefix_cache() and manager.make_prefix_cache_stats().reset
    assert manager.get_computed_blocks(a_request("b", tokens(64)))[1] == 0


def test_requests_wait_while_an_operator_has_cleared_the_cache(manager_of: Any) -> None:
    manager = manager_of(20)
    admit(manager, a_request("a", tokens(40)))
    manager.free(manager.coordinator.leases["a"].request)
    manager.coordinator.cache.reset(release_host=True)
    late = a_request("b", tokens(40))
    found, hit, _ = manager.get_computed_blocks(late)
    assert hit == 0
    assert manager.allocate_slots(late, 40, hit, found) is None
    coordinator = manager.coordinator
    assert coordinator._giving.failures == 0, "this is usual"
    manager.coordinator.cache.resume()
    assert manager.allocate_slots(late, 40, hit, found) is not None


def test_wrong_blocks_are_not_found(manager_of: Any) -> None:
    manager = manager_of(20)
    holder, other = a_request("a", tokens(64)), a_request("other", tokens(64, 500))
    admit(manager, holder)
    admit(manager, other)
    finish(manager, other)
    manager.evict_blocks({ids(manager, holder)[1]})
    assert manager.get_computed_blocks(a_request("b", tokens(64)))[1] == 0
    finish(manager, holder)
    assert manager.get_computed_blocks(a_request("b", tokens(64)))[1] == 16, "the block before it is right"
    assert manager.get_computed_blocks(a_request("c", tokens(64, 500)))[1] == 48


def test_events(manager_of: Any) -> None:
    manager = manager_of(6, enable_kv_cache_events=True)
    first = a_request("first", tokens(32))
    admit(manager, first)
    second = a_request("second", tokens(32) + tokens(16, 500))
    admit(manager, second)
    manager.coordinator.share_planned()
    stored = manager.take_events()
    assert [type(event) for event in stored] == [BlockStored, BlockStored]
    assert [event.block_hashes for event in stored] == [published(first.block_hashes), published(second.block_hashes[2:])]
    assert [event.parent_block_hash for event in stored] == [None, *published(first.block_hashes[1:])]
    assert [event.token_ids for event in stored] == [tokens(32), tokens(16, 500)]
    assert {(event.medium, event.block_size, event.group_idx, event.kv_cache_spec_kind) for event in stored} == {
        ("GPU", BLOCK, 0, "full_attention")
    }
    finish(manager, first)
    finish(manager, second)
    third = a_request("third", tokens(64, 900))
    admit(manager, third)
    manager.coordinator.share_planned()
    events = manager.take_events()
    removed = [name for event in events if isinstance(event, BlockRemoved) for name in event.block_hashes]
    assert removed == published([second.block_hashes[2], first.block_hashes[1]])
    assert [event.block_hashes for event in events if isinstance(event, BlockStored)] == [published(third.block_hashes)]
    finish(manager, third)
    manager.reset_prefix_cache()
    assert [type(event) for event in manager.take_events()] == [AllBlocksCleared]


def test_a_request_may_want_events_of_its_hits(manager_of: Any) -> None:
    manager = manager_of(10, enable_kv_cache_events=True)
    request = a_request("a", tokens(40))
    admit(manager, request)
    manager.coordinator.share_planned()
    manager.take_events()
    again = a_request("b", tokens(40))
    again.kv_cache_report_mode = "full"
    manager.get_computed_blocks(again)
    (event,) = manager.take_events()
    assert event.block_hashes == published(request.block_hashes) and event.token_ids == tokens(32)


CACHE_CALLS = ["match", "acquire", "device_room", "poll", "pause_idle_service", "changes", "evict", "reset"]
REQUEST_CALLS = ["extend", "commit", "advance", "release"]


@pytest.mark.parametrize("call", [*CACHE_CALLS, *REQUEST_CALLS])
def test_an_error_of_the_cache_is_none_of_vllm(manager_of: Any, call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without room, vLLM waits."""
    monkeypatch.setattr(_report, "RAISE_MISUSE", False)
    for status in STATUSES:
        manager = manager_of(40, full(), sliding(2 * BLOCK), enable_kv_cache_events=True)
        held = a_request("held", tokens(4 * BLOCK + 8))
        admit(manager, held, 8)
        with failing(manager.coordinator.cache if call in CACHE_CALLS else terrace_cache.Request, call, status) as made:
            manager.new_step_starts()
            manager.allocate_slots(held, 4 * BLOCK)
            held.num_computed_tokens = held.num_tokens
            manager.coordinator.share_planned()
            other = a_request("other", tokens(5 * BLOCK, 500))
            if admit(manager, other) is not None:
                finish(manager, other)
            manager.evict_blocks({1})
            manager.take_events()
            manager.reset_prefix_cache()
            finish(manager, held)
        assert made, "the call was not made"
        coordinator = manager.coordinator
        failures = sum(each.failures for each in (coordinator._finding, coordinator._giving, coordinator._sharing))
        usual = is_refusal(status) or status in (_interface.NEVER_FITS, _interface.PAUSED)
        assert failures > 0 or (usual and call in ("acquire", "extend", "reset"))
        if call != "release":  # its blocks are lost
            assert manager.reset_prefix_cache()
        for name in "a", "b":
            request = a_request(name, tokens(6 * BLOCK, 900))
            hit = manager.get_computed_blocks(request)[1]
            assert admit(manager, request) is not None, "it works again"
            finish(manager, request)
        assert hit == 5 * BLOCK


def test_an_idle_engine_is_operated(manager_of: Any, tmp_path: Path) -> None:
    """vLLM makes no call after the last answer. Within a pass, hits stay hits."""
    socket = tmp_path / "s"
    admin = {"listen": f"unix:{socket}", "interval": "10ms", "command-deadline": "300ms"}
    manager = manager_of(20, terrace={"admin": admin})
    request = a_request("a", tokens(64))
    manager.new_step_starts()
    admit(manager, request)
    assert ask(socket, "POST", "/v1/clear")[0] == 503
    manager.coordinator.pass_ends()
    finish(manager, request)
    while ask(socket, "GET", "/v1/status")[1]["work"]["leases"] > 0:
        pass
    assert ask(socket, "POST", "/v1/record", {"time": "10ms"})[0] == 202
    assert manager.get_computed_blocks(a_request("b", tokens(64)))[1] == 48
    assert ask(socket, "POST", "/v1/clear")[0] in (200, 202)
    assert manager.get_computed_blocks(a_request("b", tokens(64)))[1] == 0


def test_tries_of_a_waiting_request_are_no_requests(manager_of: Any) -> None:
    """Its 5 hits, which nobody holds, are in the room that it needs for the 7 blocks after them."""
    manager = manager_of(21)
    first, running = a_request("first", tokens(5 * BLOCK)), a_request("running", tokens(12 * BLOCK, 1000))
    admit(manager, first)
    finish(manager, first)
    admit(manager, running)
    before = manager.coordinator.cache.statistics()
    waiting = a_request("waiting", tokens(12 * BLOCK))
    for _ in range(10):
        assert manager.get_computed_blocks(waiting)[1] == 5 * BLOCK and admit(manager, waiting) is None
    tried = manager.coordinator.cache.statistics()
    names = "requests", "asked", "found_device", "missed", "preempted"
    assert [tried[name] for name in names] == [before[name] for name in names]
    finish(manager, running)
    assert admit(manager, waiting) is not None
    admitted = manager.coordinator.cache.statistics()
    assert [admitted[name] - before[name] for name in names] == [1, 12 * BLOCK, 5 * BLOCK, 7 * BLOCK, 0]


def test_statistics(manager_of: Any) -> None:
    manager = manager_of(10)
    request = a_request("a", tokens(40))
    admit(manager, request)
    manager.record_prefix_cache_stats(request, 32)
    counts = manager.make_prefix_cache_stats()
    assert (counts.requests, counts.queries, counts.hits) == (1, 40, 32)
    assert manager.usage == pytest.approx(3 / 9)


def test_caching_can_be_off(manager_of: Any) -> None:
    manager = manager_of(10, enable_caching=False)
    request = a_request("a", tokens(40))
    assert admit(manager, request).get_block_ids() == ([1, 2, 3],)
    finish(manager, request)
    assert manager.get_computed_blocks(a_request("b", tokens(40)))[1] == 0
    assert manager.usage == 0.0


ENDED = {"session": "ended"}


@pytest.mark.parametrize("hint, finished, kept", [(ENDED, True, "other"), ({}, True, "first"), (ENDED, False, "first")])
def test_a_session_that_has_ended_goes_first(manager_of: Any, hint: dict[str, Any], finished: bool, kept: str) -> None:
    """`first` was used last, so it stays, unless its session has ended. A request that is preempted has not ended."""
    manager = manager_of(9, terrace={"policy": "adaptive"})
    for name, start in ("other", 500), ("first", 0):
        extra = {"kv_transfer_params": {"terrace": hint}} if hint and name == "first" else None
        request = a_request(name, tokens(64, start), extra=extra)
        admit(manager, request)
        request.status = RequestStatus.FINISHED_STOPPED if finished or name == "other" else RequestStatus.PREEMPTED
        manager.free(request)
    admit(manager, a_request("new", tokens(64, 900)))
    found = {
        name: manager.get_computed_blocks(a_request("again", tokens(65, start)))[1]
        for name, start in (("other", 500), ("first", 0))
    }
    assert max(found, key=lambda name: found[name]) == kept


class Gpu:
    """The memory of the workers: of each slot, the hash of what was written. It follows a manager, as a scheduler drives it."""

    def __init__(self, manager: GpuManager, seed: int) -> None:
        self.manager, self.random = manager, random.Random(seed)
        self.memory: dict[int, tuple[int, bytes]] = {}
        self.running: list[Request] = []
        self.made = self.hits = self.preempted = 0

    def check_hits(self, request: Request, hit: int) -> None:
        """What a request found is in its blocks, where its next tokens read them."""
        for number, group in enumerate(self.manager.coordinator.groups):
            slots = ids(self.manager, request, number)
            for block in range(group.skipped(hit), hit // group.block_size):
                assert self.memory[slots[block]] == (number, self.name(request, group, block)), (request.request_id, block)

    def name(self, request: Request, group: Any, block: int) -> bytes:
        hashes = (block + 1) * group.block_size // self.manager.block_pool.hash_block_size
        return request.block_hashes[hashes - 1]

    def write(self, request: Request, begin: int, end: int) -> None:
        """The worker computes tokens, whose blocks must be the request's own."""
        for number, group in enumerate(self.manager.coordinator.groups):
            slots = ids(self.manager, request, number)
            for block in range(begin // group.block_size, -(-end // group.block_size)):
                assert slots[block] != 0
                full = (block + 1) * group.block_size <= min(end, request.num_tokens)
                self.memory[slots[block]] = (number, self.name(request, group, block) if full else b"")

    def admit(self) -> None:
        size = self.random.randrange(1, 12)
        prompt = [self.random.randrange(2)] * (self.random.randrange(1, 6) * BLOCK) + tokens(
            size * 7, self.random.randrange(4) * 100
        )
        request = a_request(str(self.made), prompt, self.manager.block_pool.hash_block_size)
        self.made += 1
        found, hit, _ = self.manager.get_computed_blocks(request)
        count = self.random.randrange(1, request.num_tokens - hit + 1)
        if self.manager.allocate_slots(request, count, hit, found, full_sequence_must_fit=True) is None:
            return
        self.check_hits(request, hit)
        self.hits += hit
        self.write(request, hit, hit + count)
        request.status = RequestStatus.RUNNING
        request.num_computed_tokens = hit + count
        self.running.append(request)

    def step(self) -> None:
        for request in list(self.running):
            if request not in self.running:
                continue
            if request.num_computed_tokens == request.num_tokens:
                request.append_output_token_ids(self.random.randrange(3))
            count = self.random.randrange(1, request.num_tokens - request.num_computed_tokens + 1)
            while self.manager.allocate_slots(request, count, num_lookahead_tokens=self.random.randrange(20)) is None:
                victim = self.running.pop()
                self.preempted += 1
                victim.status = RequestStatus.PREEMPTED
                self.manager.free(victim)
                if victim is request:
                    break
            if request not in self.running:
                continue
            self.write(request, request.num_computed_tokens, request.num_computed_tokens + count)
            request.num_computed_tokens += count
            self.manager.cache_blocks(request, request.num_computed_tokens)
            if self.random.random() < 0.05:
                self.running.remove(request)
                finish(self.manager, request)

    def check_owners(self) -> None:
        """A slot is of one request, unless several have found its content."""
        owners: dict[int, bytes] = {}
        for request in self.running:
            for number, group in enumerate(self.manager.coordinator.groups):
                for block, slot in enumerate(ids(self.manager, request, number)):
                    full = (block + 1) * group.block_size <= request.num_computed_tokens
                    name = b"%d" % number + (self.name(request, group, block) if full else request.request_id.encode())
                    assert slot == 0 or owners.setdefault(slot, name) == name


@pytest.mark.parametrize(
    "specs, hash_block",
    [
        ((full(),), BLOCK),
        ((full(), sliding(3 * BLOCK)), BLOCK),
        ((sliding(40),), BLOCK),
        ((full(2 * BLOCK), sliding(50), full()), BLOCK),
    ],
    ids=["full", "full-and-window", "window", "sizes"],
)
@pytest.mark.parametrize("seed", range(3))
def test_every_hit_has_the_right_bytes(manager_of: Any, specs: tuple[Any, ...], hash_block: int, seed: int) -> None:
    gpu = Gpu(manager_of(60 * len(specs), *specs, hash_block=hash_block), seed)
    for _ in range(300):
        gpu.manager.new_step_starts()
        if len(gpu.running) < 8:
            gpu.admit()
        gpu.step()
        gpu.check_owners()
    assert gpu.hits > 500 and gpu.made > 50
    for request in gpu.running:
        finish(gpu.manager, request)
    assert gpu.manager.usage == 0.0 and gpu.manager.reset_prefix_cache()
