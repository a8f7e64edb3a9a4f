"""Questions to a shared store for vLLM's scheduler, which must not wait for the answers."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable
from typing import NamedTuple

from .._keys import Keys
from .._library import Busy
from .._report import Report
from ..offload import OffloadCache
from ..store import Result, Store

_BELIEVED = 1.0  # seconds that an answer is valid: others write to a shared store, and it evicts chunks itself
_ANSWERS_MAX = 65536
_FIRST_JOB = 1 << 62  # vLLM's own jobs have smaller numbers


class _Lookups:
    """Asks a shared store which chunks it has: one question for all chunks of a request that vLLM asks for in a step. A question
    that fails is answered by "no"."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._wanted: dict[str, list[bytes]] = {}
        """By request: chunks that are not in a question yet."""
        self._asked: set[bytes] = set()
        """Chunks without an answer."""
        self._answers: dict[bytes, tuple[bool, float]] = {}
        """By chunk: whether it is there, and until when this answer is used."""

    def ask(self, key: bytes, request: str) -> bool | None:
        """Returns whether the shared store has the chunk; None: not known yet."""
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
        """Called when a chunk without an answer is asked for again."""

    def forget(self) -> None:
        """From now on, names have another meaning."""
        self._answers.clear()

    def _answer(self, chunks: list[bytes], there: int) -> None:
        """Records an answer: the store has the first `there` chunks. The chunks after the next one are not part of a prefix any
        more."""
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
        timeout: After this number of seconds, a question without an answer counts as "no".
        report: Takes the errors of the store.
    """

    def __init__(self, store: Store, timeout: float, report: Report) -> None:
        super().__init__(report)
        self._store = store
        self._timeout = timeout
        self._jobs = itertools.count(_FIRST_JOB)
        self._questions: dict[int, list[bytes]] = {}
        """By job: the chunks of the question."""

    def send(self) -> None:
        """Sends the questions of this step."""
        while self._wanted:
            request, chunks = next(iter(self._wanted.items()))
            job = next(self._jobs)
            sent = self._report.attempt(None, self._submit, job, chunks)
            if sent is False:
                return
            del self._wanted[request]
            if sent:
                self._questions[job] = chunks
            else:
                self._answer(chunks, 0)

    def _submit(self, job: int, chunks: list[bytes]) -> bool:
        """False: too much is under way."""
        try:
            self._store.submit_probe(job, chunks, timeout=self._timeout)
        except Busy:
            return False
        return True

    def _asked_again(self) -> None:
        self.send()

    def answered(self, result: Result) -> None:
        """Takes the answer to a question."""
        self._answer(self._questions.pop(result.job), result.succeeded)


class Question(NamedTuple):
    """Chunks of one question to the cache."""

    chunks: list[bytes]
    keys: Keys
    first: int
    """The keys from this index on are those of the chunks."""


class CacheLookups(_Lookups):
    """Questions to the shared store of an OffloadCache. The cache ends each question after its option `probe-deadline`.

    Args:
        cache: The cache.
        split: Makes the questions about some chunks of a request.
        report: Takes the errors of the cache.
    """

    def __init__(self, cache: OffloadCache, split: Callable[[str, list[bytes]], Iterable[Question]], report: Report) -> None:
        super().__init__(report)
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
            there, looking = self._report.attempt((0, False), self._cache.find, question.keys)
            if looking:
                self._questions.append(question)
            else:
                self._answer(question.chunks, max(0, there - question.first))

    @property
    def waiting(self) -> bool:
        """True if there are questions without an answer."""
        return bool(self._questions)

    def forget(self) -> None:
        """From now on, names have another meaning."""
        super().forget()
        self._questions.clear()
        self._wanted.clear()
        self._asked.clear()
