"""No client holds the others up by tagged fields: of few bytes each, and each a turn of a loop."""

from __future__ import annotations

import struct

import pytest

from sluice.protocol.codec.wire import encode_varint
from sluice.protocol.produce import ProduceUsage
from sluice.proxy.session.causes import DisconnectCause
from sluice.proxy.session.own_topic.own_topic import OwnTopic
from sluice.proxy.session.policy import SessionPolicy, SharedState
from sluice.proxy.session.session import Session
from sluice.quotas.entity import DEFAULT, QuotaEntity
from sluice.quotas.limits.limits import QuotaLimits
from sluice.quotas.manager import QuotaManager
from sluice.usage.flow import TopicNames
from sluice.usage.records import Recorder
from testkit.frames.frames import FETCH, JOIN_GROUP, PRODUCE, fetch, produce, request, sized
from testkit.proxy.playbook import Shell, limits_of
from tests.protocol.test_produce_hostile import lines_run

CREATE_TOPICS, ADD_PARTITIONS_TO_TXN, SHARE_FETCH = 19, 24, 78
REQUESTS = {
    "produce": produce(version=9),
    "fetch": fetch(version=12),
    "share fetch": request(SHARE_FETCH, 2, {"memberId": "m"}),
    "join": request(JOIN_GROUP, 9, {"groupId": "g"}),
    "create": request(CREATE_TOPICS, 7, {}),
    "transaction": request(
        ADD_PARTITIONS_TO_TXN, 3, {"v3AndBelowTransactionalId": "t", "v3AndBelowProducerId": 1}
    ),
}
LIMITS = {
    "producer_byte_rate": 1e9, "consumer_byte_rate": 1e9, "controller_mutation_rate": 10.0,
    "producer_ids_rate": 100.0, "request_percentage": 100.0,
}  # fmt: skip
SETTINGS = pytest.mark.parametrize("setting", ["nothing", "access log", "limits", "own topic"])


def shell(setting: str) -> Shell:
    limits = limits_of()
    if setting == "limits":
        limits = QuotaLimits([(QuotaEntity(DEFAULT, None), LIMITS)])
    own = OwnTopic("__sluice_quotas", frozenset()) if setting == "own topic" else None
    names = TopicNames() if setting == "access log" else None
    shared = SharedState(QuotaManager(limits), Recorder(), topic_names=names, own_topic=own)
    return Shell(Session(shared, SessionPolicy(), "10.0.0.1"))


def with_header_tags(frame: bytes, tags: int) -> bytes:
    assert frame[17] == 0
    return sized(frame[4:17] + encode_varint(tags) + b"\x64\0" * tags + frame[18:])


@SETTINGS
@pytest.mark.parametrize("frame", REQUESTS.values(), ids=REQUESTS)
def test_a_header_of_more_than_100_tagged_fields_ends_its_connection(frame: bytes, setting: str) -> None:
    one = shell(setting)
    one.client_sends(with_header_tags(frame, 100))
    assert (one.cause, one.session.requests) == (None, 1)
    one = shell(setting)
    one.client_sends(with_header_tags(frame, 101))
    assert one.cause is DisconnectCause.MALFORMED_FRAME
    assert "101 tagged fields in one section, must be ≤ 100" in one.detail
    assert not one.to_broker


@SETTINGS
@pytest.mark.parametrize(("api_key", "version"), [(PRODUCE, 9), (FETCH, 12), (JOIN_GROUP, 9)])
def test_what_trickles_in_behind_many_tagged_fields_does_not_have_them_read_anew_each_time(
    api_key: int, version: int, setting: str
) -> None:
    """65,000 announced, all but the last have come: a byte more cost 800,000 lines."""
    tags = 65_000
    header = struct.pack(">ihhih", 2_000_000, api_key, version, 1, 3) + b"app"
    one = shell(setting)
    one.client_sends(header + encode_varint(tags + 1) + b"\x64\0" * tags + b"\x64" + encode_varint(10**6))
    assert lines_run(lambda: one.client_sends(b"x")) < 2_000


@pytest.mark.parametrize("setting", ["limits", "own topic"])
@pytest.mark.parametrize("begin", ["more to come", "malformed"])
def test_what_trickles_in_behind_many_partitions_does_not_have_them_walked_anew_each_time(
    monkeypatch: pytest.MonkeyPatch, begin: str, setting: str
) -> None:
    """60 KiB of empty partitions took 10 ms for each byte that came behind them, also where what came next
    was malformed: that is told when the first 128 KiB are here."""
    walks: list[int] = []
    walk = ProduceUsage._walk_flexible

    def noted(usage: ProduceUsage, buf: bytearray, pos: int, limit: int, *rest: int) -> int:
        walks.append(limit)
        return walk(usage, buf, pos, limit, *rest)

    monkeypatch.setattr(ProduceUsage, "_walk_flexible", noted)
    head = struct.pack(">hhih", PRODUCE, 9, 1, 3) + b"app\0" + b"\0" + struct.pack(">hi", 1, 30_000)
    partitions = (b"\0\0\0\1" + b"\1" + b"\0") * 10_000
    told = 10_000 if begin == "malformed" else 15_000
    topics = b"\3" + b"\2t" + encode_varint(told + 1) + partitions
    one = shell(setting)
    one.client_sends(struct.pack(">i", 200_000) + head + topics + encode_varint(199_000) * 2)
    for _ in range(1_000):
        one.client_sends(b"\1")
    assert len(walks) <= 2
    assert one.cause is None
    one.client_sends(b"\xff" * 200_000)
    assert one.cause is DisconnectCause.MALFORMED_FRAME
