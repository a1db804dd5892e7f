"""`--reliability`: how long the reliability suites (docs/reliability.md) go on."""

from __future__ import annotations

import pytest

RELIABILITY = ("short", "long")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Offer `--reliability short|long`."""
    parser.addoption(
        "--reliability",
        choices=RELIABILITY,
        default=RELIABILITY[0],
        help="how much the reliability suites try: what CI has time for, or everything (docs/reliability.md)",
    )


@pytest.fixture(scope="session")
def reliability(request: pytest.FixtureRequest) -> str:
    """The choice, "short" or "long"."""
    return str(request.config.getoption("--reliability"))
