"""What ends a connection beyond a malformed frame; each with the cause that metrics count."""

from __future__ import annotations

from sluice.protocol.errors import MalformedFrame, ProtocolError
from sluice.proxy.session.causes import DisconnectCause


class NotAuthenticated(ProtocolError):
    """A request that the broker would not answer either before it knows who asks, or no more."""

    cause = DisconnectCause.AUTHENTICATION_FAILED


class LoginNotTaken(ProtocolError):
    """A client's login on a connection of which it is settled otherwise who it is."""

    cause = DisconnectCause.AUTHENTICATION_FAILED


class UnknownApi(ProtocolError):
    """An API key that Kafka 4.3.1 does not have, where the configuration does not let it pass."""

    cause = DisconnectCause.UNKNOWN_API


class RequestTooLarge(ProtocolError):
    """A request that the proxy itself would answer, larger than it reads."""

    cause = DisconnectCause.FRAME_TOO_LARGE


class BrokerError(ProtocolError):
    """The broker's answers do not fit what was asked: nothing more of this connection can be trusted."""

    cause = DisconnectCause.BROKER_CORRELATION


class BrokerMalformed(BrokerError):
    """An answer's frame is broken."""

    cause = DisconnectCause.BROKER_MALFORMED


def contradiction(correlation_id: int, asked_id: int, size: int, api_key: int, version: int) -> ProtocolError:
    """Why this head cannot be of the answer that is due."""
    if correlation_id != asked_id:
        reason = f"correlation id {correlation_id}, due is {asked_id}"
        return BrokerError(reason, api_key=api_key, api_version=version)
    return BrokerMalformed(f"answer of {size} bytes", api_key=api_key, api_version=version)


def malformed_answer(
    error: MalformedFrame, pos: int, api_key: int | None = None, version: int | None = None
) -> BrokerMalformed:
    """`error` with its offset from `pos` on."""
    offset = None if error.offset is None else error.offset - pos
    return BrokerMalformed(error.reason, api_key=api_key, api_version=version, offset=offset)


def client_id_too_long(id_length: int, pos: int, api_key: int, version: int) -> MalformedFrame:
    """In the request that begins at `pos`."""
    reason = f"client id of {id_length} bytes"
    return MalformedFrame(reason, api_key=api_key, api_version=version, offset=pos + 12)


def may_be_cut_off(error: ProtocolError, end: int, enough_end: int) -> bool:
    """What looks malformed may only be cut off by what has arrived."""
    return isinstance(error, MalformedFrame) and end < enough_end
