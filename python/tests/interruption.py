"""Exceptions at chosen moments, and forked children."""

from __future__ import annotations

import inspect
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from terrace_kv import _memory, _polling, _staging, cache, offload, store


class Interrupted(Exception):
    pass


@contextmanager
def alarm(seconds: float) -> Iterator[None]:
    """Raises Interrupted in this thread after a time, as a time-out by a signal does."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise Interrupted

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, seconds)
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@contextmanager
def interrupted_at(line: int) -> Iterator[list[int]]:
    """Raises Interrupted at the n-th line that the package's modules run. Yields a list that has one item if it did. Lines where a
    `with` ends are left out: Python has no exceptions of signals there."""
    modules = {inspect.getfile(module) for module in (cache, store, offload, _memory, _polling, _staging)}
    raised: list[int] = []
    count = 0
    entered: set[tuple[int, int]] = set()

    def trace(frame: FrameType, event: str, _argument: object) -> Any:
        nonlocal count
        if frame.f_code.co_filename not in modules or frame.f_code.co_name in ("__del__", "<lambda>"):
            return None
        if event == "line" and not raised:
            at = (id(frame), frame.f_lineno)
            text = _source(frame.f_code.co_filename)[frame.f_lineno - 1].strip()
            if not (text.startswith("with ") and at in entered) and not text.startswith(("try:", "finally:")):
                count += 1
                if count == line:
                    raised.append(frame.f_lineno)
                    raise Interrupted
            entered.add(at)
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield raised
    finally:
        sys.settrace(before)


_sources: dict[str, list[str]] = {}


def _source(file: str) -> list[str]:
    if file not in _sources:
        _sources[file] = Path(file).read_text().splitlines()
    return _sources[file]


def in_child(work: Callable[[], object], seconds: int = 60) -> int:
    """Forks, calls `work` in the child, ends it as sys.exit() does, and returns its exit status."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            signal.alarm(seconds)  # a child that hangs is ended
            work()
            status = 0
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
