"""Administrators see every config of a broker, and no address that they could not dial."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sluice.protocol.addresses import config_values
from sluice.protocol.addresses.config_values import (
    Shown,
    asks_for_brokers,
    hide_quorum_listeners,
    show_configs,
)
from sluice.protocol.apis import ApiKey, readable_versions
from sluice.protocol.codec.codec import decode_frame, encode_frame
from sluice.protocol.errors import MalformedFrame, ProtocolError
from sluice.protocol.headers import request_body
from sluice.protocol.parts import MAX_PARTS
from testkit.frames.frames import answer, decoded, random_answer, random_request, request, sized
from testkit.thorough import cases

TOPIC, BROKER, BROKER_LOGGER = 2, 4, 8
every_version = pytest.mark.parametrize("version", readable_versions(ApiKey.DESCRIBE_CONFIGS))
SEEDS = st.integers(0, 2**32)

KNOWN = {"b1.internal:9092": "gw:9101", "b1.internal": "gw"}
SHOWN = Shown(
    broker=lambda node_id: f"gw:{9100 + int(node_id)}" if node_id.isdecimal() else "gw:9199",
    known=KNOWN.get,
    elsewhere="gw:9092",
    hide=lambda value: value.replace("b1.internal:9092", "gw:9101").replace("b1.internal", "gw"),
)


def shown(name: str, value: str | None, *, version: int = 4, broker: str = "1") -> str | None:
    """What an administrator sees of a broker's config, and of a synonym of the same name."""
    config: Any = {"name": name, "value": value, "synonyms": [{"name": name, "value": value}]}
    result: Any = {"resourceType": BROKER, "resourceName": broker, "configs": [config]}
    frame = answer(ApiKey.DESCRIBE_CONFIGS, version, {"results": [result]})
    body: Any = decoded(
        "response", ApiKey.DESCRIBE_CONFIGS, version, show_configs(frame, version, SHOWN)
    ).body
    (seen,) = body["results"][0]["configs"]
    assert seen["synonyms"][0]["value"] == seen["value"]
    return seen["value"]  # type: ignore[no-any-return]


@every_version
@pytest.mark.parametrize(
    ("name", "real", "expected"),
    [
        ("advertised.listeners", "CLIENTS://b1.internal:9092", "CLIENTS://gw:9101"),
        (
            "advertised.listeners",
            "CLIENTS://b1.internal:9092,BETWEEN://10.0.0.5:9094, C://[fd00::2]:1",
            "CLIENTS://gw:9101,BETWEEN://gw:9101, C://gw:9101",
        ),
        ("listeners", "PLAINTEXT://:9092,CONTROLLER://0.0.0.0:9093", "PLAINTEXT://gw:9101,CONTROLLER://gw:9101"),
        ("listeners", "secret-host", "gw:9101"),
        ("listeners", "", ""),
        ("listeners", "A://,,", "A://,,"),
        ("listeners", None, None),
        ("controller.quorum.voters", "1@10.0.0.5:9093,-2@[::1]:9093", "1@gw:9092,-2@gw:9092"),
        ("controller.quorum.voters", "1@b1.internal:9092", "1@gw:9101"),
        ("controller.quorum.bootstrap.servers", "c1.internal:9093, b1.internal:9092", "gw:9092, gw:9101"),
        ("rlmm.config.bootstrap.servers", "10.0.0.5:9092", "gw:9092"),
        ("zookeeper.connect", "z1:2181,z2:2181/kafka", "gw:9092,gw:9092"),
        ("super.users", "User:CN=b1.internal;User:admin", "User:CN=gw;User:admin"),
        ("early.start.listeners", "CONTROLLER", "CONTROLLER"),
        ("log.dirs", "/var/kafka", "/var/kafka"),
    ],
)  # fmt: skip
def test_a_value_is_shown_without_real_addresses(
    name: str, real: str | None, expected: str | None, version: int
) -> None:
    assert shown(name, real, version=version) == expected


def test_the_clusters_defaults_belong_to_no_broker() -> None:
    assert shown("listeners", "X://h:1", broker="") == "X://gw:9199"


@every_version
@settings(max_examples=cases(50), deadline=None)
@given(seed=SEEDS)
def test_what_is_not_of_a_broker_stays_as_it_is(version: int, seed: int) -> None:
    frame = random_answer(ApiKey.DESCRIBE_CONFIGS, version, Random(seed), correlation_id=5)
    expected = decoded("response", ApiKey.DESCRIBE_CONFIGS, version, frame)
    body: Any = expected.body
    if any(result["resourceType"] == BROKER for result in body["results"]):
        return
    assert show_configs(frame, version, SHOWN) == frame


