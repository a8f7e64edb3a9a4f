"""A line in the log each minute: the share of blocks that were loaded instead of computed."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

_SECONDS = 60.0


class Minute:
    """Counts blocks, and reports once a minute how many of them were loaded. A minute without loads and stores is not reported.
    Threads: any.

    Args:
        say: Takes the line.
        blocks: The engine's word for blocks: "chunks".
    """

    def __init__(self, say: Callable[[str], None], blocks: str) -> None:
        self._say = say
        self._blocks = blocks
        self._lock = threading.Lock()
        self._ends = time.monotonic() + _SECONDS
        self._loaded = self._missing = self._stored = 0
        self._tokens = 0.0

    def loaded(self, wanted: int, came: int, tokens: float) -> None:
        """Counts the blocks that were requested, and those of them that were loaded. `tokens`: number of tokens of the loaded
        blocks."""
        with self._lock:
            self._loaded += came
            self._missing += wanted - came
            self._tokens += tokens

    def stored(self, blocks: int) -> None:
        """Counts new blocks, which the engine has computed."""
        with self._lock:
            self._stored += blocks

    def step(self, now: float) -> None:
        """Reports if a minute is over."""
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
