"""The benchmarks' arithmetic and frames: wrong ones would make every figure of docs/benchmarks.md wrong."""

from __future__ import annotations

import io
import math
import socket
import ssl
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from typing import Any

import pytest
from aiokafka.record.default_records import DefaultRecordBatch
from hypothesis import given
from hypothesis import strategies as st

from bench.evenness.cases import QUOTA_BYTES_PER_S, BoundResult, bound_bytes_per_s, evenness
from bench.hostile.frames import DAMAGE, api_of, at_every_version, damaged, garbage
from bench.hostile.good import FETCH, LAG, PRODUCE, read_samples
from bench.hostile.load import split
from bench.hostile.probes import ADMIN_PORT, PROBE_PORT, ProbeRun
from bench.hostile.report import HostileRun, summary_of
from bench.hostile.rig import CONTROL, HOSTILE, Phase
from bench.lib import stats
from bench.lib.load import Measured
from bench.lib.stats import median_interval
from bench.lib.tls_socket import HOST, LoadSocket, write_certificate
from bench.producer_id_cost.__main__ import PRODUCER_ID, id_cases
from bench.tls_cost.report import TlsRun
from bench.tls_cost.report import summary_of as tls_summary_of
from sluice.protocol.codec.codec import decode_frame
from testkit.frames import load_frames as frames

positive = st.floats(min_value=0.001, max_value=1e9)


def test_the_median_is_the_middle_or_the_mean_of_the_middle_two() -> None:
    assert stats.median([5, 1, 3]) == 3
    assert stats.median([4, 1, 3, 2]) == 2.5


def test_a_spread_holds_median_and_range() -> None:
    assert stats.spread([2.0, 9.0, 4.0]) == stats.Spread(median=4.0, low=2.0, high=9.0)


def test_the_median_of_a_hundred_lies_between_the_41st_and_the_60th() -> None:
    assert median_interval(range(100)) == stats.Spread(median=49.5, low=40, high=59)
    assert median_interval([3.0]) == stats.Spread(3.0, 3.0, 3.0)


def test_the_cases_of_the_ids_cost_bring_the_id_in_every_request() -> None:
    for case in id_cases():
        body: Any = decode_frame("request", 0, 12, case.work.frame[4:]).body
        (topic,) = body["topicData"]
        (partition,) = topic["partitionData"]
        assert int(partition["records"][86:102], 16) == PRODUCER_ID
        assert case.work.warmup_requests >= 8 * case.work.connections


def test_ratios_pair_repeat_with_repeat() -> None:
    assert stats.pairwise_ratios([2.0, 30.0], [1.0, 10.0]) == [2.0, 3.0]


def test_ratios_refuse_runs_that_were_not_interleaved() -> None:
    with pytest.raises(ValueError, match="zip"):
        stats.pairwise_ratios([1.0], [1.0, 2.0])


def test_the_99th_percentile_of_one_to_hundred_is_99() -> None:
    assert stats.percentile(range(1, 101), 99) == 99
    assert stats.percentile(range(1, 101), 50) == 50
    assert stats.percentile([7.0], 99) == 7.0


def test_one_busy_second_of_eleven_varies_by_the_root_of_ten() -> None:
    assert stats.coefficient_of_variation([11] + [0] * 10) == pytest.approx(math.sqrt(10))


def test_an_even_rate_does_not_vary() -> None:
    assert stats.coefficient_of_variation([5.0, 5.0, 5.0]) == 0


def test_no_variation_is_claimed_where_nothing_passed() -> None:
    with pytest.raises(ValueError, match="without a rate"):
        stats.coefficient_of_variation([0, 0])


def test_half_of_the_connections_with_nothing_is_a_fairness_of_one_half() -> None:
    assert stats.jain([1, 1, 0, 0]) == 0.5


def test_nothing_for_anybody_is_not_fair() -> None:
    assert stats.jain([0, 0]) == 0


@given(st.lists(positive, min_size=1, max_size=60), positive)
def test_fairness_lies_between_one_nth_and_one_whatever_the_unit(shares: list[float], unit: float) -> None:
    fairness = stats.jain(shares)
    assert 1 / len(shares) - 1e-9 <= fairness <= 1 + 1e-9
    assert stats.jain([share * unit for share in shares]) == pytest.approx(fairness)


def test_seconds_are_counted_from_the_start_and_the_partial_last_one_is_left_out() -> None:
    events = [(9.9, 1), (10.0, 2), (10.999, 3), (11.5, 4), (12.2, 5)]
    assert stats.per_second(events, 10.0, 12.5) == [5, 4]


