"""`sluice calibrate-cost` against a real broker: what it measures, and that it leaves nothing behind."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from sluice.proxy.calibration.calibrate import Calibration, Target
from sluice.proxy.calibration.fit import fit_all
from sluice.proxy.calibration.jmx import read_request_ms
from sluice.proxy.calibration.request_cost_file import load_request_costs
from sluice.proxy.calibration.rig import CalibrationError
from testkit.kafka.dist import KafkaDist
from testkit.kafka.java_tools import run_tool, tool_command
from testkit.kafka.jmx import jmx_options, jmx_url
from testkit.kafka.node import KafkaNode
from testkit.processes.ports import free_port
from testkit.processes.waiting import wait_until
from testkit.proxy.sluice_process import SLUICE

MEASURED = {"Produce none 1×16×1000 B acks=1", "Produce none 1×1×100 B acks=1", "Heartbeat", "Fetch 32000 B"}

CALIBRATION = "sluice-calibration"

pytestmark = pytest.mark.kafka


@pytest.fixture(scope="module")
def jmx_port() -> int:
    return free_port()


@pytest.fixture(scope="module")
def node(kafka_dist: KafkaDist, jmx_port: int) -> Iterator[KafkaNode]:
    """A broker with a JMX port."""
    with KafkaNode(kafka_dist, java_options=jmx_options(jmx_port)) as node:
        yield node


@pytest.fixture(scope="module")
def jmx(node: KafkaNode, jmx_port: int) -> str:
    """The way to it."""
    return jmx_url(jmx_port)


def target_of(node: KafkaNode, jmx: str) -> Target:
    host, port = node.address("PLAINTEXT")
    return Target(host, port, tuple(tool_command(node.dist, "jmx")), jmx)


@pytest.mark.long
def test_a_broker_tells_what_its_threads_spent_on_each_load_and_nothing_stays_behind(
    node: KafkaNode, jmx: str
) -> None:
    calibration = Calibration(target_of(node, jmx), 0.4)
    found = calibration.measure(1, lambda load: load.name in MEASURED)
    assert {load.name for load in found} == MEASURED
    for load in found:
        assert 0.005 < load.cost_ms < 50.0
        assert load.upstream_ms > 0.0
    assert fit_all(found)
    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    # A broker tells of a topic for a moment after its controller has deleted it.
    wait_until(lambda: not any(name.startswith(CALIBRATION) for name in admin.list_topics(timeout=30).topics))
    quotas = run_tool(
        node.dist, "configs", "--bootstrap-server", node.bootstrap, "--describe", "--entity-type", "clients"
    )
    assert "request_percentage" not in quotas.stdout


def test_a_mix_is_judged_by_the_costs_that_sluice_brings(node: KafkaNode, jmx: str) -> None:
    calibration = Calibration(target_of(node, jmx), 0.3)
    costs = load_request_costs(None).plain
    (mix,) = calibration.drive_mixes(1, lambda mix: mix.name == "consumers, flat out")
    result = mix.judged(costs)
    assert result.requests > 10
    assert result.measured_ms > 0.0
    assert -1.0 < result.error < 20.0


def test_a_client_id_of_which_jmx_tells_nothing_is_an_error(node: KafkaNode, jmx: str) -> None:
    target = target_of(node, jmx)
    with pytest.raises(CalibrationError, match="nobody"):
        read_request_ms(target.jmx_command, target.jmx_url, ["nobody"])


def test_a_jmx_tool_that_is_not_there_is_an_error() -> None:
    with pytest.raises(CalibrationError, match="--jmx-command"):
        read_request_ms(["/no/such/kafka-jmx.sh"], "service:jmx:x", ["somebody"])


def test_a_cost_file_that_is_not_there_is_told(node: KafkaNode) -> None:
    host, port = node.address("PLAINTEXT")
    command: list[str | Path] = [
        SLUICE,
        "calibrate-cost",
        "--bootstrap-server",
        f"{host}:{port}",
        "--jmx",
        "127.0.0.1:1",
    ]
    done = subprocess.run([*command, "--check", "/no/file"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "/no/file" in done.stderr


@pytest.mark.slow
def test_the_whole_command_writes_a_file_that_sluice_takes(node: KafkaNode, jmx: str, tmp_path: Path) -> None:
    out = tmp_path / "costs.yaml"
    host, port = node.address("PLAINTEXT")
    command: list[str | Path] = [SLUICE, "calibrate-cost", "--bootstrap-server", f"{host}:{port}"]
    command += ["--jmx", jmx, "--out", out, "--seconds", "0.5", "--rounds", "2"]
    command += ["--jmx-command", shlex.join(tool_command(node.dist, "jmx")), "--note", "a test"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=1_200)
    assert "within ±20 %" in done.stdout
    assert load_request_costs(out).plain.of(0, 12).request_ms > 0.0
