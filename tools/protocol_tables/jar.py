"""Kafka's message descriptions, read out of the kafka-clients jar and brought to the form of spec_model.py.

Turns common/message/*.json (JSON with // comments) into plain JSON: lower-camel names, inlined common
structs, defaults of the right type. Knows nothing of Python source; generate.py renders. Needs no Java.
"""

from __future__ import annotations

import hashlib
import json
import re
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sluice.protocol.codec.spec_model import FIXED_SIZES, INT_TYPES, VARIABLE_TYPES, SpecError

_COMMENT = re.compile(r'("(?:\\.|[^"\\])*")|//[^\n]*')
_VERSION_LINE = re.compile(r"^version=(\S+)$", re.MULTILINE)
_FOLDER = "common/message/"
# What a field may say. Anything else is a newer Kafka's idea, and guessing its meaning would corrupt frames.
_WIRE_KEYS = (
    "name",
    "type",
    "versions",
    "fields",
    "nullableVersions",
    "taggedVersions",
    "tag",
    "flexibleVersions",
)
_FIELD_KEYS = frozenset([*_WIRE_KEYS, "default", "about", "ignorable", "mapKey", "entityType", "zeroCopy"])
_HEAD_KEYS = (
    "apiKey",
    "type",
    "name",
    "validVersions",
    "flexibleVersions",
    "latestVersionUnstable",
    "listeners",
)
_MESSAGE_KEYS = frozenset([*_HEAD_KEYS, "fields", "commonStructs"])


@dataclass(frozen=True, slots=True)
class KafkaMessages:
    """All that the generator takes from a jar. A message is JSON as spec_model.message_from_json reads it."""

    kafka_version: str
    jar_sha256: str
    requests: dict[int, dict[str, Any]]
    responses: dict[int, dict[str, Any]]
    request_header: dict[str, Any]
    response_header: dict[str, Any]
    removed: dict[int, str]  # api key → name: keys of Kafka < 4.0 that no version speaks any more
    unstable: dict[int, int]  # api key → its last version, when a broker offers that only if told to


def read_jar(jar: Path) -> KafkaMessages:
    """Raises SpecError if the jar is not kafka-clients or has a description that is not understood."""
    try:
        data = jar.read_bytes()
        with zipfile.ZipFile(jar) as archive:
            properties = archive.read("kafka/kafka-version.properties").decode()
            names = sorted(n for n in archive.namelist() if n.startswith(_FOLDER) and n.endswith(".json"))
            specs = [_load(archive.read(name).decode(), name) for name in names]
    except (OSError, KeyError, zipfile.BadZipFile) as error:
        raise SpecError(f"not a kafka-clients jar: {jar.name}: {error}") from error
    version = _VERSION_LINE.search(properties)
    if version is None:
        raise SpecError(f"{jar.name} does not say its version")
    found = KafkaMessages(version[1], hashlib.sha256(data).hexdigest(), {}, {}, {}, {}, {}, {})
    for spec in specs:
        _sort_in(found, spec)
    if found.requests.keys() != found.responses.keys() or not (
        found.request_header and found.response_header
    ):
        raise SpecError(f"{jar.name}: requests, responses and headers do not match up")
    return found


def _load(text: str, name: str) -> dict[str, Any]:
    try:
        spec = json.loads(_COMMENT.sub(lambda m: m[1] or "", text))
    except ValueError as error:
        raise SpecError(f"{name}: {error}") from error
    unknown = spec.keys() - _MESSAGE_KEYS
    if unknown:
        raise SpecError(f"{name}: unknown keys {sorted(unknown)}")
    return dict(spec)


def _sort_in(found: KafkaMessages, spec: dict[str, Any]) -> None:
    kind = spec["type"]
    if kind == "header":
        target = found.request_header if spec["name"] == "RequestHeader" else found.response_header
        target.update(_message(spec))
    elif kind in {"request", "response"}:
        api_key = spec["apiKey"]
        if spec["validVersions"] == "none":
            found.removed[api_key] = spec["name"].removesuffix("Request").removesuffix("Response")
            return
        (found.requests if kind == "request" else found.responses)[api_key] = _message(spec)
        if spec.get("latestVersionUnstable"):
            found.unstable[api_key] = int(spec["validVersions"].rpartition("-")[2])
    elif kind not in {"data", "metadata", "coordinator-key", "coordinator-value"}:
        raise SpecError(f"{spec['name']}: unknown kind of message {kind!r}")


def _message(spec: dict[str, Any]) -> dict[str, Any]:
    structs = {struct["name"]: struct["fields"] for struct in spec.get("commonStructs", [])}
    return {
        "name": spec["name"],
        "versions": spec["validVersions"],
        "flexible": spec["flexibleVersions"],
        "fields": [_field(field, structs, ()) for field in spec["fields"]],
    }


def _field(spec: dict[str, Any], structs: dict[str, Any], outer: tuple[str, ...]) -> list[Any]:
    unknown = spec.keys() - _FIELD_KEYS
    if unknown:
        raise SpecError(f"field {spec['name']}: unknown keys {sorted(unknown)}")
    prefix = "[]" if spec["type"].startswith("[]") else ""
    element = spec["type"].removeprefix("[]")
    options: dict[str, Any] = {}
    if element not in FIXED_SIZES and element not in VARIABLE_TYPES:
        if element in outer:  # readers are built by recursion over the description; it must be finite
            raise SpecError(f"struct {element} contains itself")
        children = spec["fields"] if "fields" in spec else structs.get(element)
        if children is None:
            raise SpecError(f"field {spec['name']} has the unknown type {element}")
        options["fields"] = [_field(child, structs, (*outer, element)) for child in children]
        element = "struct"
    for ours, kafkas in (("nullable", "nullableVersions"), ("tagged", "taggedVersions"), ("tag", "tag")):
        if kafkas in spec:
            options[ours] = spec[kafkas]
    if "flexibleVersions" in spec:
        options["flexible"] = spec["flexibleVersions"]
    if str(spec.get("default", "")):
        options["default"] = _default(str(spec["default"]), prefix + element)
    name = spec["name"][0].lower() + spec["name"][1:]
    entry = [name, prefix + element, spec["versions"]]
    return [*entry, options] if options else entry


def _default(raw: str, full_type: str) -> bool | int | float | str | None:
    """A default that differs from the type's own; None stands for null. Numbers may be written 0x7fffffff."""
    if raw == "null":
        return None
    if full_type == "bool":
        return raw.lower() == "true"
    if full_type in INT_TYPES:
        return int(raw, 0)
    if full_type == "float64":
        return float(raw)
    if full_type == "string":
        return raw
    raise SpecError(f"a {full_type} with the default {raw!r}")
