"""A real vLLM engine on the CPU, served from Terrace. Each run is a process of its own (engine_run.py).

A test that says that an engine was served from Terrace asserts three things: the counters of our own store, tokens and
log-probabilities equal to those of an engine without Terrace, and a control in which the loaded bytes are zeros and the output
differs.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("vllm", reason="vLLM is not installed; tools/check --engines installs it")

import tiny_model  # noqa: E402
from router import free_port  # noqa: E402

HERE = Path(__file__).parent
CHUNK = 32  # tokens
PROMPT = [(i * 7) % 500 + 3 for i in range(200)]
OTHERS = [[(i * step) % 500 + 3 for i in range(180)] for step in (11, 13, 17, 19, 23, 29)]


@dataclass
class Run:
    """What a process of the engine has done."""

    outputs: list[list[dict[str, Any]]]
    statistics: dict[str, int] | None
    preempted: int
    metrics: dict[str, float]
    calls: list[tuple[str, dict[str, list[int]]]]
    """What vLLM has asked the manager to store and to load: by group of layers, the chunks' numbers in their request."""
    chained: list[int] | None
    """The groups of layers whose chunks Terrace's manager keeps in order, or None in the tier, which keeps each alone."""
    scheduler: str = ""
    gpu: dict[str, int] | None = None
    """Counts of Terrace's cache of GPU memory, with TerraceScheduler."""

    @property
    def read_chunks(self) -> int:
        """Chunks that came from Terrace's files."""
        counts = self.statistics or {}
        return counts["hits"] if "hits" in counts else counts["loaded_storage"]

    @property
    def read_bytes(self) -> int:
        counts = self.statistics or {}
        return counts["read_bytes"] if "hits" in counts else counts["storage_read_bytes"]

    @property
    def written_bytes(self) -> int:
        counts = self.statistics or {}
        return counts["written_bytes"] if "hits" in counts else counts["storage_written_bytes"]

    @property
    def chunk_bytes(self) -> int:
        """Of a run that has stored the six chunks of PROMPT."""
        return self.written_bytes // 6

    @property
    def cached(self) -> list[list[int]]:
        return [[each["cached"] for each in step] for step in self.outputs]

    def same_as(self, other: Run) -> bool:
        """Equal tokens and log-probabilities."""
        return answers(self) == answers(other)


def answers(run: Run) -> list[list[tuple[list[int], list[float]]]]:
    return [[(each["tokens"], each["logprobs"]) for each in step] for step in run.outputs]


def tier(path: Path, *, host_bytes: int = 8 << 20, **options: Any) -> dict[str, Any]:
    """vLLM's own tiering, with Terrace below."""
    return {
        "spec_name": "CpuTieringSpec",
        "spec_module_path": "cpu_worker",
        "cpu_bytes_to_use": host_bytes,
        "secondary_tiers": [{"type": "terrace", "path": str(path), "capacity": "64MiB", **options}],
    }


def spec(path: Path, *, host_bytes: int = 8 << 20, **options: Any) -> dict[str, Any]:
    """Terrace's manager over vLLM's region."""
    return {
        "spec_name": "CpuTerraceSpec",
        "spec_module_path": "cpu_worker",
        "cpu_bytes_to_use": host_bytes,
        "terrace": {"path": str(path), "capacity": "64MiB", **options},
    }


@pytest.fixture(params=[tier, spec])
def door(request: pytest.FixtureRequest) -> Any:
    """How Terrace is put under vLLM."""
    return request.param


