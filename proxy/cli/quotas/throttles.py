"""KIP-73's four settings of brokers and topics, for `sluice configs`: the cluster's own, or a quota file's.

In the cluster they are dynamic configurations, shown as `kafka-configs` shows them; a named broker is asked
itself, as by Kafka's tool. In a quota file they stand under `replication:`. Source: DescribeConfigs (32) and
IncrementalAlterConfigs (44).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, TypeAlias

from kafka.protocol.admin import DescribeConfigsRequest, IncrementalAlterConfigsRequest
from kafka.protocol.metadata import MetadataRequest

from sluice.proxy.cli.options import CommandFailed
from sluice.proxy.cli.quotas.edit import Entry, with_section
from sluice.proxy.cli.quotas.kafka_server import Address, KafkaServer
from sluice.proxy.cli.quotas.places import QuotaFilePlace
from sluice.proxy.cli.quotas.remote import refusal
from sluice.proxy.cli.quotas.sections import in_parts, replication_items
from sluice.proxy.cli.quotas.throttle_arguments import BROKERS, KEYS_OF_TYPE, TOPICS, Changes, Throttled
from sluice.quotas.files.quota_file import DEFAULT_NAME, parse_quotas
from sluice.quotas.files.replication_section import REPLICATION_KEY
from sluice.quotas.files.yaml_lines import parse_yaml

_RESOURCE_OF: Final = {TOPICS: 2, BROKERS: 4}
"""ConfigResource.Type"""
_SET, _DELETE = 0, 1
"""AlterConfigOp.OpType"""
_SOURCES: Final = {
    1: "DYNAMIC_TOPIC_CONFIG",
    2: "DYNAMIC_BROKER_CONFIG",
    3: "DYNAMIC_DEFAULT_BROKER_CONFIG",
    4: "STATIC_BROKER_CONFIG",
    5: "DEFAULT_CONFIG",
    6: "DYNAMIC_BROKER_LOGGER_CONFIG",
}
"""DescribeConfigsResponse.ConfigSource"""
_OF_TOPIC, _OF_BROKER, _OF_ALL_BROKERS = 1, 2, 3
_DESCRIBE_VERSION: Final = 2
_ALTER_VERSION: Final = 0
_METADATA_VERSION: Final = 4


@dataclass(frozen=True, slots=True)
class Setting:
    """One value of a broker or topic."""

    value: str
    synonyms: str = ""
    """`SOURCE:key=value, …`, the one in force first; empty: the place does not know"""


Settings: TypeAlias = Mapping[str, Mapping[str, Setting]]
"""name → key → value; a broker's name is its id or DEFAULT_NAME"""


class ThrottlePlace(ABC):
    """A place that has these settings: a quota file or a cluster."""

    name: str

    @property
    @abstractmethod
    def written(self) -> str:
        """Where a change went, and who follows it: a sentence."""

    @abstractmethod
    def settings(self, asked: Throttled) -> Settings:
        """By name, those that are asked for. Raises ConfigError, CommandFailed."""

    @abstractmethod
    def change(self, asked: Throttled, changes: Changes) -> None:
        """Make them; some differ from what is there. Raises ConfigError, CommandFailed."""

    def lines(self, asked: Throttled) -> Iterator[str]:
        """What `--describe` prints; of all those asked for at once only who has a setting."""
        for name, found in self.settings(asked).items():
            if found or asked.name is not None:
                yield asked.heading(name)
            for key, setting in found.items():
                more = f" sensitive=false synonyms={{{setting.synonyms}}}" if setting.synonyms else ""
                yield f"  {key}={setting.value}{more}"

    def alter(self, asked: Throttled, changes: Changes) -> bool:
        """Returns whether there was anything to change."""
        assert asked.name is not None
        now = self.settings(asked).get(asked.name, {})
        values: dict[str, str | None] = {key: setting.value for key, setting in now.items()}
        needed = {key: value for key, value in changes.items() if values.get(key) != value}
        if needed:
            self.change(asked, needed)
        return bool(needed)


class ThrottleFile(ThrottlePlace):
    """The section `replication:` of a quota file; written anew by a change, without comments within it."""

    def __init__(self, place: QuotaFilePlace) -> None:
        self.name = place.name
        self._place = place

    @property
    def written(self) -> str:
        """A proxy takes them from the file if it is told so."""
        return f"{self._place.written} By a proxy with `replication.source: quotas`."

    def settings(self, asked: Throttled) -> Settings:
        """All of that type, or the named one."""
        found = {
            _name_of(asked.kind, item): {
                key: Setting(str(item[key])) for key in KEYS_OF_TYPE[asked.kind] if key in item
            }
            for item in _section(self._place.read(), self.name).get(asked.kind, ())
        }
        return found if asked.name is None else {asked.name: found.get(asked.name, {})}

    def change(self, asked: Throttled, changes: Changes) -> None:
        """All are made in one write of the file."""
        self._place.rewrite(lambda text: _with_changes(text, self.name, asked, changes))


def _section(text: str, source: str) -> dict[str, list[Entry]]:
    """By part, each broker and topic once. Raises ConfigError for a file that cannot be used."""
    parse_quotas(text, source)
    value: Any = parse_yaml(text, source).value
    return in_parts(replication_items(value.get(REPLICATION_KEY, {})))


