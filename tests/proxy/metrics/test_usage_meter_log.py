"""What the meter says in the log: connections that ended badly, throttling, and never a flood."""

from __future__ import annotations

import pytest
import structlog

from sluice.proxy.session.causes import DisconnectCause
from sluice.quotas.limits.limits import QuotaLimits
from sluice.usage.records import ConnectionRecord
from testkit.proxy.meter_bench import NOW_MS, Bench, event, limits_of

pytestmark = pytest.mark.usefixtures("log_lines")


def connection(cause: DisconnectCause, detail: str = "") -> ConnectionRecord:
    return ConnectionRecord(cause, detail, "10.0.0.9:5", "alice", "app", NOW_MS - 1500.0, NOW_MS, 3, 100, 200)


def test_ended_connections_are_counted_by_cause_and_logged_if_there_is_something_to_say(
    log_lines: list[structlog.typing.EventDict],
) -> None:
    bench = Bench(QuotaLimits())
    bench.recorder.connections.extend(
        [
            connection(DisconnectCause.CLIENT_CLOSED),
            connection(DisconnectCause.MALFORMED_FRAME, "a count that cannot fit, api Fetch (1)"),
        ]
    )
    bench.drain()
    assert {cause: n for cause, n in bench.meter.disconnects.items() if n} == {
        "client_closed": 1,
        "malformed_frame": 1,
    }
    (line,) = log_lines
    assert (line["event"], line["cause"], line["open_s"]) == ("connection_closed", "malformed_frame", 1.5)
    assert line["detail"] == "a count that cannot fit, api Fetch (1)"


def test_a_flood_of_bad_connections_does_not_flood_the_log(
    log_lines: list[structlog.typing.EventDict],
) -> None:
    bench = Bench(QuotaLimits())
    for _ in range(1000):
        bench.recorder.connections.append(connection(DisconnectCause.TLS_ON_PLAINTEXT, "TLS ClientHello"))
    bench.drain()
    assert len(log_lines) == 20
    assert bench.meter.disconnects["tls_on_plaintext"] == 1000
    bench.recorder.connections.append(connection(DisconnectCause.TLS_ON_PLAINTEXT, "TLS ClientHello"))
    bench.drain(NOW_MS + 1000)
    assert log_lines[-1]["lines_suppressed"] == 980


def test_throttling_is_logged_as_it_begins_and_ends(log_lines: list[structlog.typing.EventDict]) -> None:
    bench = Bench(limits_of(alice=1000))
    bench.recorder.throttles.append(event("alice"))
    bench.drain(NOW_MS)
    bench.drain(NOW_MS + 20_000)
    assert [(line["event"], line["user"], line["quota"]) for line in log_lines] == [
        ("throttling_began", "alice", "produce"),
        ("throttling_ended", "alice", "produce"),
    ]


@pytest.mark.parametrize(
    ("now", "told"),
    [
        (limits_of(alice=1000), {}),
        (limits_of(alice=4000), {"limit_now_bytes_per_s": 4000}),
        (limits_of(default=700), {"limit_now_bytes_per_s": 700}),
        (QuotaLimits(), {"limit_now": "none"}),
    ],
)
def test_the_end_tells_the_limit_of_the_begin_and_what_it_is_now_if_it_was_changed(
    now: QuotaLimits, told: dict[str, object], log_lines: list[structlog.typing.EventDict]
) -> None:
    bench = Bench(limits_of(alice=1000))
    bench.recorder.throttles.append(event("alice")._replace(limit=1000.0))
    bench.drain(NOW_MS)
    bench.quotas.reload(now, NOW_MS)
    bench.drain(NOW_MS + 20_000)
    began, ended = log_lines
    assert (began["limit_bytes_per_s"], ended["limit_bytes_per_s"]) == (1000, 1000)
    assert {key: value for key, value in ended.items() if key.startswith("limit_now")} == told
    assert not [key for key in began if key.startswith("limit_now")]
