"""A gateway's work on answers: no address of a broker passes as it is. Pure.

Which answers need it is settled when the request goes (`work_in_gateway`); what an answer says of brokers is
learnt, then told as the BrokerMap says. All of Kafka's answers that could carry an address, and what is done
with each, stand in docs/wire.md, "Gateway". In short: rewritten, blanked where the size has gone (Fetch,
ShareFetch, a Produce's above 512 KiB), shown as text (DescribeConfigs), left out (DescribeQuorum), or not
asked for.
"""

from __future__ import annotations

from typing import Final

from sluice.protocol.addresses.addresses import (
    Edit,
    address_edits,
    carries_addresses,
    find_addresses,
    names_controllers,
)
from sluice.protocol.addresses.config_values import (
    QUORUM_WITH_LISTENERS,
    Shown,
    asks_for_brokers,
    hide_quorum_listeners,
    show_configs,
)
from sluice.protocol.addresses.node_endpoints import EndpointEraser
from sluice.protocol.apis import (
    API_VERSIONS,
    BETWEEN_NODES,
    DESCRIBE_CONFIGS,
    DESCRIBE_QUORUM,
    FETCH,
    METADATA,
    OFFERED,
    PRODUCE,
    SHARE_FETCH,
    ApiKey,
)
from sluice.protocol.errors import FrameTooLarge, MalformedFrame, UnsupportedVersion
from sluice.protocol.headers import RESPONSE_HEAD_BYTES, request_body, response_body
from sluice.proxy.session.authentication import WHOLE_MAX_BYTES
from sluice.proxy.session.errors import UnknownApi
from sluice.proxy.session.gateway.broker_map import BrokerMap, HostPort, in_text
from sluice.proxy.session.in_flight import ADDRESSES, CONFIGS, NONE, QUORUM, AnswerWork

_CUT_THROUGH: Final = frozenset({PRODUCE, FETCH, SHARE_FETCH})
_MAX_ID_DIGITS: Final = 10
_ALONE: Final = frozenset({ApiKey.FIND_COORDINATOR, ApiKey.DESCRIBE_CLUSTER})
"""A few bytes of each bring an answer of many times their size, all of it addresses."""
_BRAKE_MS_PER_KIB: Final = 8.0
"""behind an answer of which the codec decodes brokers' results, 0.8 ms for each KiB in which nobody else is
served: so one connection takes a tenth of the time"""
_BRAKE_OF_ADDRESSES_MS_PER_KIB: Final = 3.0
"""the same behind one in which only addresses are looked for, at 0.3 ms"""


def work_in_gateway(
    buf: bytearray, pos: int, client_id_end: int, end: int, frame_end: int, api_key: int, version: int
) -> AnswerWork | None:
    """What the answer to a request will need so that no address leaks; None: more of the request must come.

    Not for Produce and Fetch. Raises UnknownApi and UnsupportedVersion for an answer in which an address
    could pass unseen: an API or version that our tables do not know (ApiVersions caps what clients ask for,
    so that only those get here that do not ask it); FrameTooLarge for a DescribeConfigs that cannot be kept
    whole.
    """
    known = OFFERED.get(api_key)
    if known is None or api_key in BETWEEN_NODES:
        raise UnknownApi("its answer could carry brokers' addresses")
    first, last = known
    if version > last and api_key != API_VERSIONS:
        raise UnsupportedVersion("its answer could carry brokers' addresses")
    if api_key == DESCRIBE_CONFIGS:
        if version < first:
            raise UnsupportedVersion("its answer could carry brokers' addresses")
        if frame_end - pos > WHOLE_MAX_BYTES:
            raise FrameTooLarge(
                f"{frame_end - pos} bytes of configs asked for, the limit is {WHOLE_MAX_BYTES}"
            )
        if frame_end > end:
            return None
        body = request_body(buf, client_id_end, frame_end, api_key, version)
        return CONFIGS if asks_for_brokers(buf, body, frame_end, version) else NONE
    if api_key == DESCRIBE_QUORUM:
        return QUORUM if version >= QUORUM_WITH_LISTENERS else NONE
    return ADDRESSES if carries_addresses(api_key, version) else NONE


def is_slow(api_key: int, work: AnswerWork) -> bool:
    """May the request have the gateway work long on its answer? Then nothing is begun behind it before that
    has come: many at once would be worked on for seconds, whatever brake there is behind each."""
    return work is CONFIGS or work is QUORUM or (work is ADDRESSES and api_key in _ALONE)


def brake_ms_per_kib(work: AnswerWork) -> float:
    """The brake behind each KiB of an answer that `AddressWork.rewrite` has looked at."""
    return _BRAKE_OF_ADDRESSES_MS_PER_KIB if work is ADDRESSES else _BRAKE_MS_PER_KIB


