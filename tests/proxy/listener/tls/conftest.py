"""TLS streams, read and written in both ways that there are."""

from __future__ import annotations

from pathlib import Path

import pytest

from sluice.proxy.connection.data_path import PURE
from sluice.proxy.listener.tls.stream import TlsStream
from sluice.proxy.pump.choice import PUMP
from testkit.peers.tls_in_memory import Files
from testkit.peers.tls_peers import Contexts
from testkit.proxy.data_paths import path_of


@pytest.fixture(scope="module")
def contexts(tmp_path_factory: pytest.TempPathFactory) -> Contexts:
    return Contexts(tmp_path_factory.mktemp("tls"))


@pytest.fixture(params=[PURE.name, PUMP])
def read_and_written(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """By Python's ssl, and by OpenSSL's functions as the pump calls them."""
    if path_of(request.param).name == PUMP:
        from sluice.proxy.pump import core

        if not core.has_openssl:
            pytest.skip("Python's OpenSSL is linked in, and shows no functions")
        monkeypatch.setattr(TlsStream, "recv_into", core.tls_recv_into)
        monkeypatch.setattr(TlsStream, "send", core.tls_send)


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path / "tls")
