"""Mapping rules make of a name the principal that Kafka's own class makes of it; its jar is the judge."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError

from sluice.proxy.listener.tls.principal_mapping import MappingRuleError, NoMatchingRule, PrincipalMapping
from testkit.kafka.java_machine import java_machine

NAME = "CN=kafka1.example.com,OU=Kafka\\, Streams,O=Example,L=Berlin,ST=BE,C=DE"
LONG_RULES = (
    "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/ , RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$"
    "/$1@$2/L, RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/L,DEFAULT"
)


@pytest.fixture(scope="module")
def java() -> Iterator[Any]:
    with java_machine() as jvm:
        yield jvm


@pytest.mark.parametrize(
    ("rules", "name", "principal"),
    [
        ("DEFAULT", NAME, NAME),
        (" DEFAULT ", "", ""),
        (LONG_RULES, "CN=Duke,OU=ServiceUsers,O=Org", "Duke"),
        (LONG_RULES, "CN=Duke,OU=SME,O=myCp,L=FL,ST=FL,C=US", "duke@sme"),
        (LONG_RULES, "OU=x,cn=Duke,O=Org", "duke"),
        (LONG_RULES, "OU=JavaSoft,O=Sun", "OU=JavaSoft,O=Sun"),
        ("RULE:^CN=([^,]+).*$/$1/U", "CN=élan,O=x", "ÉLAN"),
        ("RULE:^CN=(\\w+)\\/(\\w+),.*/$2\\/$1/,DEFAULT", "CN=a/b,O=x", "b/a"),
        ("RULE:CN=(.*)/$1@$2/", "CN=a", "a@$2"),
        ("RULE:.*/x/", "CN=a", "xx"),  # Java finds the empty rest, too
        ("RULE:(?<who>CN=(.*))/${who}!$2$0/", "CN=a", "CN=a!aCN=a"),
        ("RULE:CN=(.*)/$12/", "CN=a", "a2"),
    ],
)
def test_rules_name_the_principal(rules: str, name: str, principal: str) -> None:
    assert PrincipalMapping(rules).principal(name) == principal


def test_a_name_that_no_rule_matches_has_no_principal() -> None:
    mapping = PrincipalMapping("RULE:^CN=(\\w+)$/$1/, RULE:^UID=(\\w+)$/$1/")
    assert mapping.principal("UID=bob") == "bob"
    with pytest.raises(NoMatchingRule, match=r"no rule of principal_mapping_rules applies .* 'CN=a,O=b'"):
        mapping.principal("CN=a,O=b")


@pytest.mark.parametrize(
    ("rules", "rule", "why"),
    [
        ("", None, "has no rule"),
        (" , ", None, "has no rule"),
        ("default", "default", "is no rule; a rule is DEFAULT or RULE:"),
        ("DEFAULT,nonsense", "nonsense", "is no rule"),
        ("RULE:^CN=(.*)$", "RULE:^CN=(.*)$", "is no rule"),
        ("RULE:^CN=(.*)$/$1/LX", "RULE:^CN=(.*)$/$1/LX", "is no rule"),
        ("RULE:^CN=(.*$/$1/", "RULE:^CN=(.*$/$1/", "a group is not closed"),
        ("RULE:[a/x/", "RULE:[a/x/", "it ends too soon"),
        ("RULE:(a)(b)/$3$4/", "RULE:(a)(b)/$3$4/", "there is no group 4"),
        ("RULE:a/$1/", "RULE:a/$1/", "there is no group 1"),
        ("RULE:a/$x/", "RULE:a/$x/", "a $ without a group"),
        ("RULE:(?<n>a)/${m}/", "RULE:(?<n>a)/${m}/", "there is no group m"),
        ("RULE:\\p{L}+/x/", "RULE:\\\\p{L}+/x/", "a property other than those of ASCII"),
        ("RULE:[a&&[b]]/x/", "RULE:[a&&[b]]/x/", "a class in a class"),
        ("RULE:\\bCN/x/", "RULE:\\\\bCN/x/", "\\b is not known here"),
        ("RULE:(?x)a/x/", "RULE:(?x)a/x/", "a kind of group that is not known"),
        ("RULE:(?<=a*)b/x/", "RULE:(?<=a*)b/x/", "look-behind"),
    ],
)
def test_a_rule_that_cannot_be_followed_is_refused_by_name(rules: str, rule: str | None, why: str) -> None:
    with pytest.raises(MappingRuleError) as caught:
        PrincipalMapping(rules)
    assert str(caught.value).startswith("principal_mapping_rules: ")
    assert why in str(caught.value)
    if rule is not None:
        assert f"'{rule}'" in str(caught.value)


ATOMS = [
    "a", "b", "C", "N", "=", ",", ".", ".*", "(.*?)", "([a-z]+)", "[^,]+", "([^,]*)", "\\.", "\\w",
    "\\d", "\\s", "\\1", "\\2", "$", "^", "|", "(a|b)", "(?:x|y)", "(?i)", "(?s)", "(?i:cn)", "(?s:.)",
    "{2}", "{1,2}", "+", "*", "?", "*?", "++", "(?<n>a+)", "\\k<n>", "[]a]", "[^]]", "[a-c]", "[-a]",
    "[a-]", "[\\d-z]", "[a&b]", "[a^]", "[(?i)]", "[\\]]", "[\\p{Upper}x]", "\\p{Alpha}", "\\P{Digit}",
    "\\Q.+\\E", "(?=a)", "(?!b)", "(?<=a)", "(?>a|ab)", "\\z", "\\Z", "\\A", "\\t", "\\-", "\\,",
    "\\u00e9", "\\x41", "é", "ı", "K", "ſ", "{", "}", "]", "(", ")", "#", "-",
]  # fmt: skip
REPLACEMENTS = [
    "$1",
    "$2",
    "$0",
    "a",
    "\\$",
    "$",
    "$12",
    "$4@$5",
    "x$4",
    "$10",
    "${n}",
    "${q}",
    "\\\\",
    "@",
    "é",
    "\\",
]
NAMES = [
    "CN=alice,OU=x,O=Example", "a", "ab", "", "aab,b", "CN=\\,a b", "é", "A1\n", "a\u2028", "a\r\n", "b\n",
    "xyxy", "ABC", "K", "ſs", "CN=İß,OU=ǅ", "..+a", "CN=a,CN=b", "a\x85", "  a ",
]  # fmt: skip


def random_rules(random: Random) -> str:
    rules = []
    for _ in range(random.choice([1, 1, 1, 2, 3])):
        kind = random.random()
        if kind < 0.1:
            rules.append("DEFAULT")
        elif kind < 0.15:
            rules.append(
                random.choice(["", "RULE:", "DEFAULTx", "RULE:a/b/Lx", "foo", "RULE:a/b", "RULE:a//L"])
            )
        else:
            pattern = "".join(random.choice(ATOMS) for _ in range(random.randint(1, 5)))
            pattern = random.choice(["{}", "{}", "^CN=(.*?),{}.*$", ".*?{}.*"]).replace("{}", pattern, 1)
            replacement = "".join(random.choice(REPLACEMENTS) for _ in range(random.randint(0, 3)))
            rules.append(f"RULE:{pattern}/{replacement}/{random.choice(['', '', 'L', 'U'])}")
    return random.choice([",", " , ", ",\n"]).join(rules)


def principal_of(mapping: PrincipalMapping, name: str) -> str | None:
    try:
        return mapping.principal(name)
    except NoMatchingRule:
        return None


def java_principal_of(mapper: Any, name: str) -> str | None:
    try:
        return str(mapper.getName(name))
    except Py4JJavaError as error:
        if "No rules apply" in str(error):
            return None
        raise


def test_rules_that_are_taken_do_what_kafka_does_with_them(java: Any) -> None:
    """Also: none is taken that Kafka refuses, or fails on when a client comes."""
    mapper_of = java.org.apache.kafka.common.security.ssl.SslPrincipalMapper.fromRules
    random = Random(1)
    taken = matched = 0
    for _ in range(1500):
        rules = random_rules(random)
        try:
            mapping = PrincipalMapping(rules)
        except MappingRuleError:
            continue
        mapper = mapper_of(rules)
        taken += 1
        for name in random.sample(NAMES, 4):
            principal = principal_of(mapping, name)
            matched += principal is not None
            assert principal == java_principal_of(mapper, name), f"{rules!r} of {name!r}"
    assert taken > 300
    assert matched > 300


@pytest.mark.parametrize("rules", ["DEFAULT", LONG_RULES, "RULE:.*?CN=([^,+]*).*/$1/U"])
@pytest.mark.parametrize("name", NAMES)
def test_usual_rules_give_kafkas_principal(java: Any, rules: str, name: str) -> None:
    mapper = java.org.apache.kafka.common.security.ssl.SslPrincipalMapper.fromRules(rules)
    assert principal_of(PrincipalMapping(rules), name) == java_principal_of(mapper, name)
