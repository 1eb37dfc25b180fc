"""The requests of a client that has left: what nobody sends again goes on, what is held is dropped. Pure.

A held request whose client is gone does not go, for it would double the client's retry (wire-semantics 4.1).
Produces with acks = 0 behind it were reported as sent (1.2): they go, in order and by their quota. All else
behind it is dropped, too: an answer would come in the place of one that never does. So it is where nothing
can be sent to the client any more: Kafka's Selector discards what it has received (CloseMode.NOTIFY_ONLY).
"""

from __future__ import annotations

from collections.abc import Callable

from sluice.protocol.apis import AUTHENTICATION_APIS, OFFERED, PRODUCE
from sluice.protocol.headers import request_body
from sluice.protocol.names import api_name
from sluice.protocol.produce import read_acks
from sluice.proxy.session.causes import DisconnectCause
from sluice.proxy.session.own_topic.topic_acl import Judge, TopicGuard
from sluice.proxy.session.read_gate import Pace

_PRODUCE_MIN, _PRODUCE_MAX = OFFERED[PRODUCE]


class Leaving:
    """Looks first at each request of such a client, in the place of the connection's guard."""

    __slots__ = (
        "_drop",
        "_is_for_nobody",
        "_pace",
        "cause",
        "detail",
        "drops",
        "guard",
        "has_passed",
        "then",
    )

    def __init__(
        self,
        pace: Pace,
        guard: TopicGuard | None,
        is_for_nobody: Callable[[], bool],
        drop: Callable[[int, int, int, float], None],
    ) -> None:
        """`guard`: who looks next. `is_for_nobody`: may a request that is answered not go? `drop`: (pos, end
        of what has arrived, end of the frame, now_ms): told which bytes do not go on."""
        self._pace = pace
        self.guard = guard
        self._is_for_nobody = is_for_nobody
        self._drop = drop
        self.drops = False
        """nothing that is answered goes any more"""
        self.has_passed = False
        """since then something with acks = 0 has gone on"""
        self.cause = DisconnectCause.LEFT_WHILE_HELD
        """of the connection's end, where something was dropped"""
        self.detail = ""
        """what was dropped first; "": nothing"""
        self.then: Judge = _nobody
        """who judges what may pass"""

    def judge(
        self, buf: bytearray, pos: int, end: int, frame_end: int, api_key: int, version: int, correlation_id:
        int, client_id_end: int, now_ms: float,
    ) -> bool:  # fmt: skip
        """As the judge behind. True: it goes on, or is dropped."""
        limit = min(end, frame_end)
        if api_key != PRODUCE:
            goes = not self.drops and not self._is_for_nobody()
        elif _PRODUCE_MIN <= version <= _PRODUCE_MAX:
            body = request_body(buf, client_id_end, limit, PRODUCE, version)
            goes = not read_acks(buf, body, limit, version)
        else:
            goes = True  # the judge refuses it
        if goes:
            self.has_passed = self.drops
            then, guard = self.then, self.guard
            if guard is not None:
                guard.then, then = then, guard.judge
            return then(buf, pos, end, frame_end, api_key, version, correlation_id, client_id_end, now_ms)
        self.drops = True
        if not self.detail:
            self.detail = f"a {api_name(api_key)} of {frame_end - pos} bytes not forwarded"
        if api_key in AUTHENTICATION_APIS:
            # Whose the requests behind a login are, and where its bare tokens end, is not known without it.
            self._pace.end(self.cause, self.detail, at_boundary=True)
            return False
        if self.guard is not None:
            self.guard.forget()
        self._drop(pos, limit, frame_end, now_ms)
        return True


def _nobody(*_: object) -> bool:
    raise AssertionError("it was not told who judges behind it")
