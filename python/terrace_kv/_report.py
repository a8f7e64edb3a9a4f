"""Errors of the library in an adapter: each is a miss for the engine, is counted, and is told in the log.

An adapter has one place that catches them, which calls Report.failed() or is Report.attempt(). An error that means that the adapter
itself is wrong is a miss, too, because an engine must continue; but the tests set RAISE_MISUSE, so that they see it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from ._interface import DUPLICATE_REQUEST, INTERNAL, INVALID_ARGUMENT, UNKNOWN_REQUEST
from ._library import TerraceError

T = TypeVar("T")
Miss = TypeVar("Miss")

RAISE_MISUSE = False
_MISUSE = frozenset({INVALID_ARGUMENT, DUPLICATE_REQUEST, UNKNOWN_REQUEST, INTERNAL})


def is_misuse(error: object) -> bool:
    """True for an exception that no state of the machine explains, only a mistake in this package or its use."""
    if isinstance(error, TerraceError):
        return error.status in _MISUSE
    return isinstance(error, Exception) and not isinstance(error, OSError)


class Report:
    """Reports whether one kind of work succeeds: one message when it begins to fail, and one when it works again. Each kind has its
    own report, so that successful reads do not hide failed writes. Threads: any.

    Args:
        logger: Takes the messages.
        engine: The name of the engine, which computes what it does not find.
        what: The kind of work.

    Attributes:
        failures: How often it has failed.
    """

    def __init__(self, logger: logging.Logger, engine: str, what: str) -> None:
        self._logger = logger
        self._engine = engine
        self._what = what
        self._lock = threading.Lock()
        self._failing = False
        self.failures = 0

    def attempt(self, miss: Miss, work: Callable[..., T], *arguments: Any) -> Miss | T:
        """Does the work, and returns its result. If it raises an exception, it has failed, and the result is `miss`."""
        try:
            result = work(*arguments)
        except Exception as error:
            self.failed(error)
            return miss
        self.well()
        return result

    def failed(self, why: object) -> None:
        """The work has failed. The first call after well() writes a message.

        Raises:
            Exception: `why`, if it is a mistake and the tests run.
        """
        if RAISE_MISUSE and is_misuse(why):
            assert isinstance(why, Exception)
            raise why
        with self._lock:
            first, self._failing = not self._failing, True
            self.failures += 1
        if first:
            trace = why if isinstance(why, Exception) and is_misuse(why) else None
            self._logger.error("%s fails, and %s computes what it does not find: %s", self._what, self._engine, why, exc_info=trace)

    def well(self) -> None:
        """The work has succeeded."""
        with self._lock:
            again, self._failing = self._failing, False
        if again:
            self._logger.info("%s works again", self._what)
