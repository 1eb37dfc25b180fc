"""A configuration and the files that it names, or a quota file → every mistake of all of them at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from sluice.proxy.cli.output import json_text
from sluice.quotas.files.config_error import ConfigError, Problem, Problems
from sluice.quotas.files.load import load_quotas, read_given
from sluice.quotas.files.quota_file import parse_quotas
from sluice.quotas.files.yaml_lines import YamlDocument, YamlValue, parse_yaml
from sluice.quotas.limits.limits import QuotaLimits

if TYPE_CHECKING:
    from sluice.proxy.config.config import Config
    from sluice.proxy.config.gaps import Gap

_QUOTA_FILE_SECTIONS: Final = frozenset({"quotas", "tenants", "exempt", "replication"})


@dataclass(slots=True)
class Checked:
    """What was found in `file`."""

    file: Path
    problems: list[Problem] = field(default_factory=list)
    config: Config | None = None
    """None: it has problems, or `file` is a quota file"""
    limits: QuotaLimits | None = None
    warnings: list[Gap] = field(default_factory=list)
    """what `run` will warn of in its log; of one without problems"""

    def as_json(self) -> str:
        """{"ok": true, "problems": [{"file", "line", "key", "message"}, …], "warnings":
        [{"event", "message"}, …]}, in one line."""
        problems = [
            {"file": one.source, "line": one.line, "key": one.path, "message": one.message}
            for one in self.problems
        ]
        warnings = [{"event": gap.event, "message": str(gap)} for gap in self.warnings]
        told = {"ok": not problems, "problems": problems, "warnings": warnings}
        return json_text(told)

    def summary(self) -> list[str]:
        """What the file says, for people; of one without problems."""
        config = self.config
        if config is None:
            assert self.limits is not None
            return [f"OK: {self.file}: {_counted(self.limits)}", *self._warned()]
        lines = [f"OK: {self.file}"]
        for listener in config.listeners:
            here = f"{listener.bind_host}:{listener.bind_port}"
            there = listener.upstream
            lines.append(f"  listener {listener.name}: {here} -> {there} ({listener.security_protocol})")
        if self.limits is not None:
            lines.append(f"  quota file {config.quotas.file}: {_counted(self.limits)}")
        if config.quotas.topic is not None:
            topic = config.quotas.topic
            lines.append(f"  quota topic {topic.name} at {', '.join(topic.bootstrap)}")
        lines.append(f"  metrics and health: {config.admin.bind_host}:{config.admin.bind_port}")
        return lines + self._warned()

    def _warned(self) -> list[str]:
        return [f"  warning: {gap}" for gap in self.warnings]


def checked(file: Path, environ: Mapping[str, str]) -> Checked:
    """Read `file` and what it names. `environ`: SLUICE_* variables count as in `run`."""
    problems = Problems()
    found = Checked(file, problems.found)
    text = problems.tried(lambda: read_given(file, "given"))
    document = None if text is None else problems.tried(lambda: parse_yaml(text, str(file)))
    if text is None or document is None:
        return found
    if _is_quota_file(document.value):
        from sluice.proxy.config.gaps import name_gaps

        limits = found.limits = problems.tried(lambda: parse_quotas(text, str(file)))
        found.warnings = [] if limits is None else list(name_gaps(limits))
        return found
    from sluice.proxy.cli.start_up import refusals
    from sluice.proxy.config.file import config_of, with_places
    from sluice.proxy.config.gaps import gaps

    config = found.config = problems.tried(lambda: config_of(document, str(file), environ))
    quota_file = _quota_file(document) if config is None else config.quotas.file
    if quota_file is not None:
        found.limits = problems.tried(lambda: load_quotas(quota_file))
    if config is not None:
        for load in refusals(config, found.limits):
            problems.tried(load)
        if not found.problems:
            found.warnings = list(gaps(config, found.limits or QuotaLimits()))
    problems.found[:] = with_places(ConfigError(problems.found), document, str(file), environ).problems
    return found


def _is_quota_file(value: YamlValue) -> bool:
    """Whether it is meant as one, though it may be written wrongly: `quotas` holds entries, or one, or is
    forgotten above them."""
    if isinstance(value, list):
        return any(isinstance(entry, dict) and entry.keys() & {"user", "client-id", "ip"} for entry in value)
    if not isinstance(value, dict):
        return False
    section = value.get("quotas")
    if not isinstance(section, dict) or not value.keys() <= _QUOTA_FILE_SECTIONS:
        is_blank = section is None and "quotas" in value and value.keys() <= _QUOTA_FILE_SECTIONS
        return isinstance(section, list) or is_blank
    from sluice.proxy.config.quotas import QuotaOptions

    return not section.keys() & QuotaOptions.model_fields.keys()


def _quota_file(document: YamlDocument) -> Path | None:
    """The quota file of a configuration with mistakes, as far as it can be told."""
    section: Any = document.value.get("quotas") if isinstance(document.value, dict) else None
    name = section.get("file") if isinstance(section, dict) else None
    return Path(name) if isinstance(name, str) and name.strip() and "\0" not in name else None


def _counted(limits: QuotaLimits) -> str:
    count = len(limits.entries)
    text = f"limits for {count} {'entity' if count == 1 else 'entities'}"
    further = (
        ("tenant", len(limits.tenants)),
        ("schedule", len(limits.schedules)),
        ("exempt rule", len(limits.exempt.rules)),
    )
    return ", ".join([text, *(f"{count} {what}{'s' * (count != 1)}" for what, count in further if count)])