def _name_of(kind: str, item: Mapping[str, Any]) -> str:
    return str(item["id" if kind == BROKERS else "name"])


def _with_changes(text: str, source: str, asked: Throttled, changes: Changes) -> str:
    section = _section(text, source)
    kind, name = asked.kind, asked.name
    items = section.get(kind, [])
    item = next((item for item in items if _name_of(kind, item) == name), None)
    if item is None:
        assert name is not None
        is_id = kind == BROKERS and name != DEFAULT_NAME
        item = {"id" if kind == BROKERS else "name": int(name) if is_id else name}
        items.append(item)
    for key, value in changes.items():
        if value is None:
            item.pop(key, None)
        else:
            item[key] = int(value) if kind == BROKERS else value
    section[kind] = [item for item in items if len(item) > 1]  # more than its name
    return with_section(text, source, REPLICATION_KEY, {part: some for part, some in section.items() if some})


class ThrottleServer(ThrottlePlace):
    """The cluster's own dynamic configurations."""

    def __init__(self, server: KafkaServer) -> None:
        self.name = server.name
        self._server = server

    @property
    def written(self) -> str:
        """The cluster took it; brokers act by it, too."""
        return (
            f"Taken by {self.name}: the cluster's own settings, by which brokers throttle, and proxies with "
            "`replication.source: cluster` (within replication.refresh_interval_s)."
        )

    def settings(self, asked: Throttled) -> Settings:
        """Those that the cluster tells; each broker is asked for its own."""
        if asked.kind == TOPICS:
            names = self._topics() if asked.name is None else [asked.name]
            return self._described(asked.kind, names, None)
        if asked.name is not None:
            return self._described(asked.kind, [asked.name], self._address(asked.name))
        found: dict[str, Mapping[str, Setting]] = {}
        for name in [*self._brokers, DEFAULT_NAME]:
            found |= self._described(asked.kind, [name], self._address(name))
        return found

    def change(self, asked: Throttled, changes: Changes) -> None:
        """All are made by one request."""
        assert asked.name is not None
        resource_of = IncrementalAlterConfigsRequest.AlterConfigsResource
        configs = [
            resource_of.AlterableConfig(
                name=key, config_operation=_DELETE if value is None else _SET, value=value
            )
            for key, value in changes.items()
        ]
        resource = resource_of(
            resource_type=_RESOURCE_OF[asked.kind], resource_name=_resource_name(asked.name), configs=configs
        )
        request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
        address = self._address(asked.name) if asked.kind == BROKERS else None
        for answer in self._server.ask(request, _ALTER_VERSION, address).responses:
            self._check(asked, answer)

    def _described(self, kind: str, names: Sequence[str], address: Address | None) -> Settings:
        resource_of = DescribeConfigsRequest.DescribeConfigsResource
        resources = [
            resource_of(
                resource_type=_RESOURCE_OF[kind],
                resource_name=_resource_name(name),
                configuration_keys=list(KEYS_OF_TYPE[kind]),
            )
            for name in names
        ]
        request = DescribeConfigsRequest(resources=resources, include_synonyms=True)
        found = {}
        results = self._server.ask(request, _DESCRIBE_VERSION, address).results
        for name, result in zip(names, results, strict=True):
            self._check(Throttled(kind, name), result)
            own = _OF_TOPIC if kind == TOPICS else _OF_ALL_BROKERS if name == DEFAULT_NAME else _OF_BROKER
            found[name] = {
                config.name: Setting(config.value, _synonyms(config.synonyms))
                for config in result.configs
                if config.config_source == own and config.value is not None
            }
        return found

    def _check(self, asked: Throttled, answer: Any) -> None:
        if answer.error_code:
            told = refusal(answer.error_code, answer.error_message)
            raise CommandFailed(f"{self.name}: {asked.kind[:-1]} {asked.name}: {told}")

    def _address(self, name: str) -> Address | None:
        """Where a broker is; None: any broker will do."""
        if name == DEFAULT_NAME:
            return None
        if name not in self._brokers:
            raise CommandFailed(f"{self.name}: there is no broker {name}; known: {', '.join(self._brokers)}")
        return self._brokers[name]

    @cached_property
    def _brokers(self) -> dict[str, Address]:
        brokers = sorted(self._metadata(topics=[]).brokers, key=lambda broker: int(broker.node_id))
        return {str(broker.node_id): (broker.host, int(broker.port)) for broker in brokers}

    def _topics(self) -> list[str]:
        return sorted(topic.name for topic in self._metadata(topics=None).topics if not topic.error_code)

    def _metadata(self, topics: list[Any] | None) -> Any:
        """Brokers, and those topics that are asked for; None: all topics."""
        return self._server.ask(
            MetadataRequest(topics=topics, allow_auto_topic_creation=False), _METADATA_VERSION
        )


def _synonyms(found: Iterable[Any]) -> str:
    return ", ".join(f"{_SOURCES.get(one.source, 'UNKNOWN')}:{one.name}={one.value}" for one in found)


def _resource_name(name: str) -> str:
    return "" if name == DEFAULT_NAME else name
