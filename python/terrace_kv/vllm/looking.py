"""Questions to a shared store, asked for vLLM's scheduler, which must not wait for the answers."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable
from typing import NamedTuple

from .._keys import Keys
from .._library import Busy
from ..offload import OffloadCache
from ..store import Result, Store

_BELIEVED = 1.0  # seconds: others write to a shared store, and it gives chunks up by itself
_ANSWERS_MAX = 65536
_FIRST_JOB = 1 << 62  # vLLM's own jobs have smaller numbers


class _Lookups:
    """Which chunks a shared store has: one question for all chunks of a request that vLLM asks for in a step."""

    def __init__(self) -> None:
        self._wanted: dict[str, list[bytes]] = {}
        """By request: chunks that no question has named yet."""
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
            self._asked_again()
            return None
        self._asked.add(key)
        self._wanted.setdefault(request, []).append(key)
        return None

    def _asked_again(self) -> None:
        """A chunk without an answer is asked for again."""

    def forget(self) -> None:
        """Names mean something else from now on."""
        self._answers.clear()

    def _answer(self, chunks: list[bytes], there: int) -> None:
        """Of the chunks, the first `there` are there. Those behind the next one are no part of a prefix any more."""
        self._asked.difference_update(chunks)
        until = time.monotonic() + _BELIEVED
        if len(self._answers) > _ANSWERS_MAX:
            self._answers.clear()
        for i, key in enumerate(chunks[: there + 1]):
            self._answers[key] = (i < there, until)


class SharedLookups(_Lookups):
    """Questions to the shared store behind a Store.

    Args:
        store: The store in front of the shared one.
        timeout: A question that is not answered after so many seconds is answered with no.
    """

    def __init__(self, store: Store, timeout: float) -> None:
        super().__init__()
        self._store = store
        self._timeout = timeout
        self._jobs = itertools.count(_FIRST_JOB)
        self._questions: dict[int, list[bytes]] = {}
        """By job: the chunks that the question names."""

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

    def _asked_again(self) -> None:
        self.send()

    def answered(self, result: Result) -> None:
        """Takes the answer to a question."""
        self._answer(self._questions.pop(result.job), result.succeeded)


class Question(NamedTuple):
    """Chunks that the cache can be asked about in one call."""

    chunks: list[bytes]
    keys: Keys
    first: int
    """The chunks are those of the keys from this index on."""


class CacheLookups(_Lookups):
    """Questions to the shared store of an OffloadCache. The cache ends each by its option `probe-deadline`.

    Args:
        cache: The cache.
        split: Makes the questions about some chunks of a request.
    """

    def __init__(self, cache: OffloadCache, split: Callable[[str, list[bytes]], Iterable[Question]]) -> None:
        super().__init__()
        self._cache = cache
        self._split = split
        self._questions: list[Question] = []

    def send(self) -> None:
        """Takes the answers that the last poll() of the cache has brought, and asks the questions of this step; the next poll()
        sends them."""
        for request, chunks in self._wanted.items():
            self._questions += self._split(request, chunks)
        self._wanted.clear()
        questions, self._questions = self._questions, []
        for question in questions:
            there, looking = self._cache.find(question.keys)
            if looking:
                self._questions.append(question)
            else:
                self._answer(question.chunks, max(0, there - question.first))

    @property
    def waiting(self) -> bool:
        """There are questions without an answer."""
        return bool(self._questions)

    def forget(self) -> None:
        """Names mean something else from now on."""
        super().forget()
        self._questions.clear()
        self._wanted.clear()
        self._asked.clear()
