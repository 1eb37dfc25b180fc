"""A client's certificate → its principal, as a Kafka broker would name it: distinguished name, then rules.

Sources: javax.security.auth.x500.X500Principal.getName() (RFC 2253); KIP-371, `ssl.principal.mapping.rules`;
org.apache.kafka.common.security.ssl.SslPrincipalMapper; java.util.regex.Matcher.
"""

from __future__ import annotations

import re
from typing import Final

from sluice.protocol.primitives import java_text
from sluice.proxy.listener.tls.certificate_fields import Attribute, subject
from sluice.proxy.listener.tls.java_regex import JavaRegexError, compile_java
from sluice.quotas.files.config_error import ConfigError, Problem, shown

DEFAULT_RULES: Final = "DEFAULT"
OPTION: Final = "principal_mapping_rules"

_KEYWORDS: Final = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}
# UTF8String, PrintableString, T61String, IA5String, GeneralString, BMPString: Java up to 21, which Kafka's
# own images run, takes them all for UTF-8. (Java 25 reads each by its type.)
_STRING_TAGS: Final = frozenset({0x0C, 0x13, 0x14, 0x16, 0x1B, 0x1E})
_TO_ESCAPE: Final = re.compile(r'[,=+<>#;"\\]')
_OUTER_SPACE: Final = " \r"  # what Java takes for it

_RULE: Final = r"(DEFAULT)|RULE:((\\.|[^\\/])*)/((\\.|[^\\/])*)/([LU]?).*?|(.*?)"
_ONE_RULE: Final = compile_java(_RULE)
_RULES: Final = compile_java(rf"\s*({_RULE})\s*(,\s*|$)")
_REFERENCE: Final = re.compile(r"\$(\d+)", re.ASCII)
_NAME: Final = re.compile(r"\{([a-zA-Z][a-zA-Z0-9]*)\}")
_TRIMMED: Final = "".join(map(chr, range(0x21)))  # by Java's String.trim
_MAX_INT: Final = 2**31 - 1


def distinguished_name(der: bytes) -> str:
    """The subject of a certificate as Java writes it: `CN=alice,OU=Payments\\, EU,O=Example`.

    The last attribute comes first, unknown types are numbers, and their values hexadecimal. ValueError: it is
    no certificate.
    """
    return ",".join("+".join(map(_assertion, rdn)) for rdn in reversed(subject(der)))


def _assertion(attribute: Attribute) -> str:
    keyword = _KEYWORDS.get(attribute.oid)
    if keyword is None or attribute.tag not in _STRING_TAGS:
        return f"{keyword or attribute.oid}=#{attribute.encoded.hex()}"
    text = _TO_ESCAPE.sub(r"\\\g<0>", java_text(attribute.content)).replace("\0", "\\00")
    inner = text.strip(_OUTER_SPACE)
    if not inner:
        return f"{keyword}={_escaped(text)}"
    start = text.index(inner)
    return f"{keyword}={_escaped(text[:start])}{inner}{_escaped(text[start + len(inner) :])}"


def _escaped(text: str) -> str:
    return "".join(f"\\{char}" for char in text)


class MappingRuleError(ConfigError):
    """`principal_mapping_rules` cannot be used; says which rule, and why."""

    def __init__(self, message: str) -> None:
        super().__init__([Problem(message, path=OPTION)])


class NoMatchingRule(ValueError):
    """No rule applies to this name: a broker would not let its client in."""


class PrincipalMapping:
    """The rules of `principal_mapping_rules`, Kafka's `ssl.principal.mapping.rules`: DEFAULT, or
    RULE:pattern/replacement/[LU], with commas between them. The first that matches a whole name decides."""

    def __init__(self, rules: str = DEFAULT_RULES) -> None:
        """Raises MappingRuleError for a rule that is none, or that cannot be followed to the letter here."""
        self._rules: list[_Rule | None] = []  # None: DEFAULT
        for found in _RULES.finditer(rules.strip(_TRIMMED)):
            text: str = found[1]
            rule = _ONE_RULE.match(text)
            if rule is None or rule.end() != len(text):
                raise MappingRuleError(
                    f"{shown(text)} is no rule; a rule is DEFAULT or RULE:pattern/replacement/"
                )
            if rule[1] is not None:
                self._rules.append(None)
            elif rule[2] is not None:
                self._rules.append(_Rule(text, rule[2], rule[4], rule[6]))
        if not self._rules:
            raise MappingRuleError(
                "has no rule, so nobody would have a principal; DEFAULT keeps the whole name"
            )

    def principal(self, distinguished_name: str) -> str:
        """The user's name, without `User:`. Raises NoMatchingRule."""
        for rule in self._rules:
            principal = distinguished_name if rule is None else rule.apply(distinguished_name)
            if principal is not None:
                return principal
        raise NoMatchingRule(f"no rule of {OPTION} applies to the certificate's name {distinguished_name!r}")


