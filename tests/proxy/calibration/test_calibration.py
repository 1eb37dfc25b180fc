"""The parts of a calibration that need no broker: frames, fit, what JmxTool prints, the file it writes."""

from __future__ import annotations

import random

import pytest

from sluice.protocol.codec.codec import decode_frame
from sluice.protocol.produce import ProduceUsage
from sluice.proxy.calibration.calibrate import MixResult, cost_file_text, fit_table, mix_table, model_cost_ms
from sluice.proxy.calibration.fit import (
    Kind,
    Measured,
    fit_all,
    fit_columns,
    lower_half,
    non_negative_least_squares,
    tls_extra,
    typical,
)
from sluice.proxy.calibration.frames import compressors, crc32c, error_in, record_batch
from sluice.proxy.calibration.jmx import parse_line
from sluice.proxy.calibration.plan import Names, loads, mixes, produce_load
from sluice.proxy.calibration.request_cost_file import parse_request_costs
from sluice.proxy.calibration.rig import Driven
from sluice.usage.request_cost import Coefficients

NAMES = Names("written", tuple(f"many-{number}" for number in range(60)), "group", "member", 1)
PRODUCE = Kind("Produce", "none")


def measured(kind: Kind, name: str, request_bytes: int, records: int, cost_ms: float) -> Measured:
    return Measured(kind, name, request_bytes, 60.0, 1, records, cost_ms, 1.0)


def test_the_checksum_is_castagnolis() -> None:
    assert crc32c(b"123456789") == 0xE3069283


def test_every_load_is_a_request_that_kafka_can_read_and_goes_by_its_client_id() -> None:
    for load in [*loads(NAMES), *(load for mix in mixes(NAMES) for load in mix.loads)]:
        frame = load.frame_of("client-7")
        api_key, version = int.from_bytes(frame[4:6], "big"), int.from_bytes(frame[6:8], "big")
        decoded = decode_frame("request", api_key, version, frame[4:])
        assert decoded.header["clientId"] == "client-7"
        if load.kind.api == "Produce":
            usage = ProduceUsage()
            body = 14 + len("client-7") + 1
            usage.read(bytearray(frame), body, len(frame), len(frame), version)
            assert (len(usage.batches), sum(batch[7] for batch in usage.batches)) == (
                load.batches,
                load.records,
            )


def test_no_mix_has_a_load_that_the_costs_are_fitted_to_but_heartbeats_and_empty_polls() -> None:
    fitted = {load.name for load in loads(NAMES)}
    seen = {load.name for mix in mixes(NAMES) for load in mix.loads}
    assert seen & fitted <= {"Heartbeat", "Fetch 0 B"}


def test_the_codec_of_a_batch_stands_in_its_attributes() -> None:
    for number, compress in enumerate(compressors().values()):
        assert record_batch([b"x" * 1_000], number, compress)[22] == number


def test_least_squares_find_what_made_the_figures() -> None:
    rng = random.Random(1)
    rows = [[1.0, rng.random() * 1e6, float(rng.randrange(100))] for _ in range(30)]
    wanted = [0.2 * row[0] + 3e-6 * row[1] + 0.01 * row[2] for row in rows]
    assert non_negative_least_squares(rows, wanted) == pytest.approx([0.2, 3e-6, 0.01], rel=1e-3)


def test_what_would_be_negative_is_zero_and_the_rest_is_the_best_without_it() -> None:
    rows = [[1.0, 0.0], [1.0, 1.0], [1.0, 2.0]]
    assert non_negative_least_squares(rows, [3.0, 2.0, 1.0]) == pytest.approx([2.0, 0.0])


def test_a_feature_that_no_load_has_costs_nothing() -> None:
    assert non_negative_least_squares([[1.0, 0.0], [1.0, 0.0]], [2.0, 4.0]) == pytest.approx([3.0, 0.0])


def test_a_cheap_load_counts_as_much_as_a_dear_one() -> None:
    sizes = (100.0, 1_000.0, 1_000_000.0)
    found = fit_columns([(1.0, size) for size in sizes], [0.1 + size * 1e-6 for size in sizes])
    assert found == pytest.approx([0.1, 1e-6], rel=1e-3)


def test_too_much_counts_as_much_as_too_little() -> None:
    assert fit_columns([(1.0,), (1.0,)], [1.0, 4.0]) == pytest.approx([1.6])


def test_a_request_and_a_batch_cost_the_same_in_every_compression() -> None:
    def cost_ms(load: tuple[int, int, int], byte_ms: float, record_ms: float) -> float:
        return 0.1 + load[0] * byte_ms + load[1] * 0.02 + load[2] * record_ms

    shapes = ((200, 1, 1), (3_000, 3, 3), (20_000, 1, 16), (100_000, 1, 1_000), (400_000, 1, 4))
    found = fit_all(
        Measured(
            kind, f"{shape}", shape[0], 60.0, shape[1], shape[2], cost_ms(shape, byte_ms, record_ms), 1.0
        )
        for kind, byte_ms, record_ms in ((PRODUCE, 2e-6, 1e-4), (Kind("Produce", "gzip"), 6e-6, 3e-4))
        for shape in shapes
    )
    assert found[PRODUCE] == pytest.approx(Coefficients(0.1, 2e-6, 0.0, 0.02, 1e-4), rel=0.02)
    assert found[Kind("Produce", "gzip")] == pytest.approx(Coefficients(0.1, 6e-6, 0.0, 0.02, 3e-4), rel=0.02)


