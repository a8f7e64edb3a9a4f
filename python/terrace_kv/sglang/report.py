"""Log messages of the back end: one when it begins to fail, and one when it works again."""

from __future__ import annotations

import logging
import threading

logger = logging.getLogger("terrace_kv.sglang")
_LEVELS = {0: logging.INFO, 1: logging.WARNING}


def log_of_store(level: int, sentence: str) -> None:
    """The log function of a Store."""
    logger.log(_LEVELS.get(level, logging.ERROR), "%s", sentence)


class Report:
    """Reports whether one kind of work succeeds. Each kind has its own report, so that successful reads do not hide failed
    writes."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._lock = threading.Lock()
        self._failing = False

    def failed(self, why: object) -> None:
        """The work has failed. The first call after well() writes a message."""
        with self._lock:
            first, self._failing = not self._failing, True
        if first:
            logger.error("%s fails, and SGLang computes what it does not find: %s", self._what, why)

    def well(self) -> None:
        """The work has succeeded."""
        with self._lock:
            again, self._failing = self._failing, False
        if again:
            logger.info("%s works again", self._what)
