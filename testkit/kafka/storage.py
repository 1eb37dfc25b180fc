"""The data folder of a new node, as `kafka-storage format` leaves it. A process formats one of a kind.

The format takes a JVM of its own, half as much processor time as the broker's start. Of its two files
bootstrap.checkpoint (the features and the SCRAM users) is the same for nodes of the same Kafka and the same
settings; meta.properties says which node of which cluster it is.
"""

from __future__ import annotations

import base64
import shlex
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from testkit.kafka.config import NodeConfig, scram_arguments
from testkit.kafka.dist import KafkaDist
from testkit.kafka.java_tools import MAIN_CLASSES, java_command

_CHECKPOINT: Final = "bootstrap.checkpoint"
_checkpoints: Final[dict[object, bytes]] = {}
"""kind of node → the file of the first that started"""


def starting(
    dist: KafkaDist, config: NodeConfig, cluster_id: str, properties: Path, broker: Sequence[str]
) -> list[str]:
    """The command that starts a node without data: `broker`, behind a format if it is a new kind."""
    folder, checkpoint = Path(config.data_folder), _checkpoints.get(_kind(dist, config))
    if checkpoint is None:
        storage = ["format", "-t", cluster_id, "-c", str(properties)]
        if _has_logins(config):
            storage += scram_arguments(config.users)
        format_data = java_command(dist, MAIN_CLASSES["storage"], storage)
        # One guarded command for both; exec keeps the pid.
        return ["/bin/sh", "-c", f"{shlex.join(format_data)} && exec {shlex.join(broker)}"]
    folder.mkdir()
    (folder / _CHECKPOINT).write_bytes(checkpoint)
    meta = {"version": 1, "cluster.id": cluster_id, "node.id": config.node_id, "directory.id": random_id()}
    (folder / "meta.properties").write_text("".join(f"{name}={value}\n" for name, value in meta.items()))
    return list(broker)


def started(dist: KafkaDist, config: NodeConfig) -> None:
    """It takes requests: what its format made is good for others of its kind."""
    kind = _kind(dist, config)
    if kind not in _checkpoints:
        _checkpoints[kind] = (Path(config.data_folder) / _CHECKPOINT).read_bytes()


def random_id() -> str:
    """A random id in Kafka's form: 16 bytes as 22 characters of URL-safe base 64."""
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()
        if not text.startswith("-"):  # StorageTool would take it for an option
            return text


def _has_logins(config: NodeConfig) -> bool:
    return any(listener.is_sasl for listener in config.listeners)


def _kind(dist: KafkaDist, config: NodeConfig) -> object:
    users = tuple(sorted(config.users.items())) if _has_logins(config) else ()
    return dist.version, users, tuple(sorted(config.extra.items()))
