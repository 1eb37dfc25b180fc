#!/usr/bin/env python3
"""A real Prometheus finds all documented metrics and no others; 10,000 client ids do not swell them.

In front of a real Kafka, `sluice run` has traffic of every kind that is measured, and of 20,000 client ids:
half of them have a limit of their own in the quota file, half come under the default's. Then Prometheus is
asked. It also evaluates every alert rule and every expression of the dashboard.
"""

# limit: 900 s

from __future__ import annotations

import asyncio
import json
import re
import socket
import tempfile
from pathlib import Path
from typing import Any, Final

import check_paths  # noqa: F401  before what lies there
from check_tools import ROOT, Failed, prometheus_tool, run_check
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from prometheus_server import JOB, PrometheusServer

from testkit.clients.kafka_clients import CONFLUENT, Options
from testkit.clients.kafka_records import create_topic, numbered
from testkit.frames.frames import API_VERSIONS, produce, record_batch, request
from testkit.frames.wire import Wire
from testkit.kafka.node import KafkaNode
from testkit.peers.certificates import CertificateAuthority
from testkit.processes.ports import LOOPBACK, free_port
from testkit.proxy.sluice_process import Door, SluiceProcess, doors_of
from testkit.proxy.tls_doors import MountedSecret, certificate_at, secret_of, tls_of

CLIENT_IDS: Final = 10_000
MAX_SERIES: Final = 2000
"""of metrics with user and client_id, as configured"""
BESIDE: Final = 2000
"""samples of metrics without those labels, histograms of all APIs among them, at most"""
PREFIX: Final = "sluice_"
ALLOWED: Final = ("process_", "python_", "scrape_", "up")
"""of prometheus_client and of Prometheus itself"""
WITH_FOLLOWERS: Final = "sluice_replication_"
"""metrics that have samples where brokers replicate through the proxy, which one broker does not"""
PIPELINED: Final = 100


def quotas() -> dict[str, Any]:
    """A quota file with every kind of limit, and 10,000 client ids that have one of their own."""
    entries: list[dict[str, object]] = [
        {"client-id": f"named-{number:05d}", "producer_byte_rate": 1_000_000} for number in range(CLIENT_IDS)
    ]
    entries += [
        {"client-id": "<default>", "producer_byte_rate": 1_000_000, "consumer_byte_rate": 100_000_000},
        {"client-id": "slow", "producer_byte_rate": 20_000, "request_percentage": 50},
        {"client-id": "tried", "producer_byte_rate": 2000, "shadow": True},
        {"client-id": "refused", "producer_byte_rate": 2000, "over_budget": "refuse"},
        {"user": "ANONYMOUS", "controller_mutation_rate": 5, "producer_ids_rate": 36_000},
        {"ip": "<default>", "connection_creation_rate": 1000},
    ]
    return {"quotas": entries, "exempt": [{"address": f"{LOOPBACK}/32", "client-id": "exempted"}]}


async def pour(port: int, topic: str, name: str) -> None:
    """A Produce under each of 10,000 client ids, on one connection; the broker refuses it, and it counts."""
    with await dialled(port) as wire:
        for first in range(0, CLIENT_IDS, PIPELINED):
            numbers = range(first, first + PIPELINED)
            await wire.send(
                b"".join(
                    produce(
                        {topic: [(0, record_batch(b"x" * 50))]},
                        client_id=f"{name}-{number:05d}",
                        correlation_id=number,
                    )
                    for number in numbers
                )
            )
            for _ in numbers:
                await wire.frame()


async def overload(port: int, topic: str) -> None:
    """One request that takes the limit for longer than another may wait, which is refused."""
    request = produce({topic: [(0, record_batch(b"x" * 50_000))]}, client_id="refused")
    for _ in range(2):
        with await dialled(port) as wire:
            await wire.send(request)
            await wire.frame()


async def dialled(port: int) -> Wire:
    """A connection to the server that is asked."""
    sock = socket.socket()
    sock.setblocking(False)
    await asyncio.get_running_loop().sock_connect(sock, (LOOPBACK, port))
    return Wire(sock)


def use(kafka: KafkaNode, sluice: SluiceProcess, ca_file: Path) -> None:
    """Something of everything that is measured."""
    topic = create_topic(kafka, "measured")
    bootstrap = sluice.bootstrap()
    for client_id in ("slow", "tried", "exempted"):
        CONFLUENT.produce(bootstrap, topic, numbered(300), Options(client_id=client_id))
    CONFLUENT.consume(bootstrap, topic, "group", 300, Options())
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics([NewTopic("made", num_partitions=3)]).values():
        try:
            future.result(30.0)
        except KafkaException as error:
            raise Failed(f"a topic through the proxy: {error}") from error
    port = sluice.doors["SLUICE"].port
    asyncio.run(pour(port, topic, "named"))
    asyncio.run(pour(port, topic, "unnamed"))
    asyncio.run(overload(port, topic))
    certificate_at(sluice.doors["TLS"].port, ca_file)
    with socket.create_connection((LOOPBACK, sluice.doors["DEAD"].port), timeout=10) as client:
        client.sendall(request(API_VERSIONS, 3))
        client.recv(1)  # its end: the broker behind cannot be dialled


def documented() -> dict[str, str]:
    """Name → type of every metric of docs/metrics.md, first table."""
    text = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8").partition("\n## ")[0]
    rows = re.findall(r"^\| `(sluice_\w+)` \| (\w+) \|", text, re.M)
    return {name: "gauge" if kind == "info" else kind for name, kind in rows}


