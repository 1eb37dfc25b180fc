"""A broker that lets nobody in without a certificate: said at the proxy, not found out by clients."""

from __future__ import annotations

from pathlib import Path

import pytest

from testkit.clients.kafka_clients import CONFLUENT, Options
from testkit.clients.kafka_records import assert_exactly, create_topic, numbered, stored
from testkit.kafka.node import KafkaNode
from testkit.kafka.secured_kafka import Certificates
from testkit.processes.ports import LOOPBACK, free_port
from testkit.proxy.sluice_process import Door, SluiceProcess

pytestmark = [pytest.mark.kafka, pytest.mark.long]
AT = "SLUICE_MTLS"


def door(kafka: KafkaNode, certificates: Certificates, subject: str | None) -> Door:
    tls = {"ca_file": str(certificates.ca_file)}
    if subject is not None:
        files = certificates.client(subject)
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
        with SluiceProcess([door(kafka, certificates, "CN=sluice")]) as proxy:
            proxy.wait_until(lambda: not proxy.not_ready(), "ready", 30.0)
            topic, records = create_topic(kafka, "t"), numbered(20)
            CONFLUENT.produce(proxy.bootstrap(AT), topic, records, Options())
            assert_exactly(records, stored(kafka, topic))
