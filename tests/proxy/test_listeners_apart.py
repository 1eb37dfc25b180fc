"""Two listeners in front of one broker: what is wrong with the way of one is no fault of the other's."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from testkit.frames.questions import is_served
from testkit.frames.wire import dial
from testkit.peers.certificates import CertificateAuthority
from testkit.peers.tls_broker import TlsBroker
from testkit.processes.ports import LOOPBACK, free_ports
from testkit.proxy.sluice_process import Door, SluiceProcess

pytestmark = pytest.mark.asyncio
ROUNDS = 40


def doors_of(broker_port: int, ca_file: Path) -> tuple[Door, Door]:
    """One that trusts the broker, and one that looks for a name which its certificate lacks."""

    def door(name: str, port: int, **upstream_tls: Any) -> Door:
        options = {
            "upstream_security_protocol": "SSL",
            "upstream_tls": {"ca_file": str(ca_file), **upstream_tls},
            "accept_shared_upstream_identity": True,
        }
        return Door(name, port, (LOOPBACK, broker_port), options=options)

    right, wrong = free_ports(2)
    return door("right", right), door("wrong", wrong, server_name="other.test")


async def test_a_wrong_identity_of_one_listener_refuses_no_client_of_another(tmp_path: Path) -> None:
    authority = CertificateAuthority()
    with TlsBroker(authority, tmp_path) as broker:
        right, wrong = doors_of(broker.port, authority.write(tmp_path))
        proxy = SluiceProcess([right, wrong])
        await asyncio.to_thread(proxy.__enter__)
        try:
            for _ in range(ROUNDS):
                with await dial(wrong.port) as client:
                    assert not await is_served(client)
                with await dial(right.port) as client:
                    assert await is_served(client)
            told = await asyncio.to_thread(proxy.not_ready)
            assert "listener wrong: its upstream has not been reached yet: the broker's certificate" in told
            assert "listener right" not in told
            assert len(proxy.log_lines("upstream_unreachable")) == 1
            assert not proxy.log_lines("upstream_reachable_again")
            address = f"{LOOPBACK}:{broker.port}"
            shown = await asyncio.to_thread(lambda: list(proxy.samples("sluice_upstream_circuit_open")))
            assert shown == [({"upstream": address}, 1.0)]
        finally:
            await asyncio.to_thread(proxy.__exit__, None, None, None)
