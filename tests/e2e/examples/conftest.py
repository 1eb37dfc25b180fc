"""The broker and the certificates of deploy/examples, for all tests of this folder."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest

from testkit.examples.stage import Stage, stage_of
from testkit.kafka.dist import KafkaDist


@pytest.fixture(scope="session")
def stage(kafka_dist: KafkaDist, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    if shutil.which("openssl") is None:
        pytest.skip("certificates.sh needs the command openssl")
    with stage_of(kafka_dist, tmp_path_factory.mktemp("examples")) as stage:
        yield stage