def run(
    model: Path,
    extra: dict[str, Any] | None,
    steps: list[dict[str, Any]],
    *,
    engine: dict[str, Any] | None = None,
    killed: bool = False,
    **environment: str,
) -> Run:
    order = {"model": str(model), "extra": extra, "steps": steps, "engine": engine or {}}
    ended = subprocess.run(
        [sys.executable, str(HERE / "engine_run.py"), json.dumps(order)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")]), **environment},
        capture_output=True,
        text=True,
        timeout=300,
    )
    found = re.search(r"^RESULT (.*)$", ended.stdout, re.MULTILINE)
    assert found and ended.returncode == (-9 if killed else 0), ended.stderr[-4000:]
    return Run(**json.loads(found[1]))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model.write(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def windowed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose last layer attends to two chunks: a second group of layers."""
    return tiny_model.write(tmp_path_factory.mktemp("windowed"), window=2 * CHUNK)


@pytest.fixture(scope="module")
def plain(model: Path) -> Any:
    """The outputs of an engine without Terrace, by steps."""

    @cache
    def outputs(steps: str) -> Run:
        return run(model, None, json.loads(steps))

    return lambda steps: outputs(json.dumps(steps))


ASK: list[dict[str, Any]] = [{"prompts": [PROMPT]}]
STORE: list[dict[str, Any]] = [*ASK, {"settle": True}]


def test_an_operator_clears_the_cache_until_it_is_resumed(model: Path, tmp_path: Path, plain: Any) -> None:
    """Meanwhile prompts are computed, and nothing is stored."""
    socket = str(tmp_path / "s")
    again: list[dict[str, Any]] = [{"reset": True}, *ASK]
    steps = [
        *STORE,
        {"operator": [socket, "/v1/clear", {"wait": True}]},
        *again,
        {"settle": True},
        {"operator": [socket, "/v1/resume", {}]},
        *again,
        {"settle": True},
        *again,
    ]
    served = run(model, spec(tmp_path / "kv", config={"admin": {"listen": f"unix:{socket}", "interval": "10ms"}}), steps)
    assert served.cached == [[0], [0], [0], [192]]
    assert served.same_as(plain([*ASK, *again, *again, *again]))


def test_an_operator_pauses_transfers(model: Path, tmp_path: Path, plain: Any) -> None:
    """Meanwhile a prompt whose chunks are on disk is computed, and does not wait."""
    socket = str(tmp_path / "s")
    given = {"config": {"admin": {"listen": f"unix:{socket}", "interval": "10ms"}}}
    run(model, spec(tmp_path / "kv", **given), STORE)
    steps = [{"operator": [socket, "/v1/pause", {}]}, *ASK, {"operator": [socket, "/v1/unpause", {}]}, {"reset": True}, *ASK]
    served = run(model, spec(tmp_path / "kv", **given), steps)
    assert served.cached == [[0], [192]]
    assert served.same_as(plain([*ASK, {"reset": True}, *ASK]))


@pytest.mark.gate
def test_a_restart_is_warm(model: Path, tmp_path: Path, plain: Any, door: Any) -> None:
    first = run(model, door(tmp_path), STORE)
    assert first.cached == [[0]] and first.same_as(plain(ASK))
    second = run(model, door(tmp_path), ASK)
    assert second.cached == [[192]] and second.same_as(plain(ASK))
    assert second.read_chunks == 192 // CHUNK
    assert second.read_bytes == 192 // CHUNK * first.chunk_bytes
    control = run(model, door(tmp_path), ASK, ZERO_LOADS="1")
    assert control.cached == [[192]] and not control.same_as(plain(ASK))


@pytest.fixture
def redis(tmp_path: Path) -> Any:
    """A Redis server that keeps everything in memory."""
    server = shutil.which("redis-server") or shutil.which("redis-check-rdb")  # the same program under two names
    if server is None:
        pytest.skip("no redis-server (packages redis-server, redis-tools)")
    port = free_port()
    command = ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", ""]
    with subprocess.Popen(command, executable=server, cwd=tmp_path, stdout=subprocess.DEVNULL) as running:
        for _ in range(200):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.05)
        yield f"redis://127.0.0.1:{port}"
        running.terminate()


def test_two_engines_share_a_redis(model: Path, tmp_path: Path, plain: Any, redis: str, door: Any) -> None:
    """Two machines: each engine has a folder of its own, and both have the same Redis."""
    shared: dict[str, Any] = {"shared": {"url": redis, "write-policy": "write-through", "probe-deadline": "2s"}}
    if door is tier:
        shared["shared_probe_timeout"] = 2.0
    first = run(model, door(tmp_path / "first", **shared), STORE)
    assert first.cached == [[0]] and first.same_as(plain(ASK))
    second = run(model, door(tmp_path / "second", **shared), ASK)
    assert second.cached == [[192]] and second.same_as(plain(ASK))
    control = run(model, door(tmp_path / "third", **shared), ASK, ZERO_LOADS="1")
    assert control.cached == [[192]] and not control.same_as(plain(ASK))
    alone = run(model, door(tmp_path / "fourth"), ASK)
    assert alone.cached == [[0]], "without the Redis there is nothing to hit"


def test_a_damaged_chunk_is_computed_again(model: Path, tmp_path: Path, plain: Any, door: Any) -> None:
    first = run(model, door(tmp_path), STORE)
    damage_one_chunk(tmp_path, first.chunk_bytes)
    second = run(model, door(tmp_path), STORE)
    assert second.same_as(plain(ASK))
    assert second.read_chunks == 5
    assert 0 <= second.cached[0][0] < 192
    third = run(model, door(tmp_path), ASK)
    assert third.cached == [[192]] and third.same_as(plain(ASK)), "the chunk was stored again"


def damage_one_chunk(path: Path, chunk_bytes: int) -> None:
    """Changes one byte in the largest file, in the middle of the third chunk that is not all zeros."""
    data = max((file for file in path.rglob("*") if file.is_file()), key=lambda file: file.stat().st_size)
    content = data.read_bytes()
    starts = [at for at in range(0, len(content), chunk_bytes) if any(content[at : at + chunk_bytes])]
    at = starts[2] + chunk_bytes // 4
    with open(data, "r+b") as stream:
        stream.seek(at)
        stream.write(bytes([content[at] ^ 0x40]))


def test_a_killed_process_leaves_good_chunks(model: Path, tmp_path: Path, plain: Any, door: Any) -> None:
    run(model, door(tmp_path), [*STORE, {"kill": True}], killed=True)
    second = run(model, door(tmp_path), ASK)
    assert second.same_as(plain(ASK))
    assert second.cached == [[192]] and second.read_chunks == 6


def test_a_full_store_gives_up_old_chunks(model: Path, tmp_path: Path, plain: Any, door: Any) -> None:
    steps = [
        *({"prompts": [each]} for each in OTHERS),
        {"reset": True},
        *({"prompts": [each]} for each in OTHERS[::-1]),
        {"settle": True},
    ]
    served = run(model, door(tmp_path, capacity="768KiB", host_bytes=256 << 10), steps)
    assert served.same_as(plain(steps))
    assert served.read_chunks > 0
    assert served.written_bytes > (768 << 10), "more than fits"


def test_preempted_and_aborted_requests(model: Path, tmp_path: Path, plain: Any, door: Any) -> None:
    """The two engines preempt at different times, and a token that is computed again may be rounded differently than before. With
    float32 this changes no token; with bfloat16 it does, on some processors."""
    steps = [
        {"prompts": OTHERS, "generate": 100},
        {"abort": [PROMPT, *OTHERS]},
        {"reset": True},
        {"prompts": [PROMPT, *OTHERS], "generate": 100},
    ]
    narrow = {"num_gpu_blocks_override": 26, "max_model_len": 512, "dtype": "float32"}
    served = run(model, door(tmp_path), steps, engine=narrow)
    alone = run(model, None, steps, engine=narrow)
    assert served.preempted > 0, "nothing was preempted, so this test shows nothing"
    assert [[each["tokens"] for each in step] for step in served.outputs] == [
        [each["tokens"] for each in step] for step in alone.outputs
    ]
    assert served.written_bytes > 0


def test_another_hash_seed_misses(model: Path, tmp_path: Path, plain: Any, door: Any) -> None:
    run(model, door(tmp_path), STORE, PYTHONHASHSEED="0")
    other = run(model, door(tmp_path), ASK, PYTHONHASHSEED="1")
    assert other.cached == [[0]] and other.read_chunks == 0 and other.same_as(plain(ASK))


def test_other_weights_at_the_same_path_miss(tmp_path: Path, door: Any) -> None:
    path = tiny_model.write(tmp_path / "model", seed=1)
    stored = run(path, door(tmp_path), STORE)
    tiny_model.write(path, seed=2)
    alone = run(path, None, ASK)
    other = run(path, door(tmp_path), ASK)
    assert other.cached == [[0]] and other.read_chunks == 0
    assert other.same_as(alone) and not other.same_as(stored)


def test_another_model_misses(model: Path, tmp_path: Path, door: Any) -> None:
    run(model, door(tmp_path), STORE)
    path = tiny_model.write(tmp_path / "another", seed=3)
    other = run(path, door(tmp_path), ASK)
    assert other.cached == [[0]] and other.read_chunks == 0
    assert other.same_as(run(path, None, ASK))


def test_reset_and_sleep_keep_what_is_stored(model: Path, tmp_path: Path, plain: Any, door: Any) -> None:
    steps = [*STORE, {"reset": True}, *ASK, {"sleep": True}, *ASK]
    served = run(model, door(tmp_path, weights_fixed=True), steps)
    assert served.cached == [[0], [192], [192]]
    assert answers(served) == answers(plain(ASK)) * 3


def test_after_sleep_weights_may_be_others(model: Path, tmp_path: Path, plain: Any, door: Any) -> None:
    served = run(model, door(tmp_path), [*STORE, {"sleep": True}, *ASK])
    assert served.cached == [[0], [0]] and answers(served) == answers(plain(ASK)) * 2


TWO_GROUPS: dict[str, Any] = {"disable_hybrid_kv_cache_manager": False}
FULL, WINDOW = "0", "1"


@pytest.mark.parametrize("step", [1024, 2 * CHUNK], ids=["one-step", "steps"])
def test_two_groups_of_layers(windowed: Path, tmp_path: Path, step: int, door: Any) -> None:
    engine = {**TWO_GROUPS, "max_num_batched_tokens": step}
    alone = run(windowed, None, ASK, engine=engine)
    first = run(windowed, door(tmp_path), STORE, engine=engine)
    assert first.cached == [[0]] and first.same_as(alone)
    assert offered(first, "store", FULL) == [0, 1, 2, 3, 4, 5] and offered(first, "store", WINDOW) == [4, 5]
    second = run(windowed, door(tmp_path), ASK, engine=engine)
    assert second.cached == [[192]] and second.same_as(alone)
    assert second.calls == [["load", {FULL: [0, 1, 2, 3, 4, 5], WINDOW: [4, 5]}]]
    assert second.read_chunks == 8 and second.read_bytes == first.written_bytes
    assert first.chained == second.chained == ([0] if door is spec else None), "full attention, and not the window"
    control = run(windowed, door(tmp_path), ASK, engine=engine, ZERO_LOADS="1")
    assert control.cached == [[192]] and not control.same_as(alone)


def test_a_window_of_which_everything_was_stored(windowed: Path, tmp_path: Path, door: Any) -> None:
    """With this setting vLLM offers each chunk of the window's group, as of full attention, and loads the last two."""
    engine = {**TWO_GROUPS, "prefix_cache_retention_interval": None}
    alone = run(windowed, None, ASK, engine=engine)
    first = run(windowed, door(tmp_path), STORE, engine=engine)
    assert first.same_as(alone)
    assert offered(first, "store", FULL) == offered(first, "store", WINDOW) == [0, 1, 2, 3, 4, 5]
    second = run(windowed, door(tmp_path), ASK, engine=engine)
    assert second.cached == [[192]] and second.same_as(alone)
    assert second.calls == [["load", {FULL: [0, 1, 2, 3, 4, 5], WINDOW: [4, 5]}]]


def test_two_groups_in_host_memory_alone(windowed: Path) -> None:
    """Prompts that evict each other from the GPU, a conversation of two turns, and preempted requests."""
    memory = {"spec_name": "CpuTerraceSpec", "spec_module_path": "cpu_worker", "cpu_bytes_to_use": 8 << 20}
    engine = {**TWO_GROUPS, "num_gpu_blocks_override": 26, "max_model_len": 512, "max_num_batched_tokens": 2 * CHUNK}
    one_by_one = [{"prompts": [each]} for each in OTHERS]
    steps = [
        *one_by_one,
        *one_by_one,
        {"prompts": [PROMPT[:100]]},
        *one_by_one,
        *ASK,
        {"prompts": OTHERS, "generate": 100},
        *ASK,
    ]
    served = run(windowed, memory, steps, engine=engine)
    alone = run(windowed, None, steps, engine=engine)
    for step, ours, theirs in zip(steps, served.outputs, alone.outputs):
        assert [each["tokens"] for each in ours] == [each["tokens"] for each in theirs], step
    assert answers(served)[:-2] == answers(alone)[:-2], "requests alone on the GPU"
    again = served.cached[len(OTHERS) : 2 * len(OTHERS)]
    assert again == [[160]] * len(OTHERS)
    assert served.cached[-3] == [96], "the second turn"
    assert served.preempted > 0, "nothing was preempted, so this test shows nothing"
    assert served.statistics is not None and served.statistics["loaded_host"] > 0
    assert served.chained == [0]
    control = run(windowed, memory, steps, engine=engine, ZERO_LOADS="1")
    assert answers(control)[: len(OTHERS)] == answers(alone)[: len(OTHERS)]
    assert answers(control)[len(OTHERS) :] != answers(alone)[len(OTHERS) :]


def offered(served: Run, call: str, group: str) -> list[int]:
    return [chunk for name, chunks in served.calls if name == call for chunk in chunks.get(group, [])]


@pytest.mark.parametrize("workers", [1, 2])
def test_an_engine_of_several_processes(model: Path, tmp_path: Path, workers: int, door: Any) -> None:
    engine = {"tensor_parallel_size": workers, "disable_log_stats": False}
    several = {"VLLM_ENABLE_V1_MULTIPROCESSING": "1"}
    alone = run(model, None, ASK, engine=engine, **several)
    first = run(model, door(tmp_path), STORE, engine=engine, **several)
    assert first.same_as(alone)
    second = run(model, door(tmp_path), STORE, engine=engine, **several)
    assert second.cached == [[192]] and second.same_as(alone)
    assert second.metrics["vllm:kv_offload_terrace_read_chunks"] == 6
    assert second.metrics["vllm:kv_offload_terrace_read_bytes"] > 0
    control = run(model, door(tmp_path), ASK, engine=engine, ZERO_LOADS="1", **several)
    assert not control.same_as(alone)
