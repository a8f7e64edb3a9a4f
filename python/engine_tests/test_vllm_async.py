"""TerraceScheduler above vLLM's asynchronous scheduler, which vLLM does not use on CPUs: with a worker of the test's own, whose
memory tells which token of which group lies where. A request that reads another token than its own fails."""

from __future__ import annotations

import random
from collections import deque
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("vllm", reason="vLLM is not installed; tools/check --engines installs it")

import tiny_model  # noqa: E402
import torch  # noqa: E402
from vllm.config import CacheConfig, ModelConfig, SchedulerConfig, SpeculativeConfig, VllmConfig  # noqa: E402
from vllm.sampling_params import SamplingParams  # noqa: E402
from vllm.utils.hashing import sha256  # noqa: E402
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash  # noqa: E402
from vllm.v1.core.single_type_kv_cache_manager import register_all_kvcache_specs  # noqa: E402
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec, SlidingWindowSpec  # noqa: E402
from vllm.v1.outputs import ModelRunnerOutput  # noqa: E402
from vllm.v1.request import Request, RequestStatus  # noqa: E402
from vllm.v1.structured_output import StructuredOutputManager  # noqa: E402

from terrace_kv.vllm import TerraceScheduler  # noqa: E402

pytestmark = pytest.mark.gate

BLOCK, WINDOW = 16, 40
init_none_hash(sha256)


def next_token(sequence: list[int]) -> int:
    """The model."""
    return (sum(sequence[-3:]) * 31 + len(sequence) * 7) % 50 + 1


