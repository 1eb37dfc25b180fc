"""A properties file as Kafka's command-line tools take it (`--command-config`) → how to connect and log in.

Understood: security.protocol; sasl.mechanism PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 with sasl.jaas.config, and
OAUTHBEARER with a token in a file; ssl.truststore.* and ssl.keystore.* of type PEM, in files or in the text
itself; ssl.endpoint.identification.algorithm; client.id; request.timeout.ms. Other keys are let pass, as by
Kafka's clients; a store that is not PEM is refused by name. No error shows a secret.
Source: CommonClientConfigs, SaslConfigs, SslConfigs; java.util.Properties.load.
"""

from __future__ import annotations

import re
import ssl
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlparse

from pydantic import SecretStr

from sluice.protocol.sasl_client import MECHANISMS
from sluice.proxy.listener.login.credential_entries import Credentials, PasswordCredentials, TokenCredentials
from sluice.quotas.files.config_error import ConfigError, Problem
from sluice.quotas.files.load import read_given, read_text

_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_JAAS_OPTION: Final = re.compile(r"""([\w.]+)\s*=\s*("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|[^\s;"']+)""")
_ESCAPE: Final = re.compile(r"\\(u[0-9A-Fa-f]{4}|.)", re.DOTALL)
_ESCAPED: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_PAIR: Final = re.compile(r"((?:\\.|[^\\=:\s])*)(?:\s*[=:]\s*|\s+|$)(.*)", re.DOTALL)
_DEFAULT_TIMEOUT_MS: Final = 30_000
_MAX_INT: Final = 2**31 - 1
_DIGITS: Final = 20
"""of a number, too many"""
_MAX_STRING_BYTES: Final = 2**15 - 1
"""of a text in Kafka's protocol"""


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """How to reach a server."""

    tls: ssl.SSLContext | None = None
    mechanism: str = ""
    """of SASL; "": none"""
    credentials: Credentials | None = None
    client_id: str = "sluice"
    timeout_s: float = _DEFAULT_TIMEOUT_MS / 1000.0
    """of one step: connecting, a request and its answer"""


def load_client_properties(file: Path) -> ClientSettings:
    """Raises ConfigError that names file and key."""
    return settings_of(properties_of(read_given(file, "command config")), str(file))


def properties_of(text: str) -> dict[str, str]:
    """As java.util.Properties reads them: comments, continued lines, escapes; the last of equal keys wins."""
    lines: list[str] = []
    continued = False
    for line in text.splitlines():
        bare = line.lstrip()
        if not continued and (not bare or bare[0] in "#!"):
            continue
        lines[-1:] = [lines[-1] + bare] if continued else [*lines[-1:], bare]
        continued = (len(bare) - len(bare.rstrip("\\"))) % 2 == 1
        if continued:
            lines[-1] = lines[-1][:-1]
    found = {}
    for line in lines:
        match = _PAIR.fullmatch(line)
        assert match is not None
        found[_unescaped(match[1])] = _unescaped(match[2])
    return found


def settings_of(properties: Mapping[str, str], source: str) -> ClientSettings:
    """Raises ConfigError that names `source` and key."""
    for key, value in properties.items():
        if not _is_text(value):
            raise _error(source, key, "must be text, without U+0000 and halves of characters (\\ud800)")
    protocol = properties.get("security.protocol", "PLAINTEXT").upper()
    if protocol not in _PROTOCOLS:
        raise _error(source, "security.protocol", f"must be one of {', '.join(_PROTOCOLS)}")
    mechanism, credentials = "", None
    if protocol.startswith("SASL_"):
        mechanism = properties.get("sasl.mechanism", "GSSAPI")
        credentials = _credentials(properties, mechanism, source)
    timeout = properties.get("request.timeout.ms", str(_DEFAULT_TIMEOUT_MS))
    if not timeout.isdecimal() or not 1 <= int(timeout[:_DIGITS]) <= _MAX_INT:
        raise _error(source, "request.timeout.ms", f"must be a number of ms from 1 to {_MAX_INT}")
    client_id = properties.get("client.id", "sluice")
    if len(client_id.encode()) > _MAX_STRING_BYTES:
        raise _error(source, "client.id", f"must have {_MAX_STRING_BYTES} bytes at most")
    return ClientSettings(
        tls=_tls(properties, source) if protocol.endswith("SSL") else None,
        mechanism=mechanism,
        credentials=credentials,
        client_id=client_id,
        timeout_s=int(timeout) / 1000.0,
    )