def check_names(prometheus: PrometheusServer) -> str:
    """Every documented metric, with its type, and none that is not documented."""
    wanted = documented()
    told = {
        each["metric"]: each["type"]
        for each in prometheus.ask("targets/metadata", match_target=f'{{job="{JOB}"}}')
        if each["metric"].startswith(PREFIX)
    }
    # In OpenMetrics a counter's family has no _total.
    families = {
        name.removesuffix("_total") if kind == "counter" and name not in told else name: kind
        for name, kind in wanted.items()
    }
    if families != told:
        differing = sorted(set(families.items()) ^ set(told.items()))
        raise Failed(f"documented and exported metrics differ: {differing}")
    samples = prometheus.ask("label/__name__/values")
    with_samples = {re.sub(r"_(bucket|sum|count)$", "", name) for name in samples} | set(samples)
    silent = sorted(name for name in set(wanted) - with_samples if not name.startswith(WITH_FOLLOWERS))
    if silent:
        raise Failed(f"no sample of {', '.join(silent)}: this check has no traffic that makes one")
    unknown = [
        name
        for name in samples
        if name not in wanted
        and wanted.get(re.sub(r"_(bucket|sum|count)$", "", name)) != "histogram"
        and not name.startswith((*ALLOWED, "ALERTS"))
    ]
    if unknown:
        raise Failed(f"not documented: {', '.join(unknown)}")
    shown = len(set(wanted) & with_samples)
    return f"{len(wanted)} metrics, each documented and each exported; {shown} with samples here"


def check_bounds(prometheus: PrometheusServer, sluice: SluiceProcess) -> str:
    """No name that clients think of is a label, and those of the quota file are so up to the bound."""
    unnamed = [one for one in prometheus.ask("label/client_id/values") if one.startswith("unnamed")]
    if unnamed:
        raise Failed(f"client ids that no quota names are labels: {unnamed[:5]}")
    ((_, series),) = prometheus.values(f'count({{job="{JOB}", client_id!=""}})')
    if series > MAX_SERIES:
        raise Failed(f"{series:.0f} series with a client id; metrics.max_series is {MAX_SERIES}")
    ((_, overflow),) = prometheus.values("sluice_label_overflow_total")
    ((_, scraped),) = prometheus.values(f'scrape_samples_scraped{{job="{JOB}"}}')
    ((_, took_s),) = prometheus.values(f'max_over_time(scrape_duration_seconds{{job="{JOB}"}}[1m])')
    if not overflow:
        raise Failed("10,000 named client ids, and none was counted as other")
    if sluice.disconnects("internal_error"):
        raise Failed("the proxy ended connections by faults of its own")
    return (
        f"{2 * CLIENT_IDS:,} client ids: {scraped:.0f} samples a scrape, {series:.0f} with a client id; "
        f"the slowest scrape took {took_s:.3f} s"
    )


def check_expressions(prometheus: PrometheusServer) -> str:
    """Prometheus can evaluate every rule and every panel's expression."""
    rules = [rule for group in prometheus.ask("rules")["groups"] for rule in group["rules"]]
    bad = [f"{rule['name']}: {rule.get('lastError')}" for rule in rules if rule["health"] != "ok"]
    if bad:
        raise Failed(f"rules that cannot be evaluated: {bad}")
    dashboard = json.loads((ROOT / "deploy/grafana/sluice.json").read_text(encoding="utf-8"))
    expressions = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())]
    empty = []
    for expr in expressions:
        filled = re.sub(r"\$(job|instance|user)", ".*", expr).replace("$__rate_interval", "1m")
        if not prometheus.values(filled):
            empty.append(expr)
    for expr in empty:
        print(f"nothing to show in this run: {expr}")
    return f"{len(rules)} rules and {len(expressions)} expressions of the dashboard evaluated"


def main() -> str:
    program = prometheus_tool("prometheus")
    authority, port = CertificateAuthority(), free_port()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        ca_file = authority.write(folder)
        secret = MountedSecret(folder / "tls", secret_of(authority.server()))
        quota_file = folder / "quotas.yaml"
        quota_file.write_text(json.dumps(quotas()), encoding="utf-8")
        with KafkaNode(advertised={"SLUICE": (LOOPBACK, port)}) as kafka:
            upstream = kafka.address("SLUICE")
            tls: dict[str, object] = {"tls": tls_of(secret), "accept_shared_upstream_identity": True}
            doors = [
                *doors_of(kafka, ("SLUICE",)),
                Door("TLS", free_port(), upstream, "SSL", tls),
                Door("DEAD", free_port(), (LOOPBACK, free_port())),
            ]
            with (
                SluiceProcess(doors, quota_file=quota_file, metrics={"max_series": MAX_SERIES}) as sluice,
                PrometheusServer(program, sluice.admin_port, MAX_SERIES + BESIDE) as prometheus,
            ):
                use(kafka, sluice, ca_file)
                prometheus.await_scrapes()
                if not prometheus.is_up():
                    raise Failed(f"a scrape of more than {MAX_SERIES + BESIDE} samples, or none")
                print(check_names(prometheus))
                print(check_expressions(prometheus))
                return check_bounds(prometheus, sluice)


if __name__ == "__main__":
    run_check(main)
