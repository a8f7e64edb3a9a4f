"""Questions to the shared store behind a Store, asked for vLLM's scheduler, which must not wait for the answers."""

from __future__ import annotations

import itertools
import time

from .._library import Busy
from ..store import Result, Store

_BELIEVED = 1.0  # seconds: others write to a shared store, and it gives chunks up by itself
_ANSWERS_MAX = 65536
_FIRST_JOB = 1 << 62  # vLLM's own jobs have smaller numbers


class SharedLookups:
    """Asks a shared store which chunks it has: one question for all chunks of a request that vLLM asks for in a step.

    Args:
        store: The store in front of the shared one.
        timeout: A question that is not answered after so many seconds is answered with no.
    """

    def __init__(self, store: Store, timeout: float) -> None:
        self._store = store
        self._timeout = timeout
        self._jobs = itertools.count(_FIRST_JOB)
        self._wanted: dict[str, list[bytes]] = {}
        """By request: chunks that no question has named yet."""
        self._questions: dict[int, list[bytes]] = {}
        """By job: the chunks that the question names."""
        self._asked: set[bytes] = set()
        """Chunks without an answer."""
        self._answers: dict[bytes, tuple[bool, float]] = {}
        """By chunk: whether it is there, and until when that is believed."""

    def ask(self, key: bytes, request: str) -> bool | None:
        """Whether the shared store has the chunk; None: not known yet."""
        answer = self._answers.get(key)
        if answer is not None and time.monotonic() < answer[1]:
            return answer[0]
        if key in self._asked:
            self.send()
            return None
        self._asked.add(key)
        self._wanted.setdefault(request, []).append(key)
        return None

    def send(self) -> None:
        """Sends the questions of this step."""
        while self._wanted:
            request, chunks = next(iter(self._wanted.items()))
            job = next(self._jobs)
            try:
                self._store.submit_probe(job, chunks, timeout=self._timeout)
            except Busy:
                return
            del self._wanted[request]
            self._questions[job] = chunks

    def answered(self, result: Result) -> None:
        """Takes the answer to a question. Chunks behind the first one that is not there are no part of a prefix any more."""
        chunks = self._questions.pop(result.job)
        self._asked.difference_update(chunks)
        until = time.monotonic() + _BELIEVED
        if len(self._answers) > _ANSWERS_MAX:
            self._answers.clear()
        for i, key in enumerate(chunks[: result.succeeded + 1]):
            self._answers[key] = (i < result.succeeded, until)

    def forget(self) -> None:
        """Names mean something else from now on."""
        self._answers.clear()
