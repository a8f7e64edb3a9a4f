"""What all tests share."""

from __future__ import annotations

import pytest

from terrace_kv import _report


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("filterwarnings", "error::pytest.PytestUnhandledThreadExceptionWarning")


@pytest.fixture(autouse=True)
def mistakes_of_the_package_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_report, "RAISE_MISUSE", True)


@pytest.fixture
def mistakes_are_misses(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in production."""
    monkeypatch.setattr(_report, "RAISE_MISUSE", False)
