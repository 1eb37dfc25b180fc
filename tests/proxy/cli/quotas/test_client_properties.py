"""Properties files as Kafka's tools take them."""

from __future__ import annotations

from pathlib import Path

import pytest

from sluice.proxy.cli.quotas.client_properties import load_client_properties, properties_of, settings_of
from sluice.quotas.files.config_error import ConfigError
from testkit.peers.certificates import PASSWORD, CertificateAuthority, java_ssl_properties

JAAS = (
    'org.apache.kafka.common.security.plain.PlainLoginModule required username="alice" password="it\\"s me";'
)


def test_properties_are_read_as_java_reads_them() -> None:
    text = (
        "# a comment\n! another\n\n a.b = c d \nkey:value\nspaced value\nempty=\nalone\n"
        "long=one,\\\n   two\nescaped\\ key=\\u00e9\\t\\=\nwindows=C:\\\\x\na.b=last\n"
    )
    assert properties_of(text) == {
        "a.b": "last",
        "key": "value",
        "spaced": "value",
        "empty": "",
        "alone": "",
        "long": "one,two",
        "escaped key": "é\t=",
        "windows": "C:\\x",
    }


def test_nothing_at_all_is_plaintext() -> None:
    found = settings_of({}, "f")
    assert (found.tls, found.credentials, found.timeout_s) == (None, None, 30.0)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_name_and_password_come_from_the_jaas_line(mechanism: str) -> None:
    found = settings_of(
        {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": mechanism, "sasl.jaas.config": JAAS}, "f"
    )
    assert found.mechanism == mechanism
    assert found.credentials is not None
    assert found.credentials.secret.get_secret_value() == 'it"s me'
    if mechanism == "PLAIN":
        assert found.credentials.client(mechanism, "-").first() == b'\0alice\0it"s me'


def test_a_token_comes_from_its_file(tmp_path: Path) -> None:
    (tmp_path / "to ken").write_text("abc.def.\n")
    found = settings_of(
        {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.token.endpoint.url": (tmp_path / "to ken").as_uri(),
        },
        "f",
    )
    assert found.credentials is not None
    assert found.credentials.secret.get_secret_value() == "abc.def."


@pytest.mark.parametrize(
    ("properties", "named"),
    [
        ({"security.protocol": "TLS"}, "f: security.protocol: must be one of PLAINTEXT, SSL"),
        ({"security.protocol": "SASL_SSL"}, "f: sasl.mechanism: must be one of PLAIN"),
        (
            {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"},
            "f: sasl.jaas.config: must have username and password",
        ),
        (
            {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER"},
            "f: sasl.oauthbearer.token.endpoint.url: must be a token's file",
        ),
        (
            {"security.protocol": "SSL", "ssl.truststore.location": "x.jks"},
            "f: ssl.truststore.type: must be PEM: a store of type JKS",
        ),
        (
            {
                "security.protocol": "SSL",
                "ssl.truststore.type": "PEM",
                "ssl.truststore.certificates": "no PEM",
            },
            "f: ssl.truststore: cannot be used",
        ),
        ({"request.timeout.ms": "soon"}, "f: request.timeout.ms: must be a number"),
    ],
)
def test_what_cannot_be_used_is_named_by_its_key(properties: dict[str, str], named: str) -> None:
    with pytest.raises(ConfigError) as caught:
        settings_of(properties, "f")
    assert str(caught.value).startswith(named)


def test_no_error_shows_a_password() -> None:
    jaas = 'Module required username="" password="hidden";'
    with pytest.raises(ConfigError) as caught:
        settings_of(
            {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.jaas.config": jaas}, "f"
        )
    assert "hidden" not in str(caught.value)


def test_pem_stores_are_used_from_files_and_from_the_text(tmp_path: Path) -> None:
    authority = CertificateAuthority()
    files = authority.client("CN=alice").write(tmp_path)
    stores = java_ssl_properties(authority.write(tmp_path), files)
    inline = {
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": authority.certificate_pem.decode(),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": files.certificate.read_text(),
        "ssl.keystore.key": files.encrypted_key.read_text(),
        "ssl.key.password": PASSWORD,
        "ssl.endpoint.identification.algorithm": "",
    }
    for properties, checks_names in ((stores, True), (inline, False)):
        tls = settings_of({"security.protocol": "SSL", **properties}, "f").tls
        assert tls is not None
        assert [ca["subject"] for ca in tls.get_ca_certs()] == [((("commonName", "Sluice test CA"),),)]
        assert tls.check_hostname == checks_names
    wrong = {**inline, "ssl.key.password": "wrong"}
    with pytest.raises(ConfigError, match=r"^f: ssl\.keystore: cannot be used") as caught:
        settings_of({"security.protocol": "SSL", **wrong}, "f")
    assert "wrong" not in str(caught.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot read the command config file"):
        load_client_properties(tmp_path / "none")


@pytest.mark.parametrize(
    ("line", "key"),
    [
        ("request.timeout.ms=99999999999999999999", "request.timeout.ms"),
        (f"request.timeout.ms={'9' * 5_000}", "request.timeout.ms"),
        (f"request.timeout.ms={2**31}", "request.timeout.ms"),
        (r"client.id=\ud800", "client.id"),
        (f"client.id={'é' * 16_384}", "client.id"),
        (r"ssl.truststore.location=\u0000", "ssl.truststore.location"),
        ("security.protocol=SSL\nssl.truststore.type=PEM\nssl.truststore.certificates=é", "ssl.truststore"),
        *(
            (
                "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=OAUTHBEARER\n"
                f"sasl.oauthbearer.token.endpoint.url={url}",
                "sasl.oauthbearer.token.endpoint.url",
            )
            for url in ("file:///%00", "file://[x")
        ),
    ],
)
def test_what_cannot_be_is_refused_by_its_key(line: str, key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        settings_of(properties_of(line), "f")
    assert str(caught.value).startswith(f"f: {key}: ")


def test_two_escapes_may_be_one_character() -> None:
    assert properties_of(r"client.id=\ud83d\ude00") == {"client.id": "😀"}
    assert settings_of({"request.timeout.ms": str(2**31 - 1)}, "f").timeout_s == (2**31 - 1) / 1000
