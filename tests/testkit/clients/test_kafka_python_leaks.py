"""What kafka-python leaves to the garbage collector ends no test."""

from __future__ import annotations

import gc
import socket
import ssl
import warnings

import pytest
from kafka.net.inet import KafkaNetSocket
from kafka.net.transport import KafkaSSLTransport


@pytest.mark.parametrize("is_tls", [False, True])
def test_a_socket_that_nobody_has_any_more_is_closed_without_a_warning(is_tls: bool) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        left = KafkaNetSocket().socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        left.connect(server.getsockname())
        if is_tls:
            context = KafkaSSLTransport._build_ssl_context(KafkaSSLTransport.DEFAULT_CONFIG)
            context.check_hostname = False
            left = context.wrap_socket(left, do_handshake_on_connect=False)
            assert isinstance(left, ssl.SSLSocket)
        accepted, _ = server.accept()
        with accepted, warnings.catch_warnings():
            warnings.simplefilter("error")
            del left
            gc.collect()
            accepted.settimeout(10)
            assert accepted.recv(1) == b"", "it is closed"