class _Rule:
    def __init__(self, text: str, pattern: str, replacement: str, case: str) -> None:
        try:
            self._pattern = compile_java(pattern)
        except JavaRegexError as error:
            raise MappingRuleError(f"{shown(text)}: its pattern cannot be used: {error}") from None
        try:
            self._replacement = _parsed(_kept_where_invalid(replacement, self._pattern.groups), self._pattern)
        except ValueError as error:
            raise MappingRuleError(f"{shown(text)}: its replacement cannot be used: {error}") from None
        self._case = case

    def apply(self, name: str) -> str | None:
        # Kafka asks whether the whole name matches, but then replaces every match in it: maybe others.
        if self._pattern.fullmatch(name) is None:
            return None
        result = self._replaced(name)
        if self._case:
            return result.lower() if self._case == "L" else result.upper()
        return result

    def _replaced(self, name: str) -> str:
        """Not `sub`: where Java found nothing but an empty match, it goes on with the next character."""
        parts: list[str] = []
        taken = pos = 0
        while pos <= len(name) and (match := self._pattern.search(name, pos)):
            parts.append(name[taken : match.start()])
            parts += (part if isinstance(part, str) else match[part[0]] or "" for part in self._replacement)
            taken = pos = match.end()
            pos += match.start() == pos
        parts.append(name[taken:])
        return "".join(parts)


def _kept_where_invalid(replacement: str, groups: int) -> str:
    """Kafka's escapeLiteralBackReferences: `$4` is kept as it stands if there are fewer groups, but not if
    there are none; and with its slip: places are counted in the text before any was escaped."""
    if not groups:
        return replacement
    value = replacement
    for reference in _REFERENCE.finditer(replacement):
        digits = reference[1]
        if digits.startswith("0"):
            continue
        index = int(digits)
        if index > _MAX_INT:
            raise ValueError(f"${digits} is no group")
        while index > groups and index >= 10:
            index //= 10
        if index > groups:
            value = f"{value[: reference.start()]}\\{value[reference.start() :]}"
    return value


def _parsed(replacement: str, pattern: re.Pattern[str]) -> tuple[str | tuple[int], ...]:
    """A replacement of Java's String.replaceAll: texts, and groups each in a tuple."""
    parts: list[str | tuple[int]] = []
    pos = 0
    while pos < len(replacement):
        char = replacement[pos]
        pos += 1
        if char == "\\":
            if pos == len(replacement):
                raise ValueError("it ends with a backslash")
            parts.append(replacement[pos])
            pos += 1
        elif char == "$":
            group, pos = _group(replacement, pos, pattern)
            parts.append((group,))
        else:
            parts.append(char)
    return tuple(parts)


def _group(replacement: str, pos: int, pattern: re.Pattern[str]) -> tuple[int, int]:
    """Which group `$…` means, and where it ends. As many digits count as make the number of a group."""
    name = _NAME.match(replacement, pos)
    if name is not None:
        if name[1] not in pattern.groupindex:
            raise ValueError(f"there is no group {name[1]}")
        return pattern.groupindex[name[1]], name.end()
    if not _is_digit(replacement[pos : pos + 1]):
        raise ValueError("a $ without a group; write \\$ for the character")
    group = int(replacement[pos])
    pos += 1
    while _is_digit(replacement[pos : pos + 1]) and group * 10 + int(replacement[pos]) <= pattern.groups:
        group = group * 10 + int(replacement[pos])
        pos += 1
    if group > pattern.groups:
        raise ValueError(f"there is no group {group}")
    return group, pos


def _is_digit(char: str) -> bool:
    return "0" <= char <= "9"
