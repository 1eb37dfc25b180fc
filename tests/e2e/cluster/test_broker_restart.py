"""The only broker behind the proxy goes away in mid-traffic and comes back: all go on, exactly once."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from testkit.clients.everybody import OF_A_LAST_BROKER, WITHOUT_FRAIL, everybody_at_work
from testkit.clients.kafka_clients import LEAVES_SOCKETS
from testkit.kafka.dist import ensure_kafka
from testkit.kafka.lock import CURRENT, OLDEST, KafkaRelease
from testkit.kafka.node import KafkaNode
from testkit.processes.ports import LOOPBACK, free_port
from testkit.proxy.sluice_process import SluiceProcess, doors_of

Unique = Callable[[str], str]

pytestmark = [
    pytest.mark.kafka,
    *LEAVES_SOCKETS,
]


@pytest.mark.parametrize(
    ("release", "graceful", "throttled"),
    [
        pytest.param(OLDEST, False, True, id="3.9-killed-throttled"),
        pytest.param(OLDEST, True, True, id="3.9-shut-down-throttled", marks=pytest.mark.slow),
        pytest.param(CURRENT, False, False, id="4.3-killed-without-quota", marks=pytest.mark.slow),
    ],
)
def test_everybody_goes_on_when_the_broker_is_back(
    unique: Unique, release: KafkaRelease, graceful: bool, throttled: bool
) -> None:
    dist = ensure_kafka(release=release)
    advertised = {"SLUICE": (LOOPBACK, free_port())}
    with (
        KafkaNode(dist, advertised=advertised) as kafka,
        SluiceProcess(doors_of(kafka, ["SLUICE"])) as proxy,
    ):
        who = OF_A_LAST_BROKER if graceful else WITHOUT_FRAIL
        with everybody_at_work(kafka, proxy, unique, throttled=throttled, who=who):
            kafka.stop(graceful=graceful)
            kafka.start()
        assert proxy.disconnects("upstream_unreachable") > 0
