"""A session under controller_mutation_rate: 2 partitions a second, 22 tokens (11 windows) at first."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from sluice.proxy.session.connection_states import State
from sluice.proxy.session.policy import SessionPolicy
from sluice.proxy.session.session import Session
from sluice.quotas.entity import DEFAULT, QuotaEntity
from sluice.quotas.exempt import ExemptRule
from sluice.quotas.kinds import QuotaKind
from sluice.quotas.limits.limits import QuotaLimits
from testkit.frames.mutation_frames import create, created, sizes
from testkit.proxy.playbook import Shell, shared_of

KEY = "controller_mutation_rate"
EVERYBODY = QuotaEntity(DEFAULT)


def connections(rate: float = 2.0) -> Callable[[], Shell]:
    """Opens a further connection of one user at each call."""
    shared = shared_of(QuotaLimits([(EVERYBODY, {KEY: rate})]))
    return lambda: Shell(Session(shared, SessionPolicy(), "10.0.0.1"))


def shell_of(rate: float = 2.0, *, shadow: bool = False, exempt: bool = False) -> Shell:
    limits = QuotaLimits(
        [(EVERYBODY, {KEY: rate})],
        shadow={EVERYBODY: [KEY]} if shadow else {},
        exempt=[ExemptRule(user="ANONYMOUS")] if exempt else (),
    )
    return Shell(Session(shared_of(limits), SessionPolicy(), "10.0.0.1"))


def tokens(shell: Shell) -> float:
    return shell.sensor(QuotaKind.CONTROLLER_MUTATION).tokens(shell.now_ms)


def creates(
    shell: Shell, topics: Mapping[str, int], *, version: int = 7, validate_only: bool = False,
    correlation_id: int = 1,
) -> None:  # fmt: skip
    """The client asks for topics that are not there. If the proxy asks whether they are, that is answered,
    and is no part of `to_broker`."""
    before = len(shell.to_broker)
    shell.client_sends(
        create(topics, version=version, validate_only=validate_only, correlation_id=correlation_id)
    )
    names = list(topics)
    while names and shell.state is State.AWAITING_BROKER:
        del shell.to_broker[before:]
        shell.broker_sends(sizes(dict.fromkeys(names[:100], (0, 0)), correlation_id=correlation_id))
        del names[:100]


def in_debt(partitions: int = 10) -> Shell:
    """Strict: what was asked for at once has gone, and `partitions` are owed."""
    shell = shell_of()
    creates(shell, {"large": 22 + partitions})
    shell.broker_sends(created({"large": (0, 22 + partitions)}))
    shell.to_broker.clear()
    shell.to_client.clear()
    return shell
