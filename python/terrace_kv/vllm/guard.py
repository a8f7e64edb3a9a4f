"""Decides whether it is faster to read chunks from below host memory or to compute them."""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Callable

_STEPS = 64  # number of steps for the median
_STEPS_NEEDED = 8
_EVIDENCE = 2.0  # seconds of reading before storage can count as slow
_HALVED_AFTER = 10.0  # half-life of a measurement, in seconds of reading
_PROBE_PAUSE = 5.0  # seconds between two requests that try slow storage again
_PROBE_CHUNKS = 16  # number of chunks that such a request may read


class LoadGuard:
    """Compares two speeds, in tokens a second: the speed at which the engine computes prompts, and the recent speed at which
    storage (or the shared store) has brought chunks. While storage is slower, chunks there count as misses, except for a few
    every five seconds, which show when storage is faster again.

    Compute speed: an option, or learned from the tokens that were computed in a step and the time to the next step. It is the
    median over the last 64 steps with such tokens, so that gaps without work do not count. Until eight steps are known,
    everything is loaded.

    Storage speed: the tokens that came, divided by the time in which chunks were awaited. Storage counts as slow only if it would
    be slow even if all awaited chunks arrived now. Arrivals are seen only at steps. So a step after which no chunk is awaited
    does not count: if reads end within a step, storage is never slow.

    It reads no clock and does no I/O. Threads: vLLM's scheduler.

    Args:
        prefill_speed: Tokens a second. None: it is learned.
        say: Takes a sentence for the log, and whether it is a warning.
        stores_first: True if vLLM calls computed() before step(), as since 0.33, and not after it.
    """

    def __init__(
        self, prefill_speed: float | None, say: Callable[[str, bool], None], *, stores_first: bool = False
    ) -> None:
        if prefill_speed is not None and not prefill_speed > 0:
            raise ValueError(f"prefill_speed is {prefill_speed}, must be more than 0 tokens a second")
        self._given = prefill_speed
        self._learned: deque[float] = deque(maxlen=_STEPS)
        self._say = say
        self._said = prefill_speed is not None
        self._stores_first = stores_first
        self._computed = 0.0  # tokens since the last step()
        self._computing = 0.0  # tokens of the step that began at _step_at, with stores_first
        self._step_at: float | None = None
        self._awaited = 0  # chunks
        self._awaited_tokens = 0.0
        self._seen_at = 0.0
        self._read = 0.0  # recent tokens
        self._busy = 0.0  # recent seconds
        self._slow = False
        self._next_probe = 0.0
        self._probing: str | None = None
        self._probe_left = 0
        self.declined = 0
        """Number of chunks that were there, and were not read because reading takes longer than computing."""

    @property
    def prefill_speed(self) -> float | None:
        """Number of tokens that the engine computes in a second; None: not known yet."""
        if self._given is not None:
            return self._given
        return statistics.median(self._learned) if len(self._learned) >= _STEPS_NEEDED else None

    def computed(self, tokens: float) -> None:
        """A step computes this number of tokens."""
        self._computed += tokens

    def step(self, now: float) -> None:
        """The scheduler has planned a step, which workers carry out from now on."""
        tokens = self._computing if self._stores_first else self._computed
        if tokens > 0 and self._step_at is not None and now > self._step_at:
            self._learned.append(tokens / (now - self._step_at))
            if self._given is None and len(self._learned) == _STEPS_NEEDED:
                self._say(f"the engine computes {self.prefill_speed:.0f} tokens a second", False)
        self._computing, self._computed = self._computed, 0.0
        self._step_at = now

    def asked(self, chunks: int, tokens: float, now: float) -> None:
        """From now on, chunks with this number of tokens are being read."""
        if self._awaited == 0:
            self._seen_at = now
        self._awaited += chunks
        self._awaited_tokens += tokens
        if not self._said and self.prefill_speed is None:
            self._said = True
            self._say(
                "the speed at which the engine computes is not known yet, so stored chunks are loaded however long that takes; "
                "prefill_speed states it",
                False,
            )

    def saw(self, chunks: int, tokens: float, came: float, now: float) -> None:
        """Reports the awaited chunks that have come, or that will not come. `came`: number of tokens of the chunks that have
        come. Call it at each step, even if nothing has changed."""
        self._awaited -= chunks
        self._awaited_tokens -= tokens
        self._read += came
        if self._awaited > 0:
            self._busy += max(0.0, now - self._seen_at)
        self._seen_at = now
        if self._busy > _HALVED_AFTER:
            self._busy /= 2
            self._read /= 2
        if (compute := self.prefill_speed) is None:
            return
        if not self._slow and self._busy >= _EVIDENCE and self._read + self._awaited_tokens < compute * self._busy:
            self._slow = True
            self._say(
                f"storage brings {self._read / self._busy:.0f} tokens a second, and the engine computes {compute:.0f}: stored "
                "chunks are computed, and not loaded, until storage is faster",
                True,
            )
            self._forget(now)
        elif self._slow and came > 0 and self._awaited == 0 and self._read >= compute * self._busy:
            self._slow = False
            self._say("storage is faster than the engine again: stored chunks are loaded", True)
            self._forget(now)

    def allows(self, request: str, now: float) -> bool:
        """Returns True if the request may read another chunk."""
        if not self._slow:
            return True
        if self._awaited == 0 and now >= self._next_probe:
            self._forget(now)
            self._probing, self._probe_left = request, _PROBE_CHUNKS
        if request == self._probing and self._probe_left > 0:
            self._probe_left -= 1
            return True
        self.declined += 1
        return False

    def _forget(self, now: float) -> None:
        self._read = self._busy = 0.0
        self._next_probe = now + _PROBE_PAUSE
        self._probing = None
