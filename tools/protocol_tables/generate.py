"""Writes `_tables.py` and `protocol/codec/_schemas.py` from Kafka's message descriptions.

    python -m tools.protocol_tables [--check] [--jar PATH]

The source is common/message/*.json in org.apache.kafka:kafka-clients, of the version pinned here. A new Kafka
version means: change KAFKA_VERSION, run this, run the tests. Without --jar the jar is looked for in
$SLUICE_KAFKA_CLIENTS_JAR, then where the test harness keeps Kafka.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

from sluice.protocol.codec.spec_model import ANY_VERSION, SpecError, message_from_json
from tools.protocol_tables.jar import KafkaMessages, read_jar
from tools.protocol_tables.throttle import KIND_AT_OFFSET, KIND_BEFORE_END, KIND_WALK, throttle_runs

KAFKA_VERSION = "4.3.1"
JAR_VARIABLE = "SLUICE_KAFKA_CLIENTS_JAR"
_PACKAGE = Path(__file__).resolve().parents[2] / "protocol"

_TABLES_DOC = '''\
"""What the hot path knows of Kafka {version}: names, versions, and where throttle_time_ms stands.

Generated: do not edit. `python -m tools.protocol_tables` wrote it from common/message/*.json in
org.apache.kafka:kafka-clients:{version} (Apache-2.0; see NOTICE).
Jar's sha256: {sha256}
"""
'''
_SCHEMAS_DOC = '''\
"""Every message of Kafka {version}, for the cold path, and for the layout of requests that are few.

Generated: do not edit. `python -m tools.protocol_tables` wrote it from common/message/*.json in
org.apache.kafka:kafka-clients:{version} (Apache-2.0; see NOTICE).
Jar's sha256: {sha256}

One JSON text a message, parsed on first use (spec_model.load_message); one field a line, so that a diff
between two versions of Kafka can be read: [name, type, versions, {{options}}].
"""
'''


def render_tables(kafka: KafkaMessages) -> str:
    """The source text of `_tables.py`: the same jar always gives the same text."""
    requests = {key: message_from_json(raw) for key, raw in sorted(kafka.requests.items())}
    responses = {key: message_from_json(raw) for key, raw in sorted(kafka.responses.items())}
    names = {
        **kafka.removed,
        **{key: request.name.removesuffix("Request") for key, request in requests.items()},
    }
    versions: dict[int, tuple[int, int]] = {}
    for key, request in requests.items():
        last = request.versions.last - (1 if kafka.unstable.get(key) == request.versions.last else 0)
        versions[key] = (request.versions.first, last)
    flexible = {
        key: request.flexible.first if request.flexible else ANY_VERSION for key, request in requests.items()
    }
    runs = {key: throttle_runs(response) for key, response in responses.items()}
    return "\n".join(
        [
            _TABLES_DOC.format(version=kafka.kafka_version, sha256=kafka.jar_sha256),
            "from typing import Final",
            "",
            f'KAFKA_VERSION: Final = "{kafka.kafka_version}"',
            "",
            "# Names for people. Keys that Kafka 4.0 removed have a name, but no versions.",
            _mapping("API_NAMES", "dict[int, str]", names),
            "",
            "# api key → (first, last) version. The last one is left out where a broker offers it only with",
            "# `unstable.api.versions.enable` (UNSTABLE): its layout may change without a new number.",
            _mapping("VERSIONS", "dict[int, tuple[int, int]]", versions),
            "",
            "# api key → that last, unstable version; THROTTLE has it, and the codec reads it.",
            _mapping("UNSTABLE", "dict[int, int]", kafka.unstable),
            "",
            f"# api key → first flexible version of request and response; {ANY_VERSION}: none.",
            _mapping("FLEXIBLE", "dict[int, int]", flexible),
            "",
            "# What THROTTLE's offset means: bytes from the start of the body to the field; bytes from the",
            "# start of the field to the end of the frame; nothing, it takes a walk.",
            f"KIND_AT_OFFSET: Final = {KIND_AT_OFFSET}",
            f"KIND_BEFORE_END: Final = {KIND_BEFORE_END}",
            f"KIND_WALK: Final = {KIND_WALK}",
            "",
            "# api key → runs (first version, last version, kind, offset); no field, no run.",
            _mapping("THROTTLE", "dict[int, tuple[tuple[int, int, int, int], ...]]", runs),
            "",
        ]
    )


def _mapping(name: str, annotation: str, entries: dict[int, Any]) -> str:
    lines = [f"    {key}: {_literal(value)}," for key, value in sorted(entries.items())]
    return "\n".join([f"{name}: Final[{annotation}] = {{", *lines, "}"])


def _literal(value: object) -> str:
    return json.dumps(value) if isinstance(value, str) else repr(value)


def render_schemas(kafka: KafkaMessages) -> str:
    """The source text of `codec/_schemas.py`: the same jar always gives the same text."""
    parts = [
        _SCHEMAS_DOC.format(version=kafka.kafka_version, sha256=kafka.jar_sha256),
        "from typing import Final",
        "",
        f'REQUEST_HEADER: Final = """{_message_text(kafka.request_header)}"""',
        f'RESPONSE_HEADER: Final = """{_message_text(kafka.response_header)}"""',
    ]
    for name, messages in (("REQUESTS", kafka.requests), ("RESPONSES", kafka.responses)):
        parts += ["", f"{name}: Final[dict[int, str]] = {{"]
        parts += [f'    {key}: """{_message_text(message)}""",' for key, message in sorted(messages.items())]
        parts += ["}"]
    return "\n".join([*parts, ""])


def _message_text(message: dict[str, Any]) -> str:
    head = {key: value for key, value in message.items() if key != "fields"}
    text = f'{_compact(head)[:-1]},"fields":[{_fields_text(message["fields"], 1)}]}}'
    if "\\" in text or '"""' in text:
        raise SpecError(f"{message['name']} does not fit into a Python string as it is")
    return text


def _fields_text(fields: list[list[Any]], depth: int) -> str:
    lines = []
    for field in fields:
        options = dict(field[3]) if len(field) > 3 else {}
        children = options.pop("fields", None)
        text = _compact([*field[:3], options] if options or children is not None else field)
        if children is not None:
            own = text[:-2] + ("," if options else "")
            text = f'{own}"fields":[{_fields_text(children, depth + 1)}]}}]'
        lines.append("\n" + " " * depth + text)
    return ",".join(lines)


def _compact(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))


def default_jar() -> Path:
    """The jar that the environment names, or the test harness's own. Raises SpecError if there is none."""
    named = os.environ.get(JAR_VARIABLE)
    if named:
        return Path(named)
    try:  # in a checkout only, and it may download
        from testkit.kafka.dist import JavaNotFoundError, ensure_kafka
        from testkit.kafka.lock import KafkaDistError
    except ImportError:
        raise SpecError(f"no kafka-clients jar: give --jar, or set {JAR_VARIABLE}") from None
    try:
        return ensure_kafka().clients_jar
    except (KafkaDistError, JavaNotFoundError) as error:
        raise SpecError(f"no kafka-clients jar: {error}") from error


def main(arguments: list[str] | None = None) -> int:
    """Exit codes: 0 written or up to date; 1 --check found a difference; 2 no jar that can be used."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.protocol_tables", description=(__doc__ or "").split("\n\n")[0]
    )
    parser.add_argument(
        "--check", action="store_true", help="write nothing; exit 1 if a file is not up to date"
    )
    parser.add_argument("--jar", type=Path, help=f"org.apache.kafka:kafka-clients:{KAFKA_VERSION}")
    options = parser.parse_args(arguments)
    try:
        kafka = read_jar(options.jar or default_jar())
        if kafka.kafka_version != KAFKA_VERSION:
            raise SpecError(f"the jar is of Kafka {kafka.kafka_version}, wanted is {KAFKA_VERSION}")
        texts = {"_tables.py": render_tables(kafka), "codec/_schemas.py": render_schemas(kafka)}
    except SpecError as error:
        print(f"generate: {error}", file=sys.stderr)
        return 2
    return check(texts, _PACKAGE) if options.check else write(texts, _PACKAGE)


def check(texts: dict[str, str], folder: Path) -> int:
    """1 if a file in the folder differs from its text, naming it on stderr; else 0."""
    stale = [name for name, text in texts.items() if _read(folder / name) != text]
    for name in stale:
        print(
            f"generate: {name} is not what this jar gives: run python -m tools.protocol_tables",
            file=sys.stderr,
        )
    return 1 if stale else 0


def _read(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.exists() else None


def write(texts: dict[str, str], folder: Path) -> int:
    """Write each text to its file in the folder; 0."""
    for name, text in texts.items():
        Path(folder, name).write_text(text, encoding="utf-8")
        print(f"generate: wrote {name}")
    return 0
