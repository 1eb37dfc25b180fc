"""Runs Kafka's command-line tools (what its bin/*.sh start) in a light JVM, by name.

A tool is named as its script without `kafka-` and `.sh`: `run_tool(dist, "topics", "--list", …)`.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from testkit.kafka.dist import KafkaDist
from testkit.processes.guarded_process import GuardedProcess

_TOOLS = "org.apache.kafka.tools"
MAIN_CLASSES: Final[dict[str, str]] = {
    "acls": f"{_TOOLS}.AclCommand",
    "broker-api-versions": f"{_TOOLS}.BrokerApiVersionsCommand",
    "client-metrics": f"{_TOOLS}.ClientMetricsCommand",
    "configs": "kafka.admin.ConfigCommand",
    "console-consumer": f"{_TOOLS}.consumer.ConsoleConsumer",
    "console-producer": f"{_TOOLS}.ConsoleProducer",
    "console-share-consumer": f"{_TOOLS}.consumer.ConsoleShareConsumer",
    "consumer-groups": f"{_TOOLS}.consumer.group.ConsumerGroupCommand",
    "consumer-perf-test": f"{_TOOLS}.ConsumerPerformance",
    "delegation-tokens": f"{_TOOLS}.DelegationTokenCommand",
    "delete-records": f"{_TOOLS}.DeleteRecordsCommand",
    "dump-log": f"{_TOOLS}.DumpLogSegments",
    "features": f"{_TOOLS}.FeatureCommand",
    "get-offsets": f"{_TOOLS}.GetOffsetShell",
    "groups": f"{_TOOLS}.GroupsCommand",
    "jmx": f"{_TOOLS}.JmxTool",
    "leader-election": f"{_TOOLS}.LeaderElectionCommand",
    "log-dirs": f"{_TOOLS}.LogDirsCommand",
    "metadata-quorum": f"{_TOOLS}.MetadataQuorumCommand",
    "producer-perf-test": f"{_TOOLS}.ProducerPerformance",
    "reassign-partitions": f"{_TOOLS}.reassign.ReassignPartitionsCommand",
    "share-consumer-perf-test": f"{_TOOLS}.ShareConsumerPerformance",
    "share-groups": f"{_TOOLS}.consumer.group.ShareGroupCommand",
    "storage": "kafka.tools.StorageTool",
    "topics": f"{_TOOLS}.TopicCommand",
    "transactions": f"{_TOOLS}.TransactionsCommand",
    "verifiable-consumer": f"{_TOOLS}.VerifiableConsumer",
    "verifiable-producer": f"{_TOOLS}.VerifiableProducer",
}
BROKER: Final = "kafka.Kafka"
QUIET: Final = ("-Xlog:disable", "-Xlog:all=error:stderr")
"""of the JVM itself: no warnings about archives of classes"""


class ToolError(Exception):
    """A tool ended with an exit code other than 0; the message has its output."""


def java_command(
    dist: KafkaDist,
    main_class: str,
    arguments: Sequence[str] = (),
    *,
    heap: str = "256m",
    quick_jit: bool = True,
    log_level: str = "warn",
    options: Sequence[str] = (),
) -> list[str]:
    """Return the command that runs a main class of Kafka's jars.

    The JVM is light: serial collector, and with `quick_jit` only the first compiler (C1). Log lines of
    `log_level` (slf4j-simple: trace, debug, info, warn, error) and above go to standard error.
    """
    simple_logger = "-Dorg.slf4j.simpleLogger"
    return [
        str(dist.java),
        f"-Xmx{heap}",
        "-XX:+UseSerialGC",
        *(["-XX:TieredStopAtLevel=1"] if quick_jit else []),
        "-Djava.awt.headless=true",
        # Else every JVM keeps a file in /tmp/hsperfdata_USER, and leaves it there when it is killed.
        "-XX:-UsePerfData",
        *_class_archive(dist, main_class),
        f"{simple_logger}.defaultLogLevel={log_level}",
        f"{simple_logger}.showDateTime=true",
        f"{simple_logger}.dateTimeFormat=HH:mm:ss.SSS",
        # Hundreds of lines each time that a client or a broker starts.
        f"{simple_logger}.log.org.apache.kafka.common.config.AbstractConfig=warn",
        *options,
        "-cp",
        dist.classpath,
        main_class,
        *arguments,
    ]


def _class_archive(dist: KafkaDist, main_class: str) -> list[str]:
    """The archive of its classes, if there is one: half of a start is loading them."""
    archive = dist.class_archive("broker" if main_class == BROKER else "tools")
    return [f"-XX:SharedArchiveFile={archive}", *QUIET] if archive.exists() else []


def tool_command(dist: KafkaDist, tool: str, *arguments: str | Path, heap: str = "256m") -> list[str]:
    """Return the command that runs a tool, for a caller that starts it itself. Raises KeyError if unknown."""
    return java_command(dist, MAIN_CLASSES[tool], [str(argument) for argument in arguments], heap=heap)


def run_tool(
    dist: KafkaDist,
    tool: str,
    *arguments: str | Path,
    input_text: str = "",
    timeout_s: float = 60.0,
    check: bool = True,
    heap: str = "256m",
) -> subprocess.CompletedProcess[str]:
    """Run a tool to its end and return exit code, standard output and standard error as text.

    `input_text` is its standard input (for console-producer: one record a line). Raises ToolError if it
    fails and `check` is set, subprocess.TimeoutExpired (it is then ended) after `timeout_s`.
    """
    done = subprocess.run(
        tool_command(dist, tool, *arguments, heap=heap),
        input=input_text,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    if check and done.returncode != 0:
        raise ToolError(
            f"{tool} ended with exit code {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
        )
    return done


def start_tool(
    dist: KafkaDist,
    tool: str,
    *arguments: str | Path,
    output: Path | None = None,
    heap: str = "256m",
) -> GuardedProcess:
    """Start a tool and return at once; it ends at the latest with this Python process.

    Both output streams go to the file `output`, or can be read as they come from `.output` of what is
    returned.
    """
    return GuardedProcess(tool_command(dist, tool, *arguments, heap=heap), output=output)
