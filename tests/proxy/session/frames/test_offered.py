"""What is offered to a client, where the broker's answer to ApiVersions cannot be read."""

from __future__ import annotations

from sluice.protocol.codec.wire import Struct, Value
from sluice.proxy.session.authentication import WHOLE_MAX_BYTES
from testkit.frames.frames import API_VERSIONS, answer, request
from testkit.proxy.playbook import limits_of, shared_of, shell_of


def test_what_is_offered_is_not_looked_for_in_a_newer_answer_to_api_versions_or_one_too_large() -> None:
    """They go on as the broker wrote them: what cannot be metered is refused when it is used."""
    offered: Struct = {"apiKeys": [{"apiKey": 0, "minVersion": 0, "maxVersion": 99}]}
    newer = bytearray(request(API_VERSIONS, 4))
    newer[6:8] = (9).to_bytes(2, "big")
    unsupported = answer(API_VERSIONS, 0, offered | {"errorCode": 35})
    keys: list[Value] = [{"apiKey": number % 90, "maxVersion": 99} for number in range(200_000)]
    large = answer(API_VERSIONS, 4, {"apiKeys": keys})
    assert len(large) > WHOLE_MAX_BYTES
    for asked, answered in ((bytes(newer), unsupported), (request(API_VERSIONS, 4), large)):
        shell = shell_of(shared_of(limits_of(produce_rate=1_000)))
        shell.client_sends(asked)
        for at in range(0, len(answered), 60_000):
            shell.broker_sends(answered[at : at + 60_000])
        assert shell.to_client == answered
