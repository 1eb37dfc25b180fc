"""The codec against two other readings of Kafka's protocol, kafka-python's and kio's.

What they do not know is counted, so that coverage cannot shrink unseen. Values are tame, for these libraries
turn numbers into dates and error codes; test_codec_java.py has the wild ones.
"""

from __future__ import annotations

import importlib
import io
import pkgutil
import warnings
from collections.abc import Iterator
from random import Random
from typing import Any

import kio.index
import kio.serial

from sluice.protocol.codec.codec import encode_frame
from sluice.protocol.codec.spec_model import Direction
from testkit.frames.message_values import all_versions, message_of, random_frame

MESSAGE_VERSIONS = 604
INSTANCES = 3


def frames(direction: Direction, api_key: int, version: int, random: Random) -> Iterator[bytes]:
    for _ in range(INSTANCES):
        value = random_frame(direction, api_key, version, random, tame=True)
        yield encode_frame(direction, api_key, version, value)


def kafka_python_messages() -> dict[tuple[str, int], Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # it reads its own files in a deprecated way
        package = importlib.import_module("kafka.protocol")
        for module in pkgutil.walk_packages(package.__path__, "kafka.protocol."):
            if not module.name.startswith("kafka.protocol.old"):
                importlib.import_module(module.name)
        base = importlib.import_module("kafka.protocol.api_message").ApiMessage
    return {(message.type, message.API_KEY): message for message in base.__subclasses__()}


def test_kafka_python_reads_and_writes_the_same_bytes_wherever_it_knows_the_version() -> None:
    messages = kafka_python_messages()
    random = Random(11)
    covered = 0
    for direction, api_key, version in all_versions():
        message = messages.get((direction, api_key))
        if message is None or version > message.max_version:
            continue
        for frame in frames(direction, api_key, version, random):
            decoded = message.decode(frame, version=version, header=True)
            where = f"{message_of(direction, api_key).name} version {version}: {frame.hex()}"
            assert decoded.encode(header=True) == frame, where
        covered += 1
    assert covered == 478, f"kafka-python knows {covered} of {MESSAGE_VERSIONS}"


def kio_schema(direction: Direction, api_key: int, version: int) -> Any:
    load = kio.index.load_request_schema if direction == "request" else kio.index.load_response_schema
    try:
        return load(api_key, version)
    except (kio.index.UnknownAPIKey, kio.index.UnknownEntity):
        return None


def test_kio_reads_and_writes_the_same_bytes_wherever_it_knows_the_version() -> None:
    random = Random(12)
    covered = 0
    for direction, api_key, version in all_versions():
        schema = kio_schema(direction, api_key, version)
        if schema is None:
            continue
        for frame in frames(direction, api_key, version, random):
            header, header_size = kio.serial.entity_reader(schema.__header_schema__)(frame, 0)
            body, body_size = kio.serial.entity_reader(schema)(frame, header_size)
            written = io.BytesIO()
            kio.serial.entity_writer(schema.__header_schema__)(written, header)
            kio.serial.entity_writer(schema)(written, body)
            where = f"{message_of(direction, api_key).name} version {version}: {frame.hex()}"
            assert written.getvalue() == frame, where
            assert header_size + body_size == len(frame), where
        covered += 1
    assert covered == MESSAGE_VERSIONS, f"kio knows {covered} of {MESSAGE_VERSIONS}"
