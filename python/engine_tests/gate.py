"""The option --gate, as a plugin of pytest: a conftest.py would not hear of tests in other folders."""

from __future__ import annotations

from pathlib import Path

import pytest

_skipped: list[str] = []


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--gate", action="store_true", help="of this folder, only tests marked with gate; what is skipped has failed")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "gate: runs in each integration run")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.option.gate:
        return
    here = Path(__file__).parent
    left_out = [item for item in items if item.path.is_relative_to(here) and item.get_closest_marker("gate") is None]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in left_out]


def _note(report: pytest.CollectReport | pytest.TestReport) -> None:
    # Traces are not part of the project, so a run may lack them.
    if report.skipped and not hasattr(report, "wasxfail") and "TERRACE_TRACES" not in str(report.longrepr):
        _skipped.append(report.nodeid)


def pytest_collectreport(report: pytest.CollectReport) -> None:
    _note(report)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    _note(report)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    if session.config.option.gate and _skipped and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if config.option.gate and _skipped:
        terminalreporter.write_line(f"failed: {len(_skipped)} skipped, the first one is {_skipped[0]}", red=True)
