"""Fixtures of the tests of terrace_kv.lmcache."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def adapter(tmp_path: Path) -> Iterator[Any]:
    """An adapter over an empty directory."""
    from lmcache_under_test import open_adapter

    made = open_adapter(tmp_path)
    yield made
    made.close()


@pytest.fixture
def log() -> Iterator[Any]:
    """The Log of the adapter's messages, information included."""
    from lmcache_under_test import Log
    from terrace_kv.lmcache.layouts import logger

    handler, level = Log(), logger.level
    logger.setLevel(logging.INFO)
    logger.addHandler(handler)
    yield handler
    logger.removeHandler(handler)
    logger.setLevel(level)
