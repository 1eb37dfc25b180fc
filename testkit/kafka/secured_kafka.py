"""What a test needs around secured listeners: certificates for broker, proxy and clients, and ACLs."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any, Final

from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import AclBinding, AclBindingFilter, AclOperation, AclPermissionType
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType

from testkit.clients.client_security import ClientTls, Login, Security, confluent_security
from testkit.clients.kafka_records import Kafka
from testkit.kafka.config import BrokerTls
from testkit.peers.certificates import CertificateAuthority, IdentityFiles

WITHIN_S: Final = 30.0


class Certificates:
    """An authority, and the files of everybody that it vouches for, in one folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.authority = CertificateAuthority()
        self.ca_file: Path = self.authority.write(folder)
        self.broker: BrokerTls = BrokerTls(self.server("broker").keystore, self.ca_file)
        """for `KafkaNode(tls=…)`; good for the loopback's names and addresses"""

    def server(self, name: str, *hosts: str) -> IdentityFiles:
        """A server's certificate, by default for the loopback's names and addresses."""
        return self.authority.server(*hosts, common_name=name).write(self._folder, name)

    def client(self, subject: str) -> IdentityFiles:
        """A client's certificate for a name as `CN=alice,OU=Payments`."""
        return self.authority.client(subject).write(self._folder, _file_name(subject))

    def foreign_client(self, subject: str) -> IdentityFiles:
        """A client's certificate for that name, by an authority that nobody here trusts."""
        return CertificateAuthority().client(subject).write(self._folder, f"foreign-{_file_name(subject)}")

    def security(self, login: Login | None = None, subject: str | None = None) -> Security:
        """TLS with trust in the authority, with a login or a client's certificate if they are given."""
        return Security(login, ClientTls(self.ca_file, None if subject is None else self.client(subject)))


def allow(kafka: Kafka, principal: str, topic: str) -> None:
    """Let somebody do everything with a topic (`*`: all), and with every group and transactional id.

    Past the proxy, as a super user.
    """
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    resources = [
        (ResourceType.TOPIC, topic),
        (ResourceType.GROUP, "*"),
        (ResourceType.TRANSACTIONAL_ID, "*"),
    ]
    bindings = [
        AclBinding(
            kind, name, ResourcePatternType.LITERAL, principal, "*", AclOperation.ALL, AclPermissionType.ALLOW
        )
        for kind, name in resources
    ]
    for done in admin.create_acls(bindings).values():
        done.result(WITHIN_S)
    # The controller has them; the broker that is asked takes them up a moment later.
    anything: Any = None
    kinds = (ResourceType.ANY, anything, ResourcePatternType.ANY)
    every = AclBindingFilter(*kinds, principal, anything, AclOperation.ANY, AclPermissionType.ANY)
    deadline_s = time.monotonic() + WITHIN_S
    while not set(bindings) <= set(admin.describe_acls(every).result(WITHIN_S)):
        if time.monotonic() > deadline_s:
            raise TimeoutError(f"the broker does not know the rights of {principal}")
        time.sleep(0.05)


def _file_name(subject: str) -> str:
    return re.sub(r"[^A-Za-z0-9]+", "-", subject)


def topic_error(bootstrap: str, security: Security, topic: str) -> str | None:
    """What the broker says to somebody who asks for the topic."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0, **confluent_security(security)})
    error = admin.list_topics(topic, timeout=20.0).topics[topic].error
    return None if error is None else str(error.name())
