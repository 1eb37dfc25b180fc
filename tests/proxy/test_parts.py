"""What all listeners share, as the configuration says, or as it fits where the configuration says nothing."""

from __future__ import annotations

from math import inf

import pytest
from structlog.testing import capture_logs

from sluice.proxy.config.limits import LimitsOptions
from sluice.proxy.connection.limits import ConnectionLimits
from sluice.proxy.parts import follow_connection_limits

MANY = 65_536.0


@pytest.mark.parametrize(
    ("options", "open_files", "in_all", "of_a_user", "unauthenticated"),
    [
        ({}, inf, 10_000, 5_000, 1_000),
        ({}, MANY, 10_000, 5_000, 1_000),
        ({}, 1024.0, 488, 244, 122),
        ({}, 64.0, 8, 16, 16),
        ({"max_connections": 2_000}, MANY, 2_000, 1_000, 500),
        ({"max_connections": 20_000}, MANY, 20_000, 5_000, 1_000),
        (
            {"max_connections": 10, "max_connections_per_user": 9, "max_unauthenticated_connections": 8},
            MANY,
            *(10, 9, 8),
        ),
        (
            {"max_connections_per_user": None, "max_unauthenticated_connections": None},
            MANY,
            10_000,
            None,
            None,
        ),
    ],
)
def test_what_nobody_has_set_fits_the_rest(
    options: dict[str, int | None], open_files: float, in_all: int, of_a_user: int, unauthenticated: int
) -> None:
    limits = ConnectionLimits()
    follow_connection_limits(limits, LimitsOptions.model_validate(options), open_files)
    assert limits.max_connections == in_all
    assert limits.max_connections_per_user == of_a_user
    assert limits.max_unauthenticated == unauthenticated
    assert limits.max_connections_per_address is None
    assert limits.caps_shared_names is ("max_connections_per_user" in options)


def test_more_connections_than_files_are_told() -> None:
    with capture_logs() as lines:
        follow_connection_limits(ConnectionLimits(), LimitsOptions(max_connections=500), 1024.0)
    ((event, in_force),) = [(line["event"], line["in_force"]) for line in lines]
    assert (event, in_force) == ("open_files_bound_connections", 488)
