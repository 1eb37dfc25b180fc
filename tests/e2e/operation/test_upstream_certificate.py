"""A broker that lets nobody in without a certificate: said at the proxy, not found out by clients."""

from __future__ import annotations

import socket
import time
from pathlib import Path
from time import monotonic

import pytest

from testkit.clients.kafka_clients import CONFLUENT, Options
from testkit.clients.kafka_records import assert_exactly, create_topic, numbered, stored
from testkit.frames.frames import API_VERSIONS, request
from testkit.kafka.node import KafkaNode
from testkit.kafka.secured_kafka import Certificates
from testkit.peers.certificates import IdentityFiles
from testkit.processes.ports import LOOPBACK, free_port
from testkit.proxy.sluice_process import Door, SluiceProcess

pytestmark = [pytest.mark.kafka, pytest.mark.long]
AT = "SLUICE_MTLS"


def door(kafka: KafkaNode, certificates: Certificates, files: IdentityFiles | None) -> Door:
    tls = {"ca_file": str(certificates.ca_file)}
    if files is not None:
        tls |= {"certificate_file": str(files.certificate), "key_file": str(files.key)}
    options = {
        "upstream_security_protocol": "SSL",
        "upstream_tls": tls,
        "accept_shared_upstream_identity": True,
    }
    return Door(AT, kafka.advertised(AT)[1], kafka.address(AT), "PLAINTEXT", options)


def test_a_proxy_without_the_certificate_that_its_broker_demands_is_not_ready(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    with KafkaNode(advertised={AT: (LOOPBACK, free_port())}, tls=certificates.broker) as kafka:
        with SluiceProcess([door(kafka, certificates, None)]) as proxy:
            proxy.wait_until(lambda: bool(proxy.log_lines("upstream_refuses_tls")), "told", 30.0)
            assert "refused the TLS connection with the alert" in proxy.not_ready()
            (line,) = proxy.log_lines("upstream_refuses_tls")
            assert "certificate_file" in line["remedy"]
            assert not proxy.log_lines("upstream_reached")
            assert not proxy.log_lines("upstream_takes_no_probe")
        with SluiceProcess([door(kafka, certificates, certificates.client("CN=sluice"))]) as proxy:
            proxy.wait_until(lambda: not proxy.not_ready(), "ready", 30.0)
            topic, records = create_topic(kafka, "t"), numbered(20)
            CONFLUENT.produce(proxy.bootstrap(AT), topic, records, Options())
            assert_exactly(records, stored(kafka, topic))


def test_a_proxy_whose_own_certificate_ends_says_so_when_the_first_client_is_closed(tmp_path: Path) -> None:
    """Its kept connection is still answered then, and so are those of its clients."""
    certificates = Certificates(tmp_path)
    with KafkaNode(advertised={AT: (LOOPBACK, free_port())}, tls=certificates.broker) as kafka:
        good_for_s = 30.0
        soon = certificates.authority.client("CN=soon", ends_in_days=good_for_s / 86_400.0)
        begun_s = monotonic()
        with SluiceProcess([door(kafka, certificates, soon.write(tmp_path, "soon"))]) as proxy:
            proxy.wait_until(lambda: not proxy.not_ready(), "ready", 20.0)
            port = kafka.advertised(AT)[1]
            with socket.create_connection((LOOPBACK, port), 10.0) as open_before:
                assert is_answered(open_before)
                time.sleep(max(begun_s + good_for_s + 1.0 - monotonic(), 0.0))
                assert not proxy.not_ready(), "nothing has shown it yet"
                with socket.create_connection((LOOPBACK, port), 10.0) as new:
                    assert not is_answered(new)
                proxy.wait_until(lambda: "refused the TLS connection" in proxy.not_ready(), "told", 5.0)
                assert is_answered(open_before)
                assert "refused the TLS connection" in proxy.not_ready()


def is_answered(client: socket.socket) -> bool:
    client.settimeout(10.0)
    client.sendall(request(API_VERSIONS, 0))
    try:
        return bool(client.recv(65_536))
    except ConnectionError:
        return False
