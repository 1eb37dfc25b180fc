"""How clients of every library log in and use TLS: one description → each library's own settings."""

from __future__ import annotations

import ssl
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from aiokafka.abc import AbstractTokenProvider
from kafka.net.sasl.oauth import AbstractTokenProvider as KafkaPythonTokenProvider

from testkit.kafka.sasl_clients import java_client_properties, unsigned_token
from testkit.peers.certificates import IdentityFiles, java_ssl_properties


@dataclass(frozen=True, slots=True)
class Login:
    """How a client authenticates; with OAUTHBEARER the password is not used."""

    mechanism: str
    user: str
    password: str = ""


@dataclass(frozen=True, slots=True)
class ClientTls:
    """Whom a client trusts, and the certificate that it shows if it has one. Host names are verified."""

    ca_file: Path
    identity: IdentityFiles | None = None


@dataclass(frozen=True, slots=True)
class Security:
    """Both, each of which may be left out."""

    login: Login | None = None
    tls: ClientTls | None = None

    @property
    def protocol(self) -> str:
        """Kafka's name of the combination."""
        transport = "PLAINTEXT" if self.tls is None else "SSL"
        if self.login is not None:
            return f"SASL_{transport}"
        return transport


NO_SECURITY: Final = Security()


class _AiokafkaToken(AbstractTokenProvider):  # type: ignore[misc]  # aiokafka has no types
    def __init__(self, subject: str) -> None:
        self._token = unsigned_token(subject)

    async def token(self) -> str:
        return self._token


def aiokafka_security(security: Security) -> dict[str, Any]:
    """Arguments of aiokafka's clients."""
    settings: dict[str, Any] = {"security_protocol": security.protocol}
    login, tls = security.login, security.tls
    if login is not None:
        settings["sasl_mechanism"] = login.mechanism
        if login.mechanism == "OAUTHBEARER":
            settings["sasl_oauth_token_provider"] = _AiokafkaToken(login.user)
        else:
            settings |= {"sasl_plain_username": login.user, "sasl_plain_password": login.password}
    if tls is not None:
        context = ssl.create_default_context(cafile=str(tls.ca_file))
        if tls.identity is not None:
            context.load_cert_chain(tls.identity.certificate, tls.identity.key)
        settings["ssl_context"] = context
    return settings


def confluent_security(security: Security) -> dict[str, Any]:
    """Settings of confluent-kafka's clients."""
    settings: dict[str, Any] = {"security.protocol": security.protocol}
    login, tls = security.login, security.tls
    if login is not None:
        settings["sasl.mechanism"] = login.mechanism
        if login.mechanism == "OAUTHBEARER":
            user = login.user

            def token(_config: str) -> tuple[str, float]:
                return unsigned_token(user), time.time() + 3600

            settings["oauth_cb"] = token
        else:
            settings |= {"sasl.username": login.user, "sasl.password": login.password}
    if tls is not None:
        settings["ssl.ca.location"] = str(tls.ca_file)
        if tls.identity is not None:
            settings["ssl.certificate.location"] = str(tls.identity.certificate)
            settings["ssl.key.location"] = str(tls.identity.key)
    return settings


class _KafkaPythonToken(KafkaPythonTokenProvider):  # type: ignore[misc]  # kafka-python has no types
    def __init__(self, subject: str) -> None:
        super().__init__()
        self._token = unsigned_token(subject)

    def token(self) -> str:
        return self._token


def kafka_python_security(security: Security) -> dict[str, Any]:
    """Arguments of kafka-python's clients."""
    settings: dict[str, Any] = {"security_protocol": security.protocol}
    login, tls = security.login, security.tls
    if login is not None:
        settings["sasl_mechanism"] = login.mechanism
        if login.mechanism == "OAUTHBEARER":
            settings["sasl_oauth_token_provider"] = _KafkaPythonToken(login.user)
        else:
            settings |= {"sasl_plain_username": login.user, "sasl_plain_password": login.password}
    if tls is not None:
        settings["ssl_cafile"] = str(tls.ca_file)
        if tls.identity is not None:
            settings["ssl_certfile"] = str(tls.identity.certificate)
            settings["ssl_keyfile"] = str(tls.identity.key)
    return settings


def java_security(security: Security) -> dict[str, str]:
    """Properties of Java's clients, and of the tools' --command-config."""
    login, tls = security.login, security.tls
    properties: dict[str, str] = {}
    if login is not None:
        properties |= java_client_properties(login.mechanism, login.user, login.password)
    if tls is not None:
        properties |= java_ssl_properties(tls.ca_file, tls.identity)
    return properties | {"security.protocol": security.protocol}
