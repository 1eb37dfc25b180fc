"""Certificates of the tests' own making: a small CA, the servers and clients it vouches for, and their files.

    authority = CertificateAuthority()
    broker = authority.server()                                  # localhost, 127.0.0.1, ::1
    alice = authority.client("CN=alice,OU=Payments,O=Example")   # or any x509.Name
    files = alice.write(folder)                                  # PEM files, and PEM and PKCS12 for Java
    properties = java_ssl_properties(authority.write(folder), files)   # of a Java client, or of a broker

Keys are on P-256, which is quick to make; nothing here is secret.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
    pkcs12,
)
from cryptography.x509.oid import ExtendedKeyUsageOID

PASSWORD: Final = "a-password-of-the-tests"
"""Of every PKCS12 file and encrypted key."""
CLOCK_SKEW: Final = timedelta(minutes=5)


@dataclass(frozen=True, slots=True)
class IdentityFiles:
    """Where a certificate and its key lie."""

    certificate: Path
    """PEM: the certificate, then those of the authorities between it and the root"""
    key: Path
    """PEM, PKCS #8, not encrypted"""
    encrypted_key: Path
    """the same key under PASSWORD"""
    key_password: Path
    """holds PASSWORD and a line end"""
    keystore: Path
    """PEM: key and certificates in one file (Kafka's ssl.keystore.type=PEM)"""
    pkcs12: Path
    """key and certificates under PASSWORD, under the name `key`"""


@dataclass(frozen=True, slots=True)
class Identity:
    """A certificate with its key."""

    certificate: x509.Certificate
    private_key: ec.EllipticCurvePrivateKey
    chain: tuple[x509.Certificate, ...] = ()
    """the authorities between it and the root, if there are any"""

    @property
    def der(self) -> bytes:
        """The certificate as the wire has it."""
        return self.certificate.public_bytes(Encoding.DER)

    @property
    def certificate_pem(self) -> bytes:
        """The certificate, then its chain."""
        return b"".join(each.public_bytes(Encoding.PEM) for each in (self.certificate, *self.chain))

    @property
    def not_after(self) -> datetime:
        """The end of its validity."""
        return self.certificate.not_valid_after_utc

    def key_pem(self, password: str | None = None) -> bytes:
        """The key in PKCS #8, encrypted if there is a password."""
        encryption: KeySerializationEncryption = NoEncryption()
        if password is not None:
            encryption = BestAvailableEncryption(password.encode())
        return self.private_key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption)

    def write(self, folder: Path, name: str = "identity") -> IdentityFiles:
        """Write (or overwrite) every file that a program might want, as `name`.*"""
        folder.mkdir(parents=True, exist_ok=True)
        files = IdentityFiles(
            certificate=folder / f"{name}.crt",
            key=folder / f"{name}.key",
            encrypted_key=folder / f"{name}.encrypted.key",
            key_password=folder / f"{name}.password",
            keystore=folder / f"{name}.keystore.pem",
            pkcs12=folder / f"{name}.p12",
        )
        files.certificate.write_bytes(self.certificate_pem)
        files.key.write_bytes(self.key_pem())
        files.encrypted_key.write_bytes(self.key_pem(PASSWORD))
        files.key_password.write_text(PASSWORD + "\n", encoding="utf-8")
        files.keystore.write_bytes(self.key_pem() + self.certificate_pem)
        files.pkcs12.write_bytes(
            pkcs12.serialize_key_and_certificates(
                b"key",
                self.private_key,
                self.certificate,
                self.chain,
                BestAvailableEncryption(PASSWORD.encode()),
            )
        )
        return files


