"""What stands in a quota file beside its entries: the sections, `tenants:` and `exempt:`."""

from __future__ import annotations

from collections.abc import Generator
from typing import Final

from sluice.quotas.entity import ANONYMOUS, Default
from sluice.quotas.exempt import ExemptRule, Network, network_of
from sluice.quotas.files.config_error import shown, unknown_key_message, why_not_user
from sluice.quotas.files.entries import DEFAULT_NAME, TENANT_KEYS, EntryReader
from sluice.quotas.files.replication_section import REPLICATION_KEY, ReplicationSection, read_replication
from sluice.quotas.files.yaml_lines import YamlPath, YamlValue

EXEMPT_KEYS: Final = ("user", "address", "client-id")
TOP_KEYS: Final = ("quotas", "tenants", "exempt", REPLICATION_KEY)
_MEMBERS_PER_STEP: Final = 500
_RULES_PER_STEP: Final = 50


class SectionReader(EntryReader):
    """Takes a document apart and collects what is wrong with it."""

    def items(self) -> list[YamlValue]:
        """The entries; what stands around them is checked."""
        top = self._document.value
        if not isinstance(top, dict) or "quotas" not in top:
            # An empty file is more likely a failed write than the wish to lift every limit.
            self.problem((), "must begin with `quotas:`, a list of limits; no limits at all: `quotas: []`")
            return []
        for key in top:
            if key not in TOP_KEYS:
                self.problem((key,), unknown_key_message(key, TOP_KEYS))
        entries = top["quotas"]
        if not isinstance(entries, list):
            what = "is blank" if entries is None else "must be a list of entries (each begins with `- `)"
            self.problem(("quotas",), f"{what}; no limits at all: `quotas: []`")
            return []
        return entries

    def exempt(self) -> Generator[None, None, list[ExemptRule]]:
        """The rules of `exempt:` that are right, in steps of a millisecond or so."""
        top = self._document.value
        rules = top.get("exempt", []) if isinstance(top, dict) else []
        if not isinstance(rules, list):
            what = "is blank" if rules is None else "must be a list of rules (each begins with `- `)"
            self.problem(("exempt",), f"{what}; leave it out to exempt nobody")
            return []
        found = []
        for index, item in enumerate(rules):
            if index % _RULES_PER_STEP == _RULES_PER_STEP - 1:
                yield
            rule = self._exempt_rule(("exempt", index), item)
            if rule is not None:
                found.append(rule)
        return found

    def replication(self) -> ReplicationSection:
        """What stands in `replication:`, as far as it is right."""
        return read_replication(self._document.value, self.problem)

    def _exempt_rule(self, at: YamlPath, item: YamlValue) -> ExemptRule | None:
        """One rule, or None after telling what is wrong with it."""
        before = len(self.problems)
        if not isinstance(item, dict):
            self.problem(at, f"must be a mapping such as `user: backup`, is {shown(item)}")
            return None
        for key in item:
            if key not in EXEMPT_KEYS:
                self.problem((*at, key), unknown_key_message(key, EXEMPT_KEYS))
        user, client_id = (self._one_name(at, item, key) for key in ("user", "client-id"))
        network = self._network(at, item)
        if len(self.problems) != before:
            return None
        if user == ANONYMOUS and client_id is not None and network is None:
            # Whoever does not log in is ANONYMOUS.
            self.problem((*at, "client-id"), f"user {ANONYMOUS} is anybody, so this is a client-id alone")
            return None
        try:
            return ExemptRule(user, network, client_id)
        except ValueError as error:
            self.problem((*at, "client-id") if client_id is not None else at, str(error))
            return None

    def _one_name(self, at: YamlPath, item: dict[str, YamlValue], key: str) -> str | None:
        name = self.name(at, item, key)
        if isinstance(name, Default):
            self.problem((*at, key), f"must name one {key}; {DEFAULT_NAME} would exempt every other one")
            return None
        return name

    def _network(self, at: YamlPath, item: dict[str, YamlValue]) -> Network | None:
        if "address" not in item:
            return None
        text = item["address"]
        try:
            if isinstance(text, str):
                return network_of(text)
            reason = f"is {shown(text)}"
        except ValueError as error:
            reason = str(error)
        self.problem((*at, "address"), f"must be an address or a network such as 10.1.0.0/16: {reason}")
        return None

    def read_tenants(self) -> Generator[None, None, None]:
        """Fill `tenants` with those of `tenants:` that are right, in steps of a millisecond or so."""
        top = self._document.value
        items = top.get("tenants", []) if isinstance(top, dict) else []
        if not isinstance(items, list):
            what = "is blank" if items is None else "must be a list of tenants (each begins with `- `)"
            self.problem(("tenants",), f"{what}; leave it out where there are none")
            return
        names: dict[str, YamlPath] = {}
        members: dict[str, YamlPath] = {}
        for index, item in enumerate(items):
            yield from self._read_tenant(("tenants", index), item, names, members)

    def _read_tenant(
        self, at: YamlPath, item: YamlValue, names: dict[str, YamlPath], places: dict[str, YamlPath]
    ) -> Generator[None, None, None]:
        if not isinstance(item, dict):
            self.problem(at, f"must be a mapping such as `name: team-a`, is {shown(item)}")
            return
        for key in item:
            if key not in TENANT_KEYS:
                self.problem((*at, key), unknown_key_message(key, TENANT_KEYS))
        for key in TENANT_KEYS:
            if key not in item:
                self.problem(at, f"has no {key}")
        name = self.name(at, item, "name")
        members = item.get("members", [])
        if not isinstance(members, list):
            self.problem((*at, "members"), f"must be a list such as [alice, bob], is {shown(members)}")
            members = []
        if not isinstance(name, str):
            return
        earlier = names.setdefault(name, at)
        if earlier != at:
            self.problem(
                (*at, "name"), f"{name!r} is there already, on line {self._document.line_of(earlier)}"
            )
        mine = self.tenants.setdefault(name, [])
        for index, member in enumerate(members):
            if index % _MEMBERS_PER_STEP == _MEMBERS_PER_STEP - 1:
                yield
            place = (*at, "members", index)
            if not isinstance(member, str) or not member.strip() or member == DEFAULT_NAME:
                self.problem(place, f"must be the name of one user, is {shown(member)}")
                continue
            if (reason := why_not_user(member)) is not None:
                self.problem(place, reason)
                continue
            first = places.setdefault(member, place)
            if first == place:
                mine.append(member)
                continue
            line = self._document.line_of(first)
            self.problem(
                place, f"{member!r} is a member already, on line {line}; a user has one tenant at most"
            )
