"""What the README of an example tells its reader to run, and the clients' properties files beside it."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from confluent_kafka.admin import AdminClient

from testkit.clients.client_security import ClientTls, Login, Security
from testkit.clients.kafka_records import create_topic
from testkit.examples.broker import ExampleBroker, properties_of
from testkit.examples.proxy import EXAMPLES
from testkit.kafka.java_tools import run_tool
from testkit.peers.certificates import IdentityFiles
from testkit.repository.docs_blocks import blocks_of

PRODUCE: Final = "kafka-producer-perf-test.sh"
_TOLD: Final = re.compile(r"^(\d+) records sent, ([\d.]+) records/sec", re.M)
_LOGIN: Final = re.compile(r'(\w+)="([^"]*)"')


class Sent(NamedTuple):
    """What Kafka's producer-perf-test says at its end."""

    records: int
    took_s: float


def commands_of(readme: Path) -> list[list[str]]:
    """Every command line of its blocks, as words."""
    blocks = [block for block in blocks_of(readme.read_text(encoding="utf-8")) if block.language == "sh"]
    lines = [line for block in blocks for line in block.text.replace("\\\n", " ").splitlines()]
    return [shlex.split(line, comments=True) for line in lines if line.strip()]


def perf_command(example: str) -> list[str]:
    """The one by which the README makes traffic, from the tool's name on."""
    found = [words for words in commands_of(EXAMPLES / example / "README.md") if _is_perf(words)]
    (words,) = found
    begin = next(at for at, word in enumerate(words) if word.endswith(PRODUCE))
    return words[begin:]


def _is_perf(words: list[str]) -> bool:
    return "xargs" not in words and any(word.endswith(PRODUCE) for word in words)


def run_perf(
    broker: ExampleBroker, command: list[str], bootstrap: str, folder: Path, certificates: Path | None = None
) -> Sent:
    """Run it as it stands but for the address and where certificates lie, into a topic that is there, as the
    README has it. `folder`: for what it reads."""
    words = list(command[1:])
    topic = words[words.index("--topic") + 1]
    if topic not in AdminClient({"bootstrap.servers": broker.bootstrap}).list_topics(timeout=30.0).topics:
        create_topic(broker, topic)
    words[words.index("--bootstrap-server") + 1] = bootstrap
    if "--command-config" in words:
        at = words.index("--command-config") + 1
        text = (EXAMPLES / words[at]).read_text(encoding="utf-8")
        config = folder / Path(words[at]).name
        config.write_text(text.replace("=certificates/", f"={certificates}/"), encoding="utf-8")
        words[at] = str(config)
    try:
        told = run_tool(broker.dist, "producer-perf-test", *words).stdout
    except subprocess.TimeoutExpired as error:
        output = b"".join([error.stdout or b"", error.stderr or b""]).decode()
        raise AssertionError(f"it did not end:\n{output}\n{broker.log_tail()}") from error
    lines = _TOLD.findall(told)
    assert lines, told
    records, rate = lines[-1]
    return Sent(int(records), int(records) / float(rate))


def security_of(file: Path, certificates: Path | None = None) -> Security:
    """A Java client's properties, for clients of other libraries."""
    properties = properties_of(file.read_text(encoding="utf-8"))
    login = None
    if "sasl.mechanism" in properties:
        entry = dict(_LOGIN.findall(properties["sasl.jaas.config"]))
        login = Login(properties["sasl.mechanism"], entry["username"], entry["password"])
    tls = None
    if "ssl.truststore.location" in properties:
        assert certificates is not None
        tls = ClientTls(
            _moved(properties["ssl.truststore.location"], certificates), _identity(properties, certificates)
        )
    security = Security(login, tls)
    assert security.protocol == properties["security.protocol"], file
    return security


def _moved(path: str, certificates: Path) -> Path:
    return certificates / path.removeprefix("certificates/")


def _identity(properties: Mapping[str, str], certificates: Path) -> IdentityFiles | None:
    """`certificates.sh` puts key and certificate beside the file that has both."""
    if "ssl.keystore.location" not in properties:
        return None
    both = _moved(properties["ssl.keystore.location"], certificates)
    key, none = both.with_suffix(".key"), both.with_suffix(".none")
    return IdentityFiles(both.with_suffix(".crt"), key, none, none, both, none)