def test_the_longest_gap_includes_the_time_before_the_first_and_after_the_last() -> None:
    assert stats.longest_gap_s([13.0, 14.0], 10.0, 16.0) == 3.0
    assert stats.longest_gap_s([11.0, 12.0], 10.0, 16.0) == 4.0
    assert stats.longest_gap_s([], 10.0, 16.0) == 6.0


def test_evenness_measures_from_second_three_on() -> None:
    burst = (100.5, 50 * QUOTA_BYTES_PER_S)
    first = [burst, *((103.5 + second, 600_000) for second in range(5))]
    second = [(103.75 + second, 200_000) for second in range(5)]
    figures = evenness([first, second], {}, 100.0, 8.0)
    assert figures.bytes_per_s == [800_000] * 5
    assert figures.rate_ratio == 0.8
    assert figures.cv == 0
    assert figures.bytes_per_connection == [3_000_000, 1_000_000]
    assert figures.jain == 0.8  # (3 + 1)² ÷ (2 · (9 + 1))
    assert figures.longest_gap_s == 1.0


def test_the_bound_is_the_rate_until_what_is_outstanding_passes_eight_seconds_of_it() -> None:
    assert bound_bytes_per_s(5 * 16_384, 8.0) == QUOTA_BYTES_PER_S
    assert bound_bytes_per_s(50 * 2**20, 8.0) == 6_553_600
    assert BoundResult("x", [1_000_000, 2_000_000], 3_000_000.0).ratio == 0.5


def test_another_library_reads_our_record_batches_and_agrees_on_the_checksum() -> None:
    batch = DefaultRecordBatch(frames.record_batch(b"value", 3))
    assert batch.validate_crc()
    assert [record.value for record in batch] == [b"value"] * 3


@pytest.mark.parametrize("frame_bytes", [200, 300, 16_384, 1 << 20])
def test_frames_of_a_given_size_have_it(frame_bytes: int) -> None:
    for frame in (
        frames.produce_request_of("client", "topic", frame_bytes),
        frames.fetch_response_of("topic", frame_bytes),
    ):
        assert len(frame) == frame_bytes
        assert int.from_bytes(frame[:4]) == frame_bytes - 4


def test_a_produce_answer_tells_its_throttle_time() -> None:
    assert frames.produce_answer(memoryview(frames.produce_response("topic", throttle_ms=7))) == (0, 7)


def test_a_fetch_answer_tells_its_records() -> None:
    found = frames.fetch_answer(memoryview(frames.fetch_response_of("topic", 5000)))
    assert (found.error, found.throttle_ms, found.high_watermark) == (0, 0, 1)
    assert list(frames.last_offsets(found.records)) == [0]
    assert len(found.records) > 4800


def test_last_offsets_leave_out_a_batch_that_was_cut_short() -> None:
    batch = frames.record_batch(b"value", 3)
    assert list(frames.last_offsets(memoryview(batch + batch[:-1]))) == [2]


# Hostile connections ----------------------------------------------------------------------------------------


def test_a_recorded_request_is_had_at_every_version_of_its_api_with_the_same_records() -> None:
    batch = frames.record_batch(b"value")
    recorded = bytes(frames.produce_request("app", "topic", batch))
    produces = [frame for frame in at_every_version([recorded]) if api_of(frame)[0] == 0]
    assert [api_of(frame)[1] for frame in produces] == list(range(3, 14))
    assert recorded in produces
    for frame in produces:
        assert int.from_bytes(frame[:4]) == len(frame) - 4
        assert decode_frame("request", *api_of(frame), frame[4:]).header["clientId"] == "app"
        assert batch in frame


def test_damage_is_drawn_from_the_seed_and_changes_the_frame() -> None:
    requests = at_every_version([])
    attacks = [damaged(requests, Random(seed)) for seed in range(500)]
    assert attacks == [damaged(requests, Random(seed)) for seed in range(500)]
    assert DAMAGE.keys() < {attack.kind for attack in attacks}
    assert all(all(attack.chunks) for attack in attacks)
    harmless = sum(b"".join(attack.chunks) in requests for attack in attacks)
    assert harmless < 25  # a wrong number may be the right one by chance
    shortest = bytes(14)
    assert all(damaged([shortest], Random(seed)).chunks for seed in range(5_000))


def test_garbage_is_of_every_kind() -> None:
    assert len({garbage(Random(seed)).kind for seed in range(100)}) == 6


def test_frames_behind_one_another_are_split_again() -> None:
    requests = at_every_version([])
    assert split(b"".join(requests)) == requests


