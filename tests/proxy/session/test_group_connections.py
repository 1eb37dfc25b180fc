"""Which requests, in each version, make a connection a group's: delays end after 2 s (wire-semantics 1.5).

A connection that carried none of these is muted for 3 s by a Fetch, and for 8 s by a Produce.
"""

from __future__ import annotations

import pytest

from sluice.protocol._tables import API_NAMES
from sluice.protocol.apis import GROUP_APIS, OFFERED
from testkit.frames.frames import (
    answer,
    fetch,
    fetch_answer_of,
    produce_answer,
    produce_of,
    request,
    throttle_of,
)
from testkit.frames.mutation_frames import CREATE_TOPICS, created
from testkit.proxy.mutation_session import creates, shell_of
from testkit.proxy.playbook import Shell, session_of

ALL_VERSIONS = pytest.mark.parametrize(
    ("api_key", "version"),
    [
        pytest.param(api_key, version, id=f"{API_NAMES[api_key]}-v{version}")
        for api_key in sorted(GROUP_APIS | {88, 89})
        for version in range(OFFERED[api_key][0], OFFERED[api_key][1] + 1)
    ],
)
FETCH, PRODUCE = 1, 0


def of_a_group(shell: Shell, api_key: int, version: int) -> Shell:
    """It carries this request, and its answer."""
    shell.client_sends(request(api_key, version, correlation_id=9))
    shell.broker_sends(answer(api_key, version, correlation_id=9))
    assert shell.cause is None, shell.detail
    shell.to_client.clear()
    return shell


def delay_ms(shell: Shell) -> float:
    """What is still to be waited."""
    assert shell.is_delayed
    return shell.session.pace.wake_at_ms - shell.now_ms


@ALL_VERSIONS
def test_a_fetch_mutes_a_groups_connection_for_two_seconds(api_key: int, version: int) -> None:
    shell = of_a_group(Shell(session_of(fetch_rate=1_000)), api_key, version)
    shell.client_sends(fetch())
    shell.broker_sends(fetch_answer_of(60_000))
    assert delay_ms(shell) == 2_000


@ALL_VERSIONS
def test_a_produce_is_held_on_a_groups_connection_for_two_seconds(api_key: int, version: int) -> None:
    shell = of_a_group(Shell(session_of(produce_rate=1_000)), api_key, version)
    shell.client_sends(produce_of(60_000))
    assert delay_ms(shell) == 2_000
    shell.broker_sends(produce_answer(throttle_ms=0))
    shell.advance(2_000)
    shell.client_sends(produce_of(1_000))
    assert delay_ms(shell) == 2_000


@ALL_VERSIONS
def test_created_topics_mute_a_groups_connection_for_two_seconds(api_key: int, version: int) -> None:
    shell = of_a_group(shell_of(), api_key, version)
    creates(shell, {"a": 60}, version=5)
    shell.broker_sends(created({"a": (0, 60)}, version=5))
    assert throttle_of(CREATE_TOPICS, 5, shell.to_client) == 2_000
    assert delay_ms(shell) == 2_000