@every_version
@settings(max_examples=cases(50), deadline=None)
@given(seed=SEEDS)
def test_only_brokers_results_are_decoded_and_all_else_stays_byte_for_byte(version: int, seed: int) -> None:
    """Those of 400 topics beside one broker took 0.3 s, in which nobody else was served."""
    frame = random_answer(ApiKey.DESCRIBE_CONFIGS, version, Random(seed), correlation_id=5)
    value = decoded("response", ApiKey.DESCRIBE_CONFIGS, version, frame)
    body: Any = value.body
    for number, result in enumerate(body["results"]):
        result["resourceType"] = (TOPIC, BROKER, BROKER)[number % 3]
        result["errorMessage"] = "ask b1.internal:9092"
    longest: list[int] = []

    def noted(direction: Any, api_key: int, api_version: int, part: bytes) -> Any:
        longest.append(len(part))
        return decode_frame(direction, api_key, api_version, part)

    frame = sized(encode_frame("response", ApiKey.DESCRIBE_CONFIGS, version, value))
    for result in body["results"]:
        if result["resourceType"] == BROKER:
            result["errorMessage"] = "ask gw:9101"
    expected = sized(encode_frame("response", ApiKey.DESCRIBE_CONFIGS, version, value))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(config_values, "decode_frame", noted)
        assert show_configs(frame, version, SHOWN) == expected
    topics = sum(result["resourceType"] == TOPIC for result in body["results"])
    assert sum(longest) <= len(frame) - 10 * topics


@every_version
def test_an_answer_that_is_cut_off_or_goes_on_is_malformed(version: int) -> None:
    config: Any = {"name": "listeners", "value": "x", "synonyms": [{"name": "listeners", "value": "y"}]}
    results: Any = [
        {"resourceType": kind, "resourceName": "1", "configs": [config]} for kind in (TOPIC, BROKER)
    ]
    frame = answer(ApiKey.DESCRIBE_CONFIGS, version, {"results": results})
    for cut in range(len(frame)):
        with pytest.raises(MalformedFrame):
            show_configs(frame[:cut], version, SHOWN)
    with pytest.raises(MalformedFrame):
        show_configs(frame + b"\0", version, SHOWN)


@pytest.mark.parametrize("kind", [TOPIC, BROKER_LOGGER, 16, 32])
def test_other_resources_keep_what_looks_like_an_address(kind: int) -> None:
    config: Any = {"name": "listeners", "value": "b1.internal:9092"}
    result: Any = {"resourceType": kind, "resourceName": "t", "configs": [config]}
    frame = answer(ApiKey.DESCRIBE_CONFIGS, 4, {"results": [result]})
    assert show_configs(frame, 4, SHOWN) == frame


def test_an_error_message_names_no_address_either() -> None:
    result: Any = {"resourceType": BROKER, "resourceName": "1", "errorMessage": "ask b1.internal:9092"}
    frame = answer(ApiKey.DESCRIBE_CONFIGS, 4, {"results": [result]})
    body: Any = decoded("response", ApiKey.DESCRIBE_CONFIGS, 4, show_configs(frame, 4, SHOWN)).body
    assert body["results"][0]["errorMessage"] == "ask gw:9101"


def test_a_value_that_grows_beyond_its_field_is_an_answer_that_cannot_go_on() -> None:
    with pytest.raises(MalformedFrame):
        shown("listeners", "a," * 16_000, version=1)


# --- what is asked for


@every_version
@settings(max_examples=cases(100), deadline=None)
@given(seed=SEEDS)
def test_a_request_for_a_brokers_configs_is_recognised(version: int, seed: int) -> None:
    random = Random(seed)
    frame = bytearray(
        random_request(ApiKey.DESCRIBE_CONFIGS, version, random, correlation_id=1, client_id="app")
    )
    body: Any = decoded("request", ApiKey.DESCRIBE_CONFIGS, version, frame).body
    expected = any(resource["resourceType"] == BROKER for resource in body["resources"])
    start = request_body(frame, 14 + 3, len(frame), ApiKey.DESCRIBE_CONFIGS, version)
    assert asks_for_brokers(frame, start, len(frame), version) is expected


