"""The registry: every API has a number and a class, and nothing is offered that no reader knows."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from sluice.protocol._tables import API_NAMES, THROTTLE, UNSTABLE, VERSIONS
from sluice.protocol.apis import CLASSES, OFFERED, READABLE, ApiClass, ApiKey, ErrorCode, offered
from sluice.protocol.codec.spec_model import load_message

ROOT = Path(__file__).resolve().parents[2]
NEWER = {key: (first, last + 1) for key, (first, last) in VERSIONS.items()}
"""fabricated: each API one version further than Kafka has it"""


def test_the_enum_names_every_api_of_the_tables_as_kafka_does() -> None:
    """Red with a newer Kafka: name its new APIs in ApiKey, and say in CLASSES what they are."""
    names = {key: re.sub(r"(?<!^)(?=[A-Z])", "_", name).upper() for key, name in API_NAMES.items()}
    assert {int(key): key.name for key in ApiKey} == names


def test_every_api_is_in_a_class_and_only_a_plain_one_is_in_no_other() -> None:
    others = [keys for api_class, keys in CLASSES.items() if api_class is not ApiClass.PLAIN]
    assert CLASSES.keys() == set(ApiClass)
    assert CLASSES[ApiClass.PLAIN] == set(ApiKey) - frozenset[int]().union(*others)


def test_the_sets_that_the_hot_path_asks_hold_plain_ints() -> None:
    assert {type(key) for keys in CLASSES.values() for key in keys} == {int}


@pytest.mark.parametrize("api_key", READABLE, ids=lambda key: ApiKey(key).name)
def test_readers_know_every_version_that_is_generated(api_key: int) -> None:
    """Red with a newer Kafka: look at the readers named in READABLE, then raise it there."""
    assert READABLE[api_key] == VERSIONS[api_key]


def test_an_unstable_version_is_not_offered() -> None:
    assert UNSTABLE
    for api_key, version in UNSTABLE.items():
        assert OFFERED[api_key][1] < version


def test_an_api_without_a_reader_is_offered_as_it_is_generated() -> None:
    """Red with a newer Kafka: an API's throttle_time_ms has come to take a walk (throttle_field.py)."""
    others = VERSIONS.keys() - READABLE.keys()
    assert {key: OFFERED[key] for key in others} == {key: VERSIONS[key] for key in others}


def test_no_version_of_newer_tables_is_offered_that_a_hand_written_reader_does_not_know() -> None:
    found = offered(NEWER, THROTTLE)
    assert {key: found[key] for key in READABLE} == READABLE
    # One that is not offered as it is generated is told by the test before this one.
    others = {key for key in OFFERED if key not in READABLE and OFFERED[key] == VERSIONS[key]}
    assert {key: found[key] for key in others} == {key: NEWER[key] for key in others}


def test_versions_that_newer_tables_have_dropped_are_not_offered_either() -> None:
    assert offered({ApiKey.FETCH: (12, 19)}, {}) == {ApiKey.FETCH: (12, 18)}
    first, last = offered({ApiKey.FETCH: (19, 20)}, {})[ApiKey.FETCH]
    assert first > last


def test_an_api_without_a_reader_ends_before_the_version_whose_throttle_time_takes_a_walk() -> None:
    walk_from_3 = ((0, 1, 0, 0), (3, 4, 2, 0))
    key = min(OFFERED.keys() - READABLE.keys())
    assert offered({key: (0, 4)}, {key: walk_from_3}) == {key: (0, 2)}


def test_an_api_that_the_registry_does_not_name_is_as_unknown_as_ever() -> None:
    assert offered({200: (0, 1)}, {}) == {}


SESSION_WITH_NEWER_TABLES = """
from sluice.protocol import _tables
_tables.VERSIONS.update({key: (first, last + 1) for key, (first, last) in _tables.VERSIONS.items()})
_tables.THROTTLE.update({
    key: (*runs[:-1], (runs[-1][0], _tables.VERSIONS[key][1], *runs[-1][2:]))
    for key, runs in _tables.THROTTLE.items() if runs
})
from sluice.protocol.apis import READABLE
from sluice.protocol.throttle_field import throttle_offset
from testkit.frames.frames import answer, decoded, request
from testkit.proxy.playbook import shell_of, shared_of, limits_of
shell = shell_of(shared_of(limits_of()))
shell.client_sends(request(18, 3, {"clientSoftwareName": "app", "clientSoftwareVersion": "1"}))
entries = [
    {"apiKey": key, "minVersion": first, "maxVersion": 99} for key, (first, _) in _tables.VERSIONS.items()
]
shell.broker_sends(answer(18, 3, {"apiKeys": entries}))
shown = decoded("response", 18, 3, shell.to_client).body["apiKeys"]
told = {one["apiKey"]: one["maxVersion"] for one in shown}
print({key: told[key] for key in READABLE} == {key: last for key, (_, last) in READABLE.items()})
print([throttle_offset(bytearray(99), 0, 99, key, READABLE[key][1] + 1) for key in (18, 41)])
"""


def test_a_session_with_newer_tables_offers_no_version_that_it_would_refuse() -> None:
    """SaslAuthenticate v3 was offered, and then refused. Nor is a throttle_time_ms written by guess."""
    command = [sys.executable, "-c", SESSION_WITH_NEWER_TABLES]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.stdout == "True\n[None, None]\n", done.stderr


NEWER_KAFKA = """
import sys
import pytest
from sluice.protocol._tables import VERSIONS
from sluice.protocol.apis import READABLE
newer = 0, 36, min(VERSIONS.keys() - READABLE.keys())
VERSIONS.update({key: (VERSIONS[key][0], VERSIONS[key][1] + 1) for key in newer})
options = ["-p", "no:cacheprovider", "-q", "--tb=no", "-rf", "-k", "know_every_version"]
sys.exit(pytest.main([*options, "tests/protocol/test_apis.py"]))
"""


def test_a_newer_kafka_turns_exactly_the_tests_red_whose_reader_must_be_looked_at() -> None:
    """The third of these is read by nobody."""
    command = [sys.executable, "-c", NEWER_KAFKA]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert set(re.findall(r"^FAILED .*\[(\w+)\]", done.stdout, re.MULTILINE)) == {
        "PRODUCE",
        "SASL_AUTHENTICATE",
    }, done.stdout + done.stderr


def test_the_codec_has_every_message_that_is_read_or_written() -> None:
    for api_key, (first, last) in READABLE.items():
        for direction in ("request", "response"):
            message = load_message(direction, api_key)
            assert message is not None
            assert {first, last} <= set(range(message.versions.first, message.versions.last + 1))


def test_error_codes_are_as_an_independent_library_has_them() -> None:
    from kio.schema.errors import ErrorCode as Kios

    for code in ErrorCode:
        assert Kios(code).name == code.name.lower().replace("unknown_topic_or_partition", Kios(3).name)