def test_other_requests_go_by_their_answers_bytes_where_enough_sizes_tell() -> None:
    def load(api: str, size: int) -> Measured:
        return Measured(Kind(api), str(size), 50, size, 0, 0, 0.05 + size * 1e-5, 1.0)

    found = fit_all([
        *(load("Metadata", size) for size in (100, 5_000, 9_000)),
        *(load("OffsetCommit", size) for size in (100, 5_000)),
    ])  # fmt: skip
    assert found[Kind("Metadata")] == pytest.approx(Coefficients(0.05, 0.0, 1e-5), rel=1e-2)
    assert found[Kind("OffsetCommit")][1:] == (0.0, 0.0, 0.0, 0.0)
    assert 0.051 < found[Kind("OffsetCommit")].request_ms < 0.1


def test_of_several_rounds_the_first_quartile_counts() -> None:
    rounds = [measured(PRODUCE, "a", 100, 1, cost) for cost in (9.0, 2.0, 1.0, 5.0, 3.0)]
    (chosen,) = lower_half(rounds)
    assert chosen.cost_ms == 2.0
    assert lower_half(rounds[:1]) == rounds[:1]


def test_tls_is_what_the_same_loads_cost_more() -> None:
    sizes = (1_000, 100_000, 400_000)
    plain = {str(size): measured(PRODUCE, str(size), size, 1, 0.1 + size * 1e-6) for size in sizes}
    tls = {str(size): measured(PRODUCE, str(size), size, 1, 0.15 + size * 3e-6) for size in sizes}
    extra = tls_extra(plain, tls)
    assert extra.request_ms + extra.response_byte_ms * 60 == pytest.approx(0.05, rel=1e-2)
    assert extra.request_byte_ms == pytest.approx(2e-6, rel=1e-2)


def test_what_was_not_measured_costs_the_median_of_what_was_and_the_least_for_its_bytes() -> None:
    found = typical([Coefficients(1.0, 0.5), Coefficients(5.0, 0.25), Coefficients(2.0)])
    assert found == Coefficients(2.0, 0.25)


@pytest.mark.parametrize(
    "line",
    [
        'kafka.server:type=Request,client-id=sluice-calibration-ab-3:request-time,"1.25"',
        'kafka.server:type=Request,user=,client-id=sluice-calibration-ab-3:request-time,"1.25"',
        'kafka.server:type=Request,client-id="sluice-calibration-ab-3":request-time,"1.25"',
    ],
)
def test_a_line_of_jmx_tool_tells_a_client_ids_request_time(line: str) -> None:
    assert parse_line(line) == ("sluice-calibration-ab-3", 1.25)


@pytest.mark.parametrize("line", ["", 'time,"1763752800000"', "Trying to connect to JMX url: x", "a:b,c"])
def test_other_lines_of_jmx_tool_tell_nothing(line: str) -> None:
    assert parse_line(line) is None


def test_what_is_written_can_be_read_and_says_the_same() -> None:
    found = {
        PRODUCE: Coefficients(0.1, 1e-6, 0.0, 0.02, 0.0001),
        Kind("Produce", "gzip"): Coefficients(0.2),
        Kind("Fetch"): Coefficients(0.08, 0.0, 3e-7),
        Kind("Heartbeat"): Coefficients(0.05),
    }
    text = cost_file_text(found, Coefficients(0.01, 1e-6, 2e-6), 'a "test"')
    tables = parse_request_costs(text, "written")
    assert tables.plain.of(0, 12, 0) == pytest.approx(found[PRODUCE], rel=1e-3)
    assert tables.plain.of(0, 12, 1) == pytest.approx(found[Kind("Produce", "gzip")], rel=1e-3)
    assert tables.plain.of(0, 12, 4).request_ms == pytest.approx(0.15)  # zstd: the median
    assert tables.plain.of(1, 12) == pytest.approx(found[Kind("Fetch")], rel=1e-3)
    assert tables.plain.of(99, 0) == Coefficients(0.05)
    assert tables.tls.of(12, 4) == pytest.approx(Coefficients(0.06, 1e-6, 2e-6), rel=1e-3)


def test_a_mix_costs_what_a_session_would_have_charged() -> None:
    costs = parse_request_costs("costs: [{api: Produce, request_us: 100, record_us: 10}, {}]", "x").plain
    load = produce_load(NAMES, "none", 5, 500)
    driven = Driven(load, 3, 3_000, 180, (5.0, 5.0, 0.05))
    assert model_cost_ms(costs, driven) == pytest.approx(0.15 + 0.15 + 0.05)


def test_an_error_anywhere_in_an_answer_is_found() -> None:
    assert error_in({"errorCode": 0, "topics": [{"partitions": [{"errorCode": 3}]}]}) == 3
    assert error_in({"errorCode": 0, "topics": []}) == 0


def test_the_tables_tell_the_error() -> None:
    costs = parse_request_costs("costs: [{request_us: 110}]", "x").plain
    assert "+10%" in fit_table([measured(PRODUCE, "a load", 100, 1, 0.1)], costs)
    table = mix_table([MixResult("one", 10, 100.0, 110.0), MixResult("two", 10, 100.0, 50.0)])
    assert "within ±20 %: 1 of 2 mixes" in table
    assert "largest 50%" in table
