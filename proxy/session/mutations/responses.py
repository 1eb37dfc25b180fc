"""The broker's answers to what requests.py let go on, and to what it asked: read while they pass.

An answer may be long (a topic created brings its 40 configs; a topic asked for, its partitions), so it is
read piece by piece and not kept. What a topic was charged is put right by what became of it: refunded where
the broker refused it, for the broker's own quota would not have counted it either. Pure.
"""

from __future__ import annotations

from math import ceil
from typing import Final

from sluice.protocol.addresses.addresses import Edit
from sluice.protocol.apis import ApiKey, ErrorCode
from sluice.protocol.errors import MalformedFrame
from sluice.protocol.headers import RESPONSE_HEAD_BYTES, response_body
from sluice.protocol.mutations.requests import MAX_PARTITIONS, NO_ID, TopicKey
from sluice.protocol.mutations.responses import ResultReader, TopicResult, with_refused
from sluice.protocol.mutations.topic_sizes import SizeReader
from sluice.protocol.throttle_field import raise_throttle
from sluice.proxy.session.answer_pieces import PIECE_BYTES, AnswerPieces
from sluice.proxy.session.errors import BrokerMalformed
from sluice.proxy.session.mutations.delays import MutationDelays
from sluice.proxy.session.mutations.outcome import Outcome
from sluice.proxy.session.mutations.requests import MutationRequests
from sluice.proxy.session.read_gate import Pace
from sluice.proxy.session.throttling import Throttling

_SIZES_MS_PER_KIB: Final = 0.25
"""The brake behind topics' sizes, which take up to 0.08 ms for each KiB: a connection has a quarter of the
time"""


