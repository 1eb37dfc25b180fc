"""The section `inter_broker` of the configuration: how followers' Fetches are told from clients'."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from pydantic import Field

from sluice.proxy.config.options import Options, Text
from sluice.quotas.entity import ANONYMOUS
from sluice.quotas.files.config_error import why_not_user

INTER_BROKER_REMEDY: Final = (
    "a follower that fetches through this proxy would be charged as a client: give the brokers a listener of "
    "their own past it (inter.broker.listener.name) and write `inter_broker: {}`, or declare their listener "
    "or their principals there"
)


class InterBrokerOptions(Options):
    """Who is a broker: a follower's Fetch that one of these covers is charged to nobody, and never delayed;
    nor is what only brokers ask each other charged, whatever is answered.

    A replica id alone counts for nothing, since any client can write one. Declare what comes through Sluice;
    an empty section says that brokers do not.
    """

    listeners: tuple[Text, ...] = Field(
        default=(),
        description="Names of listeners that only brokers use (Kafka: inter.broker.listener.name). No client "
        "may reach them: on them a replica id is believed.",
    )
    users: tuple[Text, ...] = Field(
        default=(),
        description="Principals of the brokers, without `User:`, on any listener that authenticates (SASL, "
        "or certificates of clients).",
    )


def inter_broker_contradictions(
    options: InterBrokerOptions | None, mode: str, listeners: Sequence[str], authenticates: bool
) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """What is fine by itself but not together: (path of the key to change, what is wrong and the remedy).

    `listeners`: the names of all; `authenticates`: one of them at least does.
    """
    if options is None:
        return
    if mode != "broker" and (options.listeners or options.users):
        yield ("inter_broker",), "is for mode broker: followers do not come through a gateway"
    for index, name in enumerate(options.listeners):
        if name not in listeners:
            known = ", ".join(listeners)
            yield ("inter_broker", "listeners", index), f"{name!r} is none of the listeners ({known})"
    for index, user in enumerate(options.users):
        at = ("inter_broker", "users", index)
        if (reason := why_not_user(user)) is not None:
            yield at, reason
        elif user == ANONYMOUS:
            yield at, "is whoever did not log in, and so anybody; declare a listener instead"
    if options.users and not authenticates:
        yield ("inter_broker", "users"), "no listener authenticates, so that nobody has a principal"