def _credentials(properties: Mapping[str, str], mechanism: str, source: str) -> Credentials:
    if mechanism not in MECHANISMS:
        raise _error(source, "sasl.mechanism", f"must be one of {', '.join(MECHANISMS)}")
    if mechanism == "OAUTHBEARER":
        key = "sasl.oauthbearer.token.endpoint.url"
        file = _path_of(properties.get(key, ""))
        if file is None:
            raise _error(source, key, "must be a token's file, file:///…; tokens are not fetched")
        token = read_text(file, "token").strip()
        made: Credentials = TokenCredentials(SecretStr(token))
        fault = _fault(made, mechanism)
    else:
        key = "sasl.jaas.config"
        options = dict(_JAAS_OPTION.findall(properties.get(key, "")))
        if not {"username", "password"} <= options.keys():
            raise _error(source, key, f"must have username and password, for {mechanism}")
        username, password = (_unquoted(options[name]) for name in ("username", "password"))
        try:
            made = PasswordCredentials.of(username, password)
        except ValueError:
            made, fault = TokenCredentials(SecretStr("")), "the password cannot be used"
        else:
            fault = _fault(made, mechanism)
    if fault:
        raise _error(source, key, fault)
    return made


def _path_of(url: str) -> Path | None:
    """None: it is no file's URL."""
    try:
        parts = urlparse(url)
    except ValueError:
        return None
    path = unquote(parts.path)
    return Path(path) if parts.scheme == "file" and "\0" not in path else None


def _is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return "\0" not in value


def _fault(credentials: Credentials, mechanism: str) -> str:
    try:
        credentials.client(mechanism, nonce="-")
    except ValueError as error:
        return str(error)
    return ""


def _tls(properties: Mapping[str, str], source: str) -> ssl.SSLContext:
    trusted = _pem(properties, "ssl.truststore", "certificates", source)
    own = _pem(properties, "ssl.keystore", "certificate.chain", source)
    key = "ssl.truststore"
    try:
        context = ssl.create_default_context(cadata=trusted or None)  # none: the system's CAs
        if not properties.get("ssl.endpoint.identification.algorithm", "https"):
            context.check_hostname = False
        if own:
            key = "ssl.keystore"
            chain = f"{own}\n{properties.get('ssl.keystore.key', '')}"
            with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:  # 0600; gone when it is read
                file.write(chain)
                file.flush()
                password = properties.get("ssl.key.password", "")
                context.load_cert_chain(file.name, password=password)
    except (ssl.SSLError, ValueError, TypeError, OSError) as error:  # a TypeError for what is not ASCII
        raise _error(source, key, f"cannot be used: {error}") from None
    return context


def _pem(properties: Mapping[str, str], store: str, inline: str, source: str) -> str:
    """The PEM text of a store; "": there is none."""
    text, location = properties.get(f"{store}.{inline}", ""), properties.get(f"{store}.location", "")
    if not text and not location:
        return ""
    kind = properties.get(f"{store}.type", "JKS").upper()
    if kind != "PEM":
        raise _error(source, f"{store}.type", f"must be PEM: a store of type {kind} cannot be read here")
    return text or read_text(Path(location), f"{store}.location")


def _unescaped(text: str) -> str:
    def character(match: re.Match[str]) -> str:
        found = match[1]
        if len(found) == 5:
            return chr(int(found[1:], 16))
        return _ESCAPED.get(found, found)

    # Java's texts are of UTF-16: two escapes may be one character.
    return _ESCAPE.sub(character, text).encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")


def _unquoted(text: str) -> str:
    return _ESCAPE.sub(r"\1", text[1:-1]) if text[0] in "\"'" else text


def _error(source: str, key: str, message: str) -> ConfigError:
    return ConfigError([Problem(message, path=key, source=source)])
