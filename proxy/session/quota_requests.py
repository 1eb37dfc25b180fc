"""What clients ask about quotas and the proxy answers itself: taken out of a connection, answered later.

Handed out as a value (`LocalAnswers.question`), answered with one: what happens in between is the shell's.
The connection begins nothing further until then, so the question is always the last in flight, and its answer
the last of those of our own that are due. Who may ask is judged where it is answered
(quota_store/service.py). Pure. Source: KIP-546 (DescribeClientQuotas 48, AlterClientQuotas 49).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from sluice.protocol.apis import ApiKey
from sluice.protocol.errors import UnsupportedVersion
from sluice.protocol.headers import SIZE_BYTES
from sluice.proxy.session.errors import NotAuthenticated, RequestTooLarge
from sluice.proxy.session.identity import Identity
from sluice.proxy.session.in_flight import LOCAL, InFlight
from sluice.proxy.session.local_responses import LocalAnswers, QuotaQuestion
from sluice.proxy.session.policy import QuotaApi
from sluice.proxy.session.read_gate import Pace
from sluice.usage.records import Flow, RequestRecord

_OF_ANYBODY_BYTES: Final = 65_536
"""of who may not ask: his request is read only to refuse each part of it"""
_BRAKE_MS_PER_KIB: Final = 60.0
"""behind a change that was refused: reading what it names takes a millisecond, so one connection takes a
sixtieth of the time. As behind what names the quota topic (own_topic/topic_acl.py)"""
_OF_ADMINS_BYTES: Final = 8_388_608
"""more than 50,000 entities at once"""


class QuotaRequests:
    """Takes one connection's questions about quotas out of its requests."""

    __slots__ = ("_api", "_asked", "_drop", "_identity", "_in_flight", "_local", "_pace", "_records")

    def __init__(
        self,
        api: QuotaApi,
        pace: Pace,
        identity: Identity,
        in_flight: list[InFlight],
        local: LocalAnswers,
        records: list[RequestRecord],
        drop: Callable[[int, int], None],
    ) -> None:
        """`records`: of what has been answered. `drop`: told which bytes do not go on."""
        self._api = api
        self._drop = drop
        self._pace = pace
        self._identity = identity
        self._in_flight = in_flight
        self._local = local
        self._records = records
        self._asked: tuple[int, int, str, Flow, int] = (0, 0, "", identity.flow, 0)

    def ask(
        self,
        buf: bytearray,
        pos: int,
        end: int,
        frame_end: int,
        api_key: int,
        version: int,
        correlation_id: int,
        now_ms: float,
    ) -> bool:
        """Take the request out. False: more of it must come first.

        Raises ProtocolError for one that cannot be answered. On a session that is over that is any: the
        broker would end the connection (SocketServer.processCompletedReceives), but does not see it.
        """
        if now_ms > self._identity.session_ends_at_ms:
            raise NotAuthenticated("a question about quotas, and the session is over (KIP-368)")
        user = self._identity.user
        most = _OF_ADMINS_BYTES if user in self._api.admins else _OF_ANYBODY_BYTES
        if frame_end - pos > most:
            raise RequestTooLarge(f"a request about quotas of {frame_end - pos} bytes; {most} are read")
        if not 0 <= version <= 1:
            raise UnsupportedVersion("this version cannot be answered")
        if frame_end > end:
            return False
        client_id, flow = self._identity.client_id, self._identity.flow
        frame = bytes(buf[pos + SIZE_BYTES : frame_end])
        self._local.question = QuotaQuestion(api_key, version, correlation_id, user, client_id, frame)
        self._asked = (api_key, version, user, flow, frame_end - pos)
        self._in_flight.append(
            (correlation_id, api_key, version, flow, frame_end - pos, now_ms, 0.0, 0.0, None, LOCAL)
        )
        self._drop(pos, frame_end)
        self._pace.await_broker()
        return True

    def answered(self, answer: bytes, now_ms: float) -> None:
        """The answer has come: it goes at once, or behind what is due before it; the client is read again."""
        local, in_flight = self._local, self._in_flight
        if len(in_flight) == 1 and not local.mid_answer:
            in_flight.pop(0)
            local.at_once.append(answer)
        else:
            local.wait(answer)
        api_key, version, user, flow, request_bytes = self._asked
        self._records.append((
            flow, request_bytes, len(answer), 0.0, 0.0, 0.0, now_ms,
            api_key, version, user, None,
        ))  # fmt: skip
        self._pace.broker_answered()
        if api_key == ApiKey.ALTER_CLIENT_QUOTAS and user not in self._api.admins:
            until_ms = now_ms + request_bytes / 1_024 * _BRAKE_MS_PER_KIB
            self._pace.mute(until_ms, now_ms, None, at_boundary=True)