class AddressWork:
    """Rewrites the addresses in one connection's answers."""

    __slots__ = ("_brokers", "_edits", "_eraser")

    def __init__(self, brokers: BrokerMap, edits: list[Edit]) -> None:
        """`edits`: where replacements are left for the shell."""
        self._brokers = brokers
        self._edits = edits
        self._eraser: EndpointEraser | None = None

    @property
    def left_bytes(self) -> int:
        """What has not passed yet of the answer that `pass_on` goes on with; 0: there is none."""
        return 0 if self._eraser is None else self._eraser.left_bytes

    @staticmethod
    def enough_arrived(
        buf: bytearray, pos: int, end: int, frame_end: int, api_key: int, version: int
    ) -> bool:
        """Can the answer be worked on whose end has not arrived? (Fetch and ShareFetch: always.)

        Of Metadata the brokers must have come. Others are kept until they are whole; a Produce's too large
        for that is cut through. Raises FrameTooLarge for all else that is too large to be kept.
        """
        if api_key == METADATA:
            if end - pos > WHOLE_MAX_BYTES:
                return True  # what is wrong now stays wrong
            try:
                body = response_body(buf, pos, end, api_key, version)
                find_addresses(buf, body, end, api_key, version)
            except MalformedFrame:  # most likely it is only cut off
                return False
            return True
        if frame_end - pos <= WHOLE_MAX_BYTES:
            return False
        if api_key != PRODUCE:
            raise FrameTooLarge(f"an answer of {frame_end - pos} bytes with addresses to rewrite")
        return True

    def rewrite(
        self, buf: bytearray, pos: int, end: int, frame_end: int, api_key: int, version: int, work: AnswerWork
    ) -> int:
        """Learn from the answer and rewrite it: adds edits, or patches `buf` in place and begins what
        `pass_on` ends (`left_bytes`). Returns how many bytes took long to look at: none of those that carry
        records, for their quotas are others.

        Raises MalformedFrame, and then has added nothing.
        """
        if work is CONFIGS or work is QUORUM:
            frame = bytes(buf[pos:frame_end])
            shown = self._shown(frame, version) if work is CONFIGS else hide_quorum_listeners(frame, version)
            if shown != frame:
                self._edits.append((pos, frame_end, shown))
            return frame_end - pos
        if carries_addresses(api_key, version):
            if frame_end > end and api_key in _CUT_THROUGH:
                self._eraser = EndpointEraser(api_key, version, frame_end - pos - RESPONSE_HEAD_BYTES)
                self.pass_on(buf, pos + RESPONSE_HEAD_BYTES, end)
            else:
                looked_to = self._rewrite_addresses(
                    buf, pos, min(end, frame_end), frame_end, api_key, version
                )
                return 0 if api_key in _CUT_THROUGH else looked_to - pos
        return 0

    def pass_on(self, buf: bytearray, start: int, end: int) -> int:
        """The answer whose beginning has gone goes on at `buf[start:end]`. Returns the offset up to which
        its bytes may go."""
        eraser = self._eraser
        assert eraser is not None
        cut = eraser.pass_on(buf, start, end)
        if not eraser.left_bytes:
            self._eraser = None
        return cut

    def _rewrite_addresses(
        self, buf: bytearray, pos: int, end: int, frame_end: int, api_key: int, version: int
    ) -> int:
        """Returns up to where the answer was looked at."""
        brokers = self._brokers
        body = response_body(buf, pos, end, api_key, version)
        addresses = find_addresses(buf, body, end, api_key, version)
        looked_to = end
        if api_key == METADATA:  # its brokers alone, which stand before its topics
            looked_to = addresses[-1].stop if addresses else pos
        if not addresses:
            return looked_to
        edits = address_edits(pos, frame_end, addresses, brokers.mapping)
        if not names_controllers(buf, body, end, api_key, version):
            for address in addresses:
                brokers.learn(address.node_id, address.host, address.port)
        self._edits += edits
        return looked_to

    def _shown(self, frame: bytes, version: int) -> bytes:
        brokers = self._brokers

        def of_broker(resource_name: str) -> str:
            number = resource_name.isascii() and resource_name.isdecimal()
            known: HostPort = brokers.bootstrap
            if number and len(resource_name) <= _MAX_ID_DIGITS:
                known = brokers.advertised(int(resource_name))
            return in_text(known)

        shown = Shown(of_broker, brokers.known_as, in_text(brokers.bootstrap), brokers.hide)
        return show_configs(frame, version, shown)
