"""What happened, as values: one record per finished request, and one per hold, mute and refusal.

The single source of the metrics and of the access log (units in names, schema in this one place).
A request record is a plain tuple because it is written once per request on the hot path (about 90 ns; a
NamedTuple costs 250 ns, a frozen dataclass 900 ns); the rarer ones are NamedTuples.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from operator import itemgetter
from typing import Final, NamedTuple, TypeAlias

from sluice.quotas.entity import QuotaEntity
from sluice.quotas.sensors.sensor import Sensor

ASK: Final = -1
"""instead of a flow's number"""


class Flow:
    """What requests of one connection have in common, so that it is looked up once for all of them.

    Without an access log that is their client id; with one, an AccessFlow (flow.py) also has their
    topic and what stands for them in the log.
    """

    # Here and not in AccessFlow, so that it lies beside the reference count: a line of the cache less.
    __slots__ = ("client_id", "number")

    def __init__(self, client_id: str = "") -> None:
        self.client_id: Final = client_id
        """"" for a null one"""
        self.number = ASK
        """what stands for it in the columns of an access log; ASK: its requests are looked at one by one"""


RequestRecord: TypeAlias = tuple[
    Flow,  # of its client id; with an access log, of its topic too
    int,  # request_bytes, on the wire, size prefix included
    int,  # response_bytes, likewise; 0 for acks=0
    float,  # upstream_ms: from the last hold's end (or the read) to the answer's first byte; 0.0 for acks=0
    float,  # throttle_ms: what its quota asked the connection to wait in all (0.0: within quota)
    float,  # held_ms: how long we kept it before forwarding
    float,  # finished_ms, monotonic
    int,  # api_key
    int,  # api_version
    str,  # user: the principal's name, without its type ("alice" of User:alice)
    "Sensor | None",  # whose quota was charged, or None (unlimited, or not a metered API)
]
"""One finished request, in this order: first what the access log wants of each, so that its columns need not
be made of all there is (Rollup)."""
finished_ms_of: Final[Callable[[RequestRecord], float]] = itemgetter(6)


class EventKind(StrEnum):
    """What the proxy did to a connection by its own doing."""

    HOLD = "hold"
    MUTE = "mute"
    REFUSAL = "refusal"
    DROP = "drop"
    SHADOW = "shadow"
    """nothing was done: a limit in shadow mode would have delayed the request"""


class ThrottleEvent(NamedTuple):
    """One hold, mute, refusal or drop, written when it begins."""

    kind: EventKind
    begun_ms: float
    """monotonic"""
    delay_ms: float
    """how long it will last; 0 for a refusal or a drop; of SHADOW: how long it would have lasted"""
    quota: str
    """the quota kind's name, as in the metric label: produce, fetch, …"""
    rule: str
    """the level that applied: user_client, …, default_client"""
    user: str
    client_id: str
    api_key: int
    charged_bytes: int
    address: str = ""
    """the client's; of producer ids only, where it says who brings them"""
    reason: str = ""
    """of the REFUSAL of producer ids: a value of sluice.proxy.session.producer_ids.gate.RefusalReason; of a
    Produce for its bytes: of ByteReason (byte_refusal.py beside it)"""
    limit: float = 0.0
    """the limit as it is configured, in its kind's unit; 0: not told"""
    charged: float = 0.0
    """what the request was charged, or asks for while it is held, in its kind's unit; of bytes it is
    charged_bytes"""
    bucket: QuotaEntity | None = None
    """whose connections share the limit; None: the user and client id, as far as the rule has them"""
    flow: Flow | None = None
    """of the request"""
    continues: bool = False
    """the mute of a request that was held, and is told as delayed already"""


class Amount(NamedTuple):
    """Something rare that only the access log adds up."""

    flow: Flow
    column: str
    """of its roll-up"""
    amount: float
    at_ms: float
    """monotonic"""


class Unanswered(NamedTuple):
    """A request that was forwarded, and whose connection ended before an answer came."""

    flow: Flow
    api_key: int
    api_version: int
    request_bytes: int
    forwarded_ms: float
    """monotonic"""
    held_ms: float
    ended_ms: float


class ConnectionRecord(NamedTuple):
    """One client connection that ended."""

    cause: str
    """a value of sluice.proxy.session.causes.DisconnectCause"""
    detail: str
    """what and where, for the log; empty for an ordinary end"""
    peer: str
    user: str
    client_id: str
    opened_ms: float
    closed_ms: float
    requests: int
    bytes_from_client: int
    bytes_to_client: int


class Recorder:
    """Where sessions leave their records; the usage meter takes them out in batches (`take_*`)."""

    __slots__ = (
        "amounts", "arrivals", "connections", "exempt_request_ms", "followers", "requests", "throttles",
        "unanswered",
    )  # fmt: skip

    def __init__(self) -> None:
        self.exempt_request_ms = {"cluster_action": 0.0, "rule": 0.0}
        """request time that is not limited, by reason: between brokers, or an exempt rule; never falls"""
        self.followers = {"exempt": 0, "charged": 0}
        """connections whose Fetches name a replica: taken for a broker's, or charged as any client's; never
        falls"""
        self.requests: list[RequestRecord] = []
        self.throttles: list[ThrottleEvent] = []
        self.connections: list[ConnectionRecord] = []
        self.amounts: list[Amount] = []
        self.unanswered: list[Unanswered] = []
        self.arrivals: list[tuple[str, float]] = []
        """(the client's address, when, monotonic in ms) of each connection that was accepted"""

    @property
    def is_empty(self) -> bool:
        """Nothing has been recorded since the last time."""
        return not (
            self.requests
            or self.throttles
            or self.connections
            or self.amounts
            or self.unanswered
            or self.arrivals
        )

    def clear(self) -> None:
        """All has been counted. Emptied in place, for sessions hold on to the lists."""
        for one in (
            self.requests, self.throttles, self.connections, self.amounts, self.unanswered, self.arrivals,
        ):  # fmt: skip
            one.clear()
