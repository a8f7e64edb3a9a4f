"""The guard that keeps vLLM from waiting for a storage that is slower than compute. Time is a number here."""

from __future__ import annotations

import pytest

import vllm_modules  # noqa: F401  (before vLLM)

from terrace_kv.vllm.guard import LoadGuard

TOKENS = 16
STEP = 0.1


class World:
    """An engine that computes 1,000 tokens a second, and a storage."""

    def __init__(self, prefill_speed: float | None = None) -> None:
        self.said: list[str] = []
        self.warned: list[str] = []
        self.guard = LoadGuard(prefill_speed, lambda text, warning: (self.warned if warning else self.said).append(text))
        self.now = 100.0

    def compute(self, steps: int, tokens: float = 100, seconds: float = STEP) -> None:
        for _ in range(steps):
            self.guard.step(self.now)
            self.guard.computed(tokens)
            self.now += seconds
        self.guard.step(self.now)

    def read(self, chunks: int, per_second: float, request: str = "a") -> int:
        """A request wants chunks. Returns how many are read, which takes until they have come."""
        allowed = sum(self.guard.allows(request, self.now) for _ in range(chunks))
        if allowed:
            self.guard.asked(allowed, allowed * TOKENS, self.now)
            end = self.now + allowed / per_second
            while self.now + STEP < end:
                self.now += STEP
                self.guard.saw(0, 0, 0, self.now)
            self.now += STEP
            self.guard.saw(allowed, allowed * TOKENS, allowed * TOKENS, self.now)
        return allowed


def test_without_a_speed_everything_is_loaded_and_that_is_said_once() -> None:
    world = World()
    for _ in range(10):
        assert world.read(50, per_second=1) == 50
    assert len(world.said) == 1 and "prefill_speed" in world.said[0] and not world.warned


def test_the_speed_is_learned_from_steps_and_gaps_are_left_out() -> None:
    world = World()
    world.compute(7)
    assert world.guard.prefill_speed is None
    world.compute(1)
    world.compute(20)
    world.compute(10, seconds=60)  # nobody asked anything for a minute
    assert world.guard.prefill_speed == pytest.approx(1000)
    world.compute(100, tokens=0)
    world.read(10, per_second=1000)
    assert world.guard.prefill_speed == pytest.approx(1000), "decoding says nothing"
    assert world.said == ["the engine computes 1000 tokens a second"]


@pytest.mark.parametrize("stores_first", [False, True])
def test_what_a_step_computes_counts_for_the_time_that_follows(stores_first: bool) -> None:
    """However long the step before took: one of decoding, or a pause."""
    guard = LoadGuard(None, lambda text, warning: None, stores_first=stores_first)
    now = 0.0
    for i in range(20):
        tokens = 100 if i % 2 else 0
        if stores_first:
            guard.computed(tokens)
        guard.step(now)
        if not stores_first:
            guard.computed(tokens)
        now += 0.1 if tokens else 0.003
    assert guard.prefill_speed == pytest.approx(1000)


def test_a_stated_speed_wins() -> None:
    world = World(prefill_speed=50)
    world.compute(20)
    assert world.guard.prefill_speed == 50 and not world.said
    with pytest.raises(ValueError, match="must be more than 0"):
        World(prefill_speed=0)


def test_a_storage_that_is_slower_than_compute_is_noticed_within_a_minute() -> None:
    world = World(prefill_speed=1000)
    began = world.now
    while world.read(20, per_second=10) == 20:  # 160 tokens a second
        assert world.now - began < 60
    assert "computed, and not loaded" in world.warned[0]
    assert world.guard.declined > 0


def test_a_storage_that_stands_still_is_noticed_within_a_minute() -> None:
    world = World(prefill_speed=1000)
    world.guard.asked(5, 5 * TOKENS, world.now)
    began = world.now
    while world.guard.allows("a", world.now):
        world.now += STEP
        world.guard.saw(0, 0, 0, world.now)
        assert world.now - began < 60


def test_it_is_tried_again_and_used_again_when_it_is_faster() -> None:
    world = World(prefill_speed=1000)
    while world.read(20, per_second=10) == 20:
        pass
    speeds = [10.0] * 20 + [1000.0] * 20
    read = []
    for speed in speeds:
        read.append(world.read(100, per_second=speed, request=f"request {world.now}"))
        world.now += 1
    assert max(read[:20]) == 16, "a few chunks every five seconds"
    assert 2 <= sum(each > 0 for each in read[:20]) <= 5
    assert read[-1] == 100 and len(world.warned) == 2


def test_reads_that_end_within_a_step_are_never_slow() -> None:
    """A storage that takes a millisecond for what takes the engine ten, if steps take 100."""
    world = World(prefill_speed=20_000)
    for _ in range(1000):
        assert world.read(10, per_second=10_000) == 10
    assert not world.warned


def test_a_storage_as_fast_as_compute_is_used() -> None:
    world = World(prefill_speed=1000)
    for _ in range(200):
        assert world.read(200, per_second=80) == 200  # 1,280 tokens a second
    assert not world.warned
