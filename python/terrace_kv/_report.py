"""Log messages of an adapter: one when it begins to fail, and one when it works again."""

from __future__ import annotations

import logging
import threading


class Report:
    """Reports whether one kind of work succeeds. Each kind has its own report, so that successful reads do not hide failed
    writes. Threads: any.

    Args:
        logger: Takes the messages.
        engine: The name of the engine, which computes what it does not find.
        what: The kind of work.
    """

    def __init__(self, logger: logging.Logger, engine: str, what: str) -> None:
        self._logger = logger
        self._engine = engine
        self._what = what
        self._lock = threading.Lock()
        self._failing = False

    def failed(self, why: object) -> None:
        """The work has failed. The first call after well() writes a message."""
        with self._lock:
            first, self._failing = not self._failing, True
        if first:
            self._logger.error("%s fails, and %s computes what it does not find: %s", self._what, self._engine, why)

    def well(self) -> None:
        """The work has succeeded."""
        with self._lock:
            again, self._failing = self._failing, False
        if again:
            self._logger.info("%s works again", self._what)