class Worker:
    """Carries out steps in their order. Drafts are right half of the time."""

    def __init__(self, windows: list[int], seed: int) -> None:
        self.windows, self.random = windows, random.Random(seed)
        self.memory: dict[tuple[int, int], tuple[int, int]] = {}
        self.tables: dict[str, list[list[int]]] = {}
        self.known: dict[str, list[int]] = {}
        self.done: dict[str, int] = {}

    def run(self, step: Any) -> ModelRunnerOutput:
        for new in step.scheduled_new_reqs:
            self.known[new.req_id] = list(new.prompt_token_ids)
            self.tables[new.req_id] = [list(ids) for ids in new.block_ids]
            self.done[new.req_id] = new.num_computed_tokens
        cached = step.scheduled_cached_reqs
        for name, ids, computed in zip(cached.req_ids, cached.new_block_ids, cached.num_computed_tokens):
            if name in cached.resumed_req_ids:
                self.known[name] = list(cached.all_token_ids[name])
                self.tables[name], self.done[name] = [list(each) for each in ids], computed
            elif ids is not None:
                for table, more in zip(self.tables[name], ids):
                    table += more
        names = list(step.num_scheduled_tokens)
        sampled = [
            self.compute(name, step.num_scheduled_tokens[name], step.scheduled_spec_decode_tokens.get(name)) for name in names
        ]
        return ModelRunnerOutput(names, {name: i for i, name in enumerate(names)}, sampled)

    def compute(self, name: str, count: int, placeholders: list[int] | None) -> list[int]:
        known, done = self.known[name], self.done[name]
        drafts = len(placeholders or ())
        sequence = known[: done + count - drafts]
        for _ in range(drafts):
            sequence.append(next_token(sequence) if self.random.random() < 0.5 else 0)
        for position in range(done, len(sequence)):
            for group, table in enumerate(self.tables[name]):
                assert table[position // BLOCK] != 0, (name, group, position)
                self.memory[table[position // BLOCK], position % BLOCK] = group, sequence[position]
        if done + count - drafts < len(known):
            self.read(name, sequence, done + count - 1)
            self.done[name] += count
            return []
        accepted: list[int] = []
        for position in range(len(known) - 1, len(sequence)):
            self.read(name, sequence, position)
            accepted.append(next_token(sequence[: position + 1]))
            if position + 1 < len(sequence) and sequence[position + 1] != accepted[-1]:
                break
        self.done[name] = len(known) + len(accepted) - 1
        known += accepted
        return accepted

    def read(self, name: str, sequence: list[int], position: int) -> None:
        """What the token at this position attends to is in the memory."""
        for group, (table, window) in enumerate(zip(self.tables[name], self.windows)):
            for before in range(max(0, position - window + 1) if window else 0, position + 1):
                assert self.memory[table[before // BLOCK], before % BLOCK] == (group, sequence[before]), (name, group, before)


def make_scheduler(model: Path, specs: list[Any], blocks: int, drafts: int, **options: Any) -> Any:
    speculation = SpeculativeConfig(model="ngram", num_speculative_tokens=drafts) if drafts else None
    config = VllmConfig(
        model_config=ModelConfig(str(model), skip_tokenizer_init=True, max_model_len=512),
        scheduler_config=SchedulerConfig(
            max_num_seqs=8,
            max_num_batched_tokens=64,
            max_model_len=512,
            is_encoder_decoder=False,
            watermark=0.0,
            **options,
        ),
        cache_config=CacheConfig(block_size=BLOCK, enable_prefix_caching=True),
        speculative_config=speculation,
    )
    config.scheduler_config.async_scheduling = True  # the platform of CPUs has switched it off
    config.cache_config.num_gpu_blocks = blocks
    register_all_kvcache_specs(config)
    groups = [KVCacheGroupSpec([f"layer.{i}"], each) for i, each in enumerate(specs)]
    scheduler = TerraceScheduler(
        vllm_config=config,
        kv_cache_config=KVCacheConfig(num_blocks=blocks, kv_cache_tensors=[], kv_cache_groups=groups),
        structured_output_manager=StructuredOutputManager(config),
        block_size=BLOCK,
        log_stats=True,
    )
    assert type(scheduler) is TerraceScheduler
    return scheduler


def a_request(name: str, prompt: list[int], most: int, **options: Any) -> Request:
    return Request(
        request_id=name,
        prompt_token_ids=prompt,
        sampling_params=SamplingParams(max_tokens=most, ignore_eos=True),
        pooling_params=None,
        block_hasher=get_request_block_hasher(BLOCK, sha256),
        **options,
    )


FULL = FullAttentionSpec(block_size=BLOCK, num_kv_heads=1, head_size=1, dtype=torch.float32)
SLIDING = SlidingWindowSpec(block_size=BLOCK, num_kv_heads=1, head_size=1, dtype=torch.float32, sliding_window=WINDOW)


@pytest.mark.parametrize("drafts", [0, 3])
@pytest.mark.parametrize("deferred", [False, True], ids=["", "frees-wait"])
@pytest.mark.parametrize("specs, windows", [([FULL], [0]), ([FULL, SLIDING], [0, WINDOW])], ids=["full", "two-groups"])
def test_each_token_is_read_where_it_was_written(
    tmp_path: Path, specs: list[Any], windows: list[int], deferred: bool, drafts: int
) -> None:
    """Steps are planned one ahead. Requests share prefixes, come in chunks, are preempted, aborted, and evict each other."""
    scheduler = make_scheduler(tiny_model.write(tmp_path / "model"), specs, 30 * len(specs), drafts)
    scheduler.defer_block_free = deferred  # as with a connector that writes out of the order of steps
    seed = random.Random(drafts)
    worker, pending = Worker(windows, 7), deque[Any]()
    requests: dict[str, Request] = {}
    ended = {"preempted": 0, "hits": 0, "new": 0, "resumed": 0}
    for turn in range(900):
        if turn < 700 and scheduler.get_num_unfinished_requests() < 8:
            prompt = [seed.randrange(3)] * (BLOCK * seed.randrange(1, 6)) + [
                seed.randrange(50) for _ in range(seed.randrange(1, 40))
            ]
            request = a_request(str(turn), prompt, seed.randrange(1, 90))
            requests[request.request_id] = request
            scheduler.add_request(request)
        if scheduler.running and seed.random() < 0.02:
            scheduler.finish_requests(seed.choice(scheduler.running).request_id, RequestStatus.FINISHED_ABORTED)
        if turn == 350:
            scheduler.reset_prefix_cache(reset_running_requests=not deferred)
        step = scheduler.schedule()
        for new in step.scheduled_new_reqs:
            ended["hits"] += new.num_computed_tokens
        ended["new"] += len(step.scheduled_new_reqs)
        ended["resumed"] += len(step.scheduled_cached_reqs.resumed_req_ids)
        if step.total_num_scheduled_tokens:
            pending.append((step, worker.run(step)))
        if len(pending) == 2 or (pending and not step.total_num_scheduled_tokens):
            scheduler.update_from_output(*pending.popleft())
    while pending:
        scheduler.update_from_output(*pending.popleft())
    ended["preempted"] = sum(request.num_preemptions for request in requests.values())
    assert ended["preempted"] > 0 and ended["hits"] > 500, ended
    assert scheduler.get_num_unfinished_requests() == 0 and len(requests) > 50
    for request in requests.values():
        sequence = list(request.prompt_token_ids)
        for token in request.output_token_ids:
            assert token == next_token(sequence)
            sequence.append(token)
    counts = scheduler.kv_cache_manager.coordinator.cache.statistics()
    assert (counts["requests"], counts["preempted"]) == (ended["new"], ended["resumed"]), "tries are counted apart"
    assert scheduler.kv_cache_manager.usage == 0.0 and scheduler.reset_prefix_cache()
    scheduler.shutdown()


def test_a_chunk_that_its_own_pass_takes_back(tmp_path: Path) -> None:
    """The fourth pass plans three blocks of the long prompt, and then preempts it for a block of the short one. Later it finds the
    ten blocks that are written."""
    scheduler = make_scheduler(
        tiny_model.write(tmp_path / "model"), [FULL], 15, 0, policy="priority", long_prefill_token_threshold=3 * BLOCK
    )
    worker, pending, hits = Worker([0], 7), deque[Any](), []
    long, short = a_request("long", list(range(13 * BLOCK + 8)), 2, priority=9), a_request("short", list(range(500, 515)), 5)
    for turn in range(30):
        if turn < 2:
            scheduler.add_request((long, short)[turn])
        step = scheduler.schedule()
        hits += step.scheduled_cached_reqs.num_computed_tokens if "long" in step.scheduled_cached_reqs.resumed_req_ids else []
        if step.total_num_scheduled_tokens:
            pending.append((step, worker.run(step)))
        if len(pending) == 2 or (pending and not step.total_num_scheduled_tokens):
            scheduler.update_from_output(*pending.popleft())
    assert long.num_preemptions == 1 and hits == [10 * BLOCK]
    assert scheduler.get_num_unfinished_requests() == 0
    scheduler.shutdown()
