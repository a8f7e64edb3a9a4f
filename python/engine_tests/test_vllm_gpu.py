"""A real vLLM engine on the CPU, whose GPU memory is managed by TerraceScheduler. Tokens, log-probabilities and hits are those of
an engine with vLLM's own manager. What the KV cache has matters: test_vllm_engine shows that zeros in it change the output."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("vllm", reason="vLLM is not installed; tools/check --engines installs it")

from test_vllm_engine import ASK, CHUNK, OTHERS, PROMPT, STORE, TWO_GROUPS, Run, answers, run, spec  # noqa: E402

import tiny_model  # noqa: E402

ONE_BY_ONE = [{"prompts": [each]} for each in OTHERS]
TERRACE = {"scheduler_cls": "terrace_kv.vllm.TerraceScheduler"}
NARROW = {"max_model_len": 512, "max_num_batched_tokens": 2 * CHUNK, "dtype": "float32"}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model.write(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def windowed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model.write(tmp_path_factory.mktemp("windowed"), window=2 * CHUNK)


def both(model: Path, steps: list[dict[str, Any]], **engine: Any) -> tuple[Run, Run]:
    """The same with Terrace's manager and with vLLM's."""
    served = run(model, None, steps, engine={**engine, **TERRACE})
    alone = run(model, None, steps, engine=engine)
    assert served.scheduler == "SynchronousTerraceScheduler" and alone.scheduler == "Scheduler", "vLLM's choice for CPUs"
    assert served.gpu is not None and alone.gpu is None
    assert served.gpu["found_device"] > 0 and served.gpu["live"] == 0
    return served, alone


def tokens(ran: Run) -> list[list[list[int]]]:
    return [[each["tokens"] for each in step] for step in ran.outputs]


@pytest.mark.gate
def test_the_same_output_and_hits(model: Path) -> None:
    """Prompts alone and together, in chunks, taken back, and twice: the second time they are hits, until the cache is reset."""
    steps = [*ASK, *ASK, {"abort": [PROMPT, *OTHERS]}, {"prompts": OTHERS}, *ASK, {"reset": True}, *ASK]
    served, alone = both(model, steps, max_num_batched_tokens=2 * CHUNK)
    assert answers(served) == answers(alone) and served.cached == alone.cached
    assert served.cached[1] == [192] and served.cached[-1] == [0]


@pytest.mark.parametrize("groups", [1, 2])
def test_little_memory(model: Path, windowed: Path, groups: int) -> None:
    """Requests are preempted, at other times than with vLLM's manager, so a token that is computed again may be rounded
    differently then; with float32 this changes no token."""
    steps = [
        *ONE_BY_ONE,
        {"prompts": OTHERS, "generate": 100},
        {"abort": [PROMPT, *OTHERS]},
        {"prompts": [PROMPT, *OTHERS], "generate": 100},
        *ONE_BY_ONE,
    ]
    blocks = {1: {"num_gpu_blocks_override": 26}, 2: {"num_gpu_blocks_override": 31, **TWO_GROUPS}}
    served, alone = both(windowed if groups == 2 else model, steps, **NARROW, **blocks[groups])
    assert tokens(served) == tokens(alone)
    assert answers(served)[: len(OTHERS)] == answers(alone)[: len(OTHERS)]
    assert served.preempted > 0 and alone.preempted > 0, "nothing was preempted, so this test shows nothing"
    assert served.gpu is not None and served.gpu["evicted_device"] > 0


def test_speculation_by_n_grams(model: Path) -> None:
    """A prompt that repeats itself has drafts, which are taken and rejected."""
    speculation = {"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_max": 3, "prompt_lookup_min": 1}
    repeated = PROMPT[:40] * 4
    steps = [{"prompts": [repeated], "generate": 60}, {"prompts": [repeated, *OTHERS[:2]], "generate": 60}]
    served, alone = both(model, steps, speculative_config=speculation, dtype="float32")
    assert answers(served) == answers(alone) and served.cached == alone.cached


def test_with_the_offloading_connector(windowed: Path, tmp_path: Path) -> None:
    """Below it, chunks come from the disk into blocks that Terrace has given out."""
    first = run(windowed, spec(tmp_path), STORE, engine={**TWO_GROUPS, **TERRACE})
    steps = [*ASK, {"prompts": [*OTHERS, PROMPT]}]
    second = run(windowed, spec(tmp_path), steps, engine={**TWO_GROUPS, **TERRACE})
    alone = run(windowed, None, steps, engine=TWO_GROUPS)
    assert second.gpu is not None and first.cached == [[0]] and second.cached[0] == [192]
    assert second.read_chunks == 8 and answers(second) == answers(alone)
    control = run(windowed, spec(tmp_path), steps, engine={**TWO_GROUPS, **TERRACE}, ZERO_LOADS="1")
    assert answers(control) != answers(alone)
