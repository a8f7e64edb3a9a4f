"""Log messages of the back end."""

from __future__ import annotations

import logging

from .._report import Report as _Report

logger = logging.getLogger("terrace_kv.sglang")
_LEVELS = {0: logging.INFO, 1: logging.WARNING}


def log_of_store(level: int, sentence: str) -> None:
    """The log function of a Store."""
    logger.log(_LEVELS.get(level, logging.ERROR), "%s", sentence)


class Report(_Report):
    """Reports whether one kind of work succeeds."""

    def __init__(self, what: str) -> None:
        super().__init__(logger, "SGLang", what)
