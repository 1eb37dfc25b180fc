"""What clients need to authenticate at a KafkaNode: Java client properties and unsigned bearer tokens.

Source: KIP-43 (mechanisms), KIP-255 (OAUTHBEARER; unsecured tokens are for development only).
"""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Mapping
from pathlib import Path

_SECURITY = "org.apache.kafka.common.security"
_UNSECURED_LOGIN = f"{_SECURITY}.oauthbearer.internals.unsecured.OAuthBearerUnsecuredLoginCallbackHandler"


def java_client_properties(mechanism: str, user: str, password: str = "") -> dict[str, str]:
    """Return the Java client settings for SASL_PLAINTEXT with one of the mechanisms of kafka_config.

    With OAUTHBEARER the client makes its own unsigned token whose `sub` is `user`; `password` is not used.
    """
    properties = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": mechanism}
    if mechanism == "OAUTHBEARER":
        module = (
            f'{_SECURITY}.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="{user}";'
        )
        properties["sasl.login.callback.handler.class"] = _UNSECURED_LOGIN
    else:
        kind = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
        module = f'{_SECURITY}.{kind} required username="{user}" password="{password}";'
    return properties | {"sasl.jaas.config": module}


def write_properties(path: Path, properties: Mapping[str, str]) -> Path:
    """Write a Java properties file, as the tools' --command-config takes, and return its path."""
    path.write_text("".join(f"{key}={value}\n" for key, value in properties.items()), encoding="utf-8")
    return path


def unsigned_token(subject: str, lifetime_s: int = 3600, **claims: object) -> str:
    """Return a JWS without signature (`alg: none`) that a KafkaNode accepts for the principal `subject`."""
    now_s = int(time.time())
    payload = {"sub": subject, "iat": now_s, "exp": now_s + lifetime_s, **claims}
    return f"{_base64({'alg': 'none'})}.{_base64(payload)}."


def _base64(value: Mapping[str, object]) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()