def phase(kind: str, number: int, start_s: float, **fields: object) -> Phase:
    made = Phase(kind, number, start_s, start_s + 10.0)
    for name, value in fields.items():
        setattr(made, name, value)
    return made


def test_the_p99_of_a_hostile_phase_is_held_against_its_own_control(tmp_path: Path) -> None:
    lines = io.StringIO()
    for start_s, latency_s in ((0, 0.010), (10, 0.011), (20, 0.100), (30, 0.130)):
        for at in range(10):
            lines.write(f"{PRODUCE} {start_s + at} {latency_s}\n{FETCH} {start_s + at} {latency_s}\n")
            lines.write(f"{LAG} {start_s + at} 0.001\n")
    (tmp_path / "samples").write_text(lines.getvalue() + "records 40 0\n")
    load = {"began": {"truncated": 3}, "not_connected": 0}
    run = HostileRun(
        [
            phase(CONTROL, 1, 0.0, cpu_cores={"sluice": 0.25}),
            phase(
                HOSTILE,
                1,
                10.0,
                load=load,
                cpu_cores={"sluice": 0.5},
                disconnects={"client_closed": 1, "malformed_frame": 1},
            ),
            phase(CONTROL, 2, 20.0, cpu_cores={"sluice": 0.25}),
            phase(HOSTILE, 2, 30.0, load=load, cpu_cores={"sluice": 0.375}, disconnects={"client_closed": 3}),
        ],
        read_samples(tmp_path / "samples"),
        40,
        1,
        [],
        ProbeRun(1000, 990, {PROBE_PORT: 120, ADMIN_PORT: 120}, {PROBE_PORT: 0, ADMIN_PORT: 118}),
    )
    summary = summary_of(run)
    assert summary["good_p99_ratio_median"] == pytest.approx((1.1 + 1.3) / 2)
    assert summary["good_p99_ratio_range"] == [pytest.approx(1.1), pytest.approx(1.3)]
    assert (summary["probe_failures"], summary["probe_failures_at_the_admin_port"]) == (0, 118)
    assert (summary["rounds"], summary["rounds_discarded"]) == (2, 0)
    assert summary["p99_ratio_of_controls_range"] == [10.0, 10.0]
    assert summary["hostile_cpu_share"] == pytest.approx((0.25 + 0.125) / 2, abs=0.001)
    assert (summary["hostile_connections"], summary["hostile_connections_uncounted"]) == (6, 1)


# TLS --------------------------------------------------------------------------------------------------------


def test_a_tls_socket_gives_all_records_at_once_and_then_blocks_as_a_plain_one(tmp_path: Path) -> None:
    certificate, key = write_certificate(tmp_path, "ecdsa-p256")
    server_context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server_context.load_cert_chain(certificate, key)
    client_context = ssl.create_default_context(cafile=str(certificate))
    client_context.sslsocket_class = LoadSocket
    ours, theirs = socket.socketpair()
    with ThreadPoolExecutor(1) as pool:
        served = pool.submit(server_context.wrap_socket, theirs, server_side=True)
        client = client_context.wrap_socket(ours, server_hostname=HOST)
        server = served.result()
    assert isinstance(client, LoadSocket)
    with client, server:
        client.setblocking(False)
        server.sendall(bytes(40_000))
        server.sendall(b"end")
        buffer = bytearray(1 << 20)
        assert client.recv_into(buffer) == 40_003
        assert buffer[39_999:40_004] == b"\x00end\x00"
        with pytest.raises(BlockingIOError):
            client.recv_into(buffer)
        parts: Any = (memoryview(b"a" * 20_000), memoryview(b"b" * 5))
        assert client.sendmsg(parts) == 20_005
        received = b""
        while len(received) < 20_005:
            received += server.recv(1 << 20)
        assert received == b"a" * 20_000 + b"b" * 5
        server.close()
        assert client.recv_into(buffer) == 0


def test_handshakes_are_compared_by_what_each_costs() -> None:
    def measured(cpu_s: float) -> Measured:
        return Measured(requests=100, wall_s=1.0, cpu_s=cpu_s, wakeups=1)

    run = TlsRun(
        ours="sluice",
        theirs="haproxy",
        theirs_version="2.6",
        agreed="TLSv1.3",
        key="ecdsa-p256",
        placement="one-core",
        results=[],
        handshakes={"sluice": [measured(0.2), measured(0.3)], "haproxy": [measured(0.1), measured(0.1)]},
        rss_bytes={},
    )
    summary = tls_summary_of(run)
    assert summary["handshake_vs_haproxy"] == 2.5
    assert summary["handshakes_per_cpu_s"] == {"sluice": 417, "haproxy": 1000}
