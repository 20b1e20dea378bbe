"""Rules for the whole suite."""

from __future__ import annotations

import os

import pytest

SERVICES = ("postgresql", "chromium", "playwright")


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Where services are promised (CI), a test that was skipped for want of one is a failure."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if not os.environ.get("SWEEPLAW_REQUIRE_SERVICES") or reporter is None:
        return
    skipped = [str(report.longrepr).lower() for report in reporter.stats.get("skipped", [])]
    if any(service in reason for reason in skipped for service in SERVICES):
        reporter.write_line(
            "SWEEPLAW_REQUIRE_SERVICES is set, so no test may be skipped for want of a service", red=True
        )
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