@every_version
@pytest.mark.parametrize("keys", [None, [], ["a", "b" * 200]])
def test_the_last_of_many_resources_counts(version: int, keys: Any) -> None:
    resources: list[Any] = [{"resourceType": TOPIC, "resourceName": "t", "configurationKeys": keys}] * 9
    for last, expected in ((TOPIC, False), (BROKER_LOGGER, False), (BROKER, True)):
        every: Any = [*resources, {"resourceType": last, "resourceName": "1", "configurationKeys": keys}]
        frame = bytearray(request(ApiKey.DESCRIBE_CONFIGS, version, {"resources": every}))
        start = request_body(frame, 14 + 3, len(frame), ApiKey.DESCRIBE_CONFIGS, version)
        assert asks_for_brokers(frame, start, len(frame), version) is expected


@every_version
@pytest.mark.parametrize("kind", ["resources", "keys", "null keys", "tags"])
def test_a_request_of_more_parts_than_anybody_sends_is_refused(version: int, kind: str) -> None:
    """520,000 keys took 0.2 s. Kafka's clients name none; where they are null they count as none."""
    if kind == "tags" and version < 4:
        return
    tags: Any = [{"tag": number, "hex": ""} for number in range(99)]
    one: Any = {"resourceType": TOPIC, "resourceName": "t", "configurationKeys": None}

    def ask(more: int) -> None:
        resources: Any = [one] * (MAX_PARTS + more)
        if kind == "keys":
            resources = [{**one, "configurationKeys": ["k"] * (MAX_PARTS - 1 + more)}]
        elif kind == "null keys":
            resources = [*[one] * 100, {**one, "configurationKeys": ["k"] * (MAX_PARTS - 101 + more)}]
        elif kind == "tags":
            resources = [{**one, "_unknownTaggedFields": tags}] * (MAX_PARTS // 100 + more)
        frame = bytearray(request(ApiKey.DESCRIBE_CONFIGS, version, {"resources": resources}))
        start = request_body(frame, 14 + 3, len(frame), ApiKey.DESCRIBE_CONFIGS, version)
        assert not asks_for_brokers(frame, start, len(frame), version)

    ask(0)
    with pytest.raises(MalformedFrame, match="must be ≤ 20,000"):
        ask(1)


@every_version
def test_a_request_cut_off_in_its_resources_is_malformed(version: int) -> None:
    resources: list[Any] = [{"resourceType": TOPIC, "resourceName": "t", "configurationKeys": ["k"]}] * 3
    frame = bytearray(request(ApiKey.DESCRIBE_CONFIGS, version, {"resources": resources}))
    start = request_body(frame, 14 + 3, len(frame), ApiKey.DESCRIBE_CONFIGS, version)
    behind = {1: 1, 2: 1, 3: 2, 4: 3}[version]  # two flags at most, and the tags
    for cut in range(start, len(frame) - behind):
        with pytest.raises(MalformedFrame):
            asks_for_brokers(frame, start, cut, version)


# --- the quorum


@settings(max_examples=cases(50), deadline=None)
@given(seed=SEEDS)
def test_the_quorum_is_shown_with_its_nodes_but_not_where_they_listen(seed: int) -> None:
    frame = random_answer(ApiKey.DESCRIBE_QUORUM, 2, Random(seed), correlation_id=5)
    expected: Any = decoded("response", ApiKey.DESCRIBE_QUORUM, 2, frame)
    for node in expected.body["nodes"]:
        node["listeners"] = []
    seen = decoded("response", ApiKey.DESCRIBE_QUORUM, 2, hide_quorum_listeners(frame, 2))
    assert (seen.header, seen.body) == (expected.header, expected.body)


@settings(max_examples=cases(100), deadline=None)
@given(seed=SEEDS, place=st.floats(0, 1, exclude_max=True), damage=st.binary(min_size=1, max_size=4))
def test_a_damaged_answer_is_shown_or_refused(seed: int, place: float, damage: bytes) -> None:
    frame = bytearray(random_answer(ApiKey.DESCRIBE_CONFIGS, 4, Random(seed), correlation_id=5))
    at = 4 + int(place * (len(frame) - 4))
    frame[at : at + len(damage)] = damage[: len(frame) - at]
    try:
        result = show_configs(bytes(frame), 4, SHOWN)
    except ProtocolError:
        return
    assert int.from_bytes(result[:4], "big") == len(result) - 4