class MutationAnswers:
    """Reads one connection's answers. `left_bytes`: what has not been read of the answer at hand."""

    __slots__ = (
        "_delays",
        "_edits",
        "_outcome",
        "_pace",
        "_pieces",
        "_requests",
        "_results",
        "_sizes",
        "left_bytes",
    )

    def __init__(
        self, requests: MutationRequests, pace: Pace, throttling: Throttling, edits: list[Edit],
        pieces: AnswerPieces,
    ) -> None:  # fmt: skip
        """`edits`: what of the answers goes on changed, or not at all."""
        self._requests = requests
        self._pace = pace
        self._delays = MutationDelays(pace, throttling)
        self._edits = edits
        self._pieces = pieces
        self._outcome: Outcome | None = None
        self._results: ResultReader | None = None
        self._sizes: SizeReader | None = None
        self.left_bytes = 0

    def begin_results(self, buf: bytearray, pos: int, end: int, frame_end: int, now_ms: float) -> None:
        """An answer begins at `pos` whose head has arrived: put in what was refused, and the throttle.

        Raises MalformedFrame or BrokerMalformed, and then has changed nothing of it.
        """
        arrived_end = min(end, frame_end)
        outcome = self._requests.outcomes[0]
        api_key, version = outcome.api_key, outcome.version
        self._outcome = outcome
        self._results = ResultReader(api_key, version)
        self.left_bytes = frame_end - arrived_end
        self._read(bytes(buf[pos:arrived_end]), now_ms)
        self._requests.outcomes.popleft()
        # What was owed, as far as that is still so: the broker may have refused what was charged.
        owed_ms = min(outcome.clears_at_ms - now_ms, outcome.sensor.owed_ms(now_ms))
        told_ms = ceil(self._delays.told_ms(api_key, owed_ms))
        if outcome.refused_count:
            first, head = with_refused(
                buf, pos, arrived_end, api_key, version, told_ms, outcome.refused_count, outcome.refused
            )
            self._edits.append((pos, first, head))
        elif told_ms > 0:
            raise_throttle(buf, response_body(buf, pos, arrived_end, api_key, version), told_ms)

    def begin_sizes(self, buf: bytearray, pos: int, end: int, frame_end: int, now_ms: float) -> int:
        """The answer to a question of the proxy's own begins at `pos`: nothing of it goes on. Returns up to
        where its first piece has been read.

        Raises BrokerMalformed.
        """
        body = pos + RESPONSE_HEAD_BYTES
        self._results = None
        self._sizes = SizeReader()
        self.left_bytes = frame_end - body
        stop = body + self._read_piece(buf, body, min(end, frame_end), now_ms)
        self._edits.append((pos, stop, b""))
        return stop

    def go_on(self, buf: bytearray, start: int, end: int, now_ms: float) -> int:
        """`buf[start:end]` follows of the answer, none of it behind its end. Returns how many bytes of it
        have been read. Raises BrokerMalformed."""
        if self._sizes is not None:
            size = self._read_piece(buf, start, end, now_ms)
            self._edits.append((start, start + size, b""))
            return size
        self.left_bytes -= end - start
        self._read(bytes(buf[start:end]), now_ms)
        return end - start

    def _read_piece(self, buf: bytearray, start: int, end: int, now_ms: float) -> int:
        """A piece of an answer about sizes, which is as long as topics are. Returns how many bytes."""
        size = min(end - start, PIECE_BYTES)
        self.left_bytes -= size
        brake_ms_per_kib = 0.0 if self._requests.delays_nobody else _SIZES_MS_PER_KIB
        self._pieces.took(size, brake_ms_per_kib, now_ms)
        self._read(bytes(buf[start : start + size]), now_ms)
        return size

    def _read(self, data: bytes, now_ms: float) -> None:
        try:
            self._learn(data, now_ms)
        except MalformedFrame as error:
            raise BrokerMalformed(error.reason) from None

    def _learn(self, data: bytes, now_ms: float) -> None:
        sizes = self._sizes
        if sizes is not None:
            sizes.feed(data)
            if not self.left_bytes:
                sizes.finish()
                self._sizes = None
                self._requests.learn(sizes.sizes)
                self._pace.broker_answered()
            return
        assert self._results is not None
        for result in self._results.feed(data):
            self._put_right(result, now_ms)

    def _put_right(self, result: TopicResult, now_ms: float) -> None:
        """One topic's part of the quota is now known."""
        outcome = self._outcome
        assert outcome is not None
        key = result.topic_id if result.topic_id in outcome.charged else result.name
        charged = None if key is None else outcome.charged.pop(key, None)
        sensor = outcome.sensor
        if charged is None:
            is_done = not result.error_code or (
                result.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
                and outcome.api_key == ApiKey.CREATE_PARTITIONS
            )  # by a part, as below
            if is_done and outcome.unchanged & {result.name, result.topic_id}:
                changed = self._changed(outcome, result, now_ms)
                self._requests.note(outcome, changed, now_ms)
                sensor.charge(outcome.count(changed), now_ms)
        elif result.error_code == ErrorCode.REQUEST_TIMED_OUT:
            self._requests.note(outcome, charged, now_ms)  # it may have been done
        elif result.error_code == ErrorCode.UNKNOWN_SERVER_ERROR:
            pass  # a topic may have grown by a part, which Kafka's own quota does not give back either
        elif result.error_code:
            sensor.refund(-outcome.count(-charged), now_ms)
        elif result.partitions is not None and key in outcome.by_default:
            self._requests.defaults.partitions = result.partitions
            self._requests.note(outcome, result.partitions, now_ms)
            more = outcome.count(result.partitions - charged)
            if more > 0:
                sensor.charge(more, now_ms)
            else:
                sensor.refund(-more, now_ms)
        else:
            self._requests.note(outcome, charged, now_ms)
        if not (result.error_code or outcome.validate_only):
            self._remember(outcome, result, key, now_ms)

    def _changed(self, outcome: Outcome, result: TopicResult, now_ms: float) -> int:
        """How many partitions were created or deleted where there seemed to be nothing to do: what others do
        at the same time may come first. One at least, by what has been heard of the topic meanwhile."""
        name = result.name
        wanted = 0 if name is None else outcome.becomes.get(name, 0)
        if outcome.api_key == ApiKey.CREATE_TOPICS:
            return max(wanted if result.partitions is None else result.partitions, 1)
        recent = self._requests.defaults.recent
        before = recent(result.topic_id, now_ms) if name is None else recent(name, now_ms)
        if outcome.api_key == ApiKey.DELETE_TOPICS:
            return max(before or 0, 1)
        return min(max(wanted - (before or 1), 1), MAX_PARTITIONS)  # unheard of, it had one at least

    def _remember(self, outcome: Outcome, result: TopicResult, key: TopicKey | None, now_ms: float) -> None:
        """It is done, though brokers that are asked may not know yet."""
        present = 0 if key is None else outcome.becomes.get(key, 0)
        if result.partitions is not None:
            present = result.partitions
        if not present and outcome.api_key != ApiKey.DELETE_TOPICS:
            return
        keys: list[TopicKey | None] = [result.name, result.topic_id]
        if outcome.api_key != ApiKey.CREATE_TOPICS:  # what was there before had another id
            size = None if key is None else outcome.sizes.get(key)
            if size is not None:  # not all answers tell both, and the next request may name either
                keys += [size.name, size.topic_id]
        for known in keys:
            if known is not None and known != NO_ID:
                self._requests.defaults.remember(known, present, now_ms)
