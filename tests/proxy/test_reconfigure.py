"""A server whose configuration has changed while it ran, against one that was started with it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from sluice.proxy import server
from sluice.proxy.assembly import watch_rules
from sluice.proxy.config.config import LIVE_OPTIONS, Config
from sluice.proxy.connection.worker import Worker
from sluice.proxy.listener.security import load_security
from sluice.proxy.quota_store.source import QuotaSource
from sluice.proxy.runtime.log import LogSettings
from sluice.proxy.server import Server

OTHER: Final[dict[str, Any]] = {
    "drain.deadline_s": 3.0,
    "limits.authentication_timeout_s": 7.0,
    "limits.idle_timeout_s": 60.0,
    "limits.max_connections": 100,
    "limits.max_connections_per_ip": 9,
    "limits.max_connections_per_user": 60,
    "limits.max_frame_bytes": 1_000_000,
    "limits.max_frame_bytes_before_authentication": 2_000,
    "limits.max_unauthenticated_connections": 50,
    "limits.slow_frame_timeout_s": 8.0,
    "limits.stopped_timeout_s": 90.0,
    "limits.unauthenticated_cpu_share": 0.5,
    "limits.unfinished_bytes_per_user": 5,
    "log.level": "error",
    "pacing.answer_budget_s": 4.0,
    "pacing.client_patience": {"kgo": 60.0},
    "pacing.fetch_delay_default_s": 1.0,
    "pacing.group_delay_max_s": 1.0,
    "pacing.share_fetch_delay_max_s": 1.0,
    "pacing.written_fetch_throttle_max_s": 1.0,
    "quotas.warning_share": 0.5,
    "sasl.oauthbearer_principal_claim": "name",
    "unknown_apis": "close",
}
"""of each option that is put in force while traffic flows, what it may be besides its default"""


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[LogSettings]:
    """The log's settings, in place of which the test's stay in force."""
    settings: list[LogSettings] = []
    monkeypatch.setattr(server, "configure_logging", settings.append)
    return settings


def config_with(folder: Path, *options: str) -> Config:
    file = folder / "quotas.yaml"
    file.write_text("quotas: []\n")
    document: dict[str, Any] = {"listeners": [], "quotas": {"file": str(file)}}
    for number in range(2):
        there = {"bind_host": "127.0.0.1", "bind_port": 0, "upstream_host": "127.0.0.1", "upstream_port": 9}
        document["listeners"].append({"name": f"L{number}", **there})
    for option in options:
        section, _, name = option.partition(".")
        if name:
            document.setdefault(section, {})[name] = OTHER[option]
        else:
            document[section] = OTHER[option]
    return Config.model_validate(document)


@contextmanager
def started(config: Config) -> Iterator[Server]:
    """With its listeners, which accept nobody yet."""
    found = Server(config, QuotaSource(config.quotas), [load_security(one) for one in config.listeners])
    loop = asyncio.get_running_loop()
    poller = found._path.poller
    worker = Worker(loop, found._recorder, found._gauges, found._limits, found._budget, poller)
    with closing(worker):
        found._assemble(worker)
        try:
            yield found
        finally:
            for listener in found._listeners:
                listener.stop()


def in_force(found: Server, log: LogSettings) -> dict[str, Any]:
    """All of a server that live options may change."""
    limits = found._limits
    return {
        "most": (limits.max_connections, limits.max_connections_per_address, limits.max_connections_per_user),
        "guests": (limits.max_unauthenticated, limits.guests.share, limits.caps_shared_names),
        "left behind": found._shared.left_behind.cap_bytes,
        "warnings": found._meter.warnings.share,
        "policies": [listener.policy for listener in found._listeners],
        "logins": [listener.authentication_timeout_s for listener in found._listeners],
        "sweep": watch_rules(found._config.limits).after_ms,
        "end": found._config.drain.deadline_s,
        "log": (log.level, log.format),
    }


def test_every_live_option_is_tried() -> None:
    assert set(OTHER) == LIVE_OPTIONS


@pytest.mark.asyncio
async def test_a_changed_configuration_comes_to_what_a_start_with_it_comes_to(
    tmp_path: Path, told: list[LogSettings]
) -> None:
    plain = config_with(tmp_path)
    with started(plain) as running:
        at_first = in_force(running, plain.log)
        for options in (*((option,) for option in OTHER), tuple(OTHER), ()):
            config = config_with(tmp_path, *options)
            running._reconfigure(config)
            with started(config) as fresh:
                expected = in_force(fresh, config.log)
            assert in_force(running, told[-1]) == expected, options
            assert (expected != at_first) == bool(options), f"{options}: in force nowhere"
