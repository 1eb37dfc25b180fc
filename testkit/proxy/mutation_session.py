"""A session under controller_mutation_rate: 2 partitions a second, 22 tokens (11 windows) at first."""

from __future__ import annotations

from collections.abc import Callable

from sluice.proxy.session.policy import SessionPolicy
from sluice.proxy.session.session import Session
from sluice.quotas.entity import DEFAULT, QuotaEntity
from sluice.quotas.exempt import ExemptRule
from sluice.quotas.kinds import QuotaKind
from sluice.quotas.limits.limits import QuotaLimits
from testkit.frames.mutation_frames import create, created
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


def in_debt(partitions: int = 10) -> Shell:
    """Strict: what was asked for at once has gone, and `partitions` are owed."""
    shell = shell_of()
    shell.client_sends(create({"large": 22 + partitions}))
    shell.broker_sends(created({"large": (0, 22 + partitions)}))
    shell.to_broker.clear()
    shell.to_client.clear()
    return shell
