"""Rules for the whole suite."""

from __future__ import annotations

import os

import pytest


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Where services are promised (CI), a test that was skipped for want of one is a failure."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if os.environ.get("SWEEPLAW_REQUIRE_SERVICES") and reporter is not None and reporter.stats.get("skipped"):
        reporter.write_line("SWEEPLAW_REQUIRE_SERVICES is set, so no test may be skipped", red=True)
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
