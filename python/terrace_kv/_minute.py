"""A line of the log each minute: what was loaded instead of computed."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

_SECONDS = 60.0


class Minute:
    """Counts blocks, and says once a minute how many of them were loaded. It says nothing of a minute in which nothing was loaded and
    nothing stored. Threads: any.

    Args:
        say: Takes the line.
        blocks: What the engine calls a block: "chunks".
    """

    def __init__(self, say: Callable[[str], None], blocks: str) -> None:
        self._say = say
        self._blocks = blocks
        self._lock = threading.Lock()
        self._ends = time.monotonic() + _SECONDS
        self._loaded = self._missing = self._stored = 0
        self._tokens = 0.0

    def loaded(self, wanted: int, came: int, tokens: float) -> None:
        """Of the blocks that were wanted, some came. `tokens`: those for which these stand."""
        with self._lock:
            self._loaded += came
            self._missing += wanted - came
            self._tokens += tokens

    def stored(self, blocks: int) -> None:
        """New blocks, which the engine has computed."""
        with self._lock:
            self._stored += blocks

    def step(self, now: float) -> None:
        """Says what there is to say, if a minute is over."""
        if now < self._ends:
            return
        with self._lock:
            self._ends = now + _SECONDS
            loaded, missing, stored, tokens = self._loaded, self._missing, self._stored, self._tokens
            self._loaded = self._missing = self._stored = 0
            self._tokens = 0.0
        if loaded + missing + stored == 0:
            return
        share = 100 * loaded // (loaded + missing + stored)
        lost = f", {missing} were damaged, gone or late" if missing else ""
        self._say(
            f"in the last minute {loaded} {self._blocks} were loaded and {stored} computed and stored (hit rate {share} %): "
            f"{round(tokens)} tokens saved{lost}"
        )