class CertificateAuthority:
    """Signs what it is asked to, also what is expired. Every one has a key of its own, so that a second one
    is foreign, whatever its name."""

    def __init__(
        self,
        common_name: str = "Sluice test CA",
        parent: CertificateAuthority | None = None,
        *,
        starts_in_days: float = -3650,
        ends_in_days: float = 3650,
    ) -> None:
        """`parent`: signs its certificate; without one it signs that itself."""
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, common_name)])
        issuer = parent.identity if parent is not None else None
        usage = x509.KeyUsage(
            digital_signature=True,
            key_cert_sign=True,
            crl_sign=True,
            content_commitment=False,
            key_encipherment=False,
            data_encipherment=False,
            key_agreement=False,
            encipher_only=False,
            decipher_only=False,
        )
        builder = (
            _builder(name, issuer.certificate.subject if issuer else name, key, starts_in_days, ends_in_days)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(usage, critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        )
        if issuer is not None:
            builder = builder.add_extension(_issued_by(issuer), critical=False)
        certificate = builder.sign(issuer.private_key if issuer else key, hashes.SHA256())
        self.identity: Identity = Identity(certificate, key)
        """its own certificate and key"""
        self._chain: tuple[x509.Certificate, ...] = () if parent is None else (certificate, *parent._chain)

    @property
    def certificate_pem(self) -> bytes:
        """What those who trust it need."""
        return self.identity.certificate_pem

    def write(self, folder: Path, name: str = "ca") -> Path:
        """Write its certificate as `name`.crt."""
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / f"{name}.crt"
        file.write_bytes(self.certificate_pem)
        return file

    def intermediate(
        self,
        common_name: str = "Sluice test intermediate CA",
        *,
        starts_in_days: float = -3650,
        ends_in_days: float = 3650,
    ) -> CertificateAuthority:
        """An authority that this one vouches for; who trusts this one needs no file of it."""
        return CertificateAuthority(
            common_name, self, starts_in_days=starts_in_days, ends_in_days=ends_in_days
        )

    def server(
        self, *hosts: str, starts_in_days: float = -1, ends_in_days: float = 30, common_name: str = "broker"
    ) -> Identity:
        """A server's certificate for these names and addresses; none named: localhost, 127.0.0.1, ::1.

        It may be used as a client's too, as a broker does towards others.
        """
        names: list[x509.GeneralName] = []
        for host in hosts or ("localhost", "127.0.0.1", "::1"):
            try:
                names.append(x509.IPAddress(ip_address(host)))
            except ValueError:
                names.append(x509.DNSName(host))
        return self._sign(
            x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, common_name)]),
            [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH],
            names,
            starts_in_days,
            ends_in_days,
        )

    def client(
        self, subject: str | x509.Name, *, starts_in_days: float = -1, ends_in_days: float = 30
    ) -> Identity:
        """A client's certificate. `subject` in RFC 4514's form, as `CN=alice,OU=Payments`, or as a name."""
        name = x509.Name.from_rfc4514_string(subject) if isinstance(subject, str) else subject
        return self._sign(name, [ExtendedKeyUsageOID.CLIENT_AUTH], [], starts_in_days, ends_in_days)

    def expired_client(self, subject: str | x509.Name) -> Identity:
        """A client's certificate that ended yesterday."""
        return self.client(subject, starts_in_days=-30, ends_in_days=-1)

    def _sign(
        self,
        subject: x509.Name,
        usages: list[x509.ObjectIdentifier],
        alternative_names: list[x509.GeneralName],
        starts_in_days: float,
        ends_in_days: float,
    ) -> Identity:
        key = ec.generate_private_key(ec.SECP256R1())
        issuer = self.identity.certificate.subject
        builder = (
            _builder(subject, issuer, key, starts_in_days, ends_in_days)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
            .add_extension(_issued_by(self.identity), critical=False)
        )
        if alternative_names:
            builder = builder.add_extension(x509.SubjectAlternativeName(alternative_names), critical=False)
        certificate = builder.sign(self.identity.private_key, hashes.SHA256())
        return Identity(certificate, key, self._chain)


def java_ssl_properties(
    ca_file: Path, files: IdentityFiles | None = None, prefix: str = ""
) -> dict[str, str]:
    """Kafka's properties for a Java client (prefix ""), or for one listener of a broker
    (`listener.name.<name>.`): trust in `ca_file`, and an identity if there is one. All in PEM."""
    properties = {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(ca_file)}
    if files is not None:
        properties |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(files.keystore)}
    return {prefix + key: value for key, value in properties.items()}


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    starts_in_days: float,
    ends_in_days: float,
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + timedelta(days=starts_in_days) - CLOCK_SKEW)
        .not_valid_after(now + timedelta(days=ends_in_days))
    )


def _issued_by(issuer: Identity) -> x509.AuthorityKeyIdentifier:
    return x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer.private_key.public_key())
