"""Survivors that no test can kill, and why: what they change is not seen by anybody.

A reason is found by the function and by what was changed; it falls away with the text that it is about.
"""

from __future__ import annotations

from typing import Final

from tools.mutants.mutant import Mutant

_P: Final = "protocol/"
_S: Final = "proxy/session/"
_Q: Final = "quotas/"

ARGUED: Final[dict[tuple[str, str, str], str]] = {
    (_P + "addresses/node_endpoints.py", "EndpointEraser.pass_on", "self._buf = _NOTHING → pass"):
        "memory alone: the next call sets the buffer before it is read",
    (_P + "codec/tags.py", "_write_sized", "start → start - 1"):
        "a slice that ends before its begin is empty at its begin",
    (_P + "errors.py", "ProtocolError.__init__", "0 → 1"):
        "read for the broker's bytes alone, after AnswerSide.data has set it",
    (_P + "headers.py", "refuse_size", "size < 0 → (size <= 0)"):
        "called for sizes below 0 and above the limit alone",
    (_P + "replication/fetch_response.py", "_PIECE_BYTES", "4096 → 4097"):
        "how much is copied at once; what is read is the same",
    (_S + "fetch/responses.py", "_AROUND_RECORDS_BYTES", "1024 → 1025"):
        "slack: batches that are looked at a byte later tell the same",
    (_S + "fetch/turns.py", "FetchTurns.__init__", "0.0 → 1.0"): "set by `turn` before it is read",
    (_S + "produce/header_prediction.py", "KnownProduce.__init__", "1 → 2"):
        "not looked at before `passed` sets it",
    (_S + "produce/header_prediction.py", "KnownProduce.__init__", "0 → 1"):
        "not looked at before `passed` sets it",
    (_S + "mutations/requests.py", "MutationRequests._partitions", "grown < 0 → (grown <= 0)"):
        "for 0 both say 0",
    (_S + "mutations/responses.py", "MutationAnswers.begin_results", "told_ms > 0 → (told_ms >= 0)"):
        "a throttle is raised to 0 at least: as it is",
    (_S + "own_topic/topic_acl.py", "TopicGuard.judge",
     "bool(topic.topic_id) and buf.find(topic.topic_id, client_id… → (bool(topic.topic_id) or "
     "buf.find(topic.topic_id, client_id…"): "what is decoded for nothing is judged the same: time alone",
    (_S + "own_topic/topic_acl.py", "_nobody",
     'raise AssertionError("the guard was not told who judges beh… → pass'):
        "never called: `_guarded` tells the guard before it judges",
    (_S + "produce/requests.py", "ProduceSide._produce",
     "version >= FIRST_FLEXIBLE → (version > FIRST_FLEXIBLE)"):
        "a short cut: the longer way reads the same acks",
    (_S + "produce/turns.py", "ProduceTurns.closed", "self.drop(now_ms) → pass"):
        "Session.closed has dropped what was held",
    (_S + "produce/turns.py", "ProduceTurns.closed", "0 → 1"): "the connection is closed: read by nobody",
    (_S + "quota_requests.py", "QuotaRequests.__init__", "0 → 1"): "set by `ask` before `answered` reads it",
    (_S + "requests.py", "RequestSide.data", "break → pass"):
        "all bytes are judged: the loop ends where it asks for a head",
    (_S + "responses.py", "AnswerSide._learn", "self._throttling.forget() → pass"):
        "until the first yes nothing was looked up; with a later one the user stays, or the connection ends",
    (_S + "sasl_observer.py", "SaslWatch._broker_spoke", "assert_never(self._mechanism) → pass"):
        "never reached, as mypy proves",
    (_S + "throttling.py", "Throttling.closed", "self.ids = None → pass"):
        "memory alone: breaks a circle of references",
    (_S + "topic_attribution.py", "Flows._read_fetch",
     "version >= _FETCH_FIRST_SESSION → (not (version >= _FETCH_FIRST_SESSION))"):
        "a short cut: read the longer way, a Fetch is of the same topic",
    (_Q + "exempt.py", "exempt_sensor", "0.0 → 1.0"): "the rate is endless: no time is of any meaning to it",
    (_Q + "files/config_error.py", "unknown_key_message", "1 → 2"): "the first of the close ones is told",
    (_Q + "files/schedule_entries.py", "ScheduleReader.__init__", "0 → 1"):
        "compared with itself alone, before and after",
    (_Q + "producer_ids/buckets.py", "IdBucket.ready_ms", "missing <= _ROUNDING → (missing < _ROUNDING)"):
        "the edge of what rounding leaves",
    (_Q + "producer_ids/fair_queue.py", "FairQueue._next", "1 → 2"): "numbers have an order, no more",
    (_Q + "producer_ids/forced_queue.py", "ForcedQueue.heads", "self._dead -= 1 → pass"):
        "tidied up earlier than need be: time alone",
    (_Q + "producer_ids/transactional_ids.py", "TransactionalIds._refill",
     "self._level < self._capacity → (self._level <= self._capacity)"): "full stays full",
    (_Q + "sensors/fetch_queue.py", "FetchQueue.grant",
     "recent_bytes > max_bytes → (recent_bytes >= max_bytes)"): "of equal numbers it takes one or the other",
    (_Q + "sensors/hold_queue.py", "HoldQueue.enter", "1 → 2"): "numbers have an order, and no other meaning",
    (_Q + "sensors/mutation.py", "MutationSensor.waive", "tokens < 0.0 → (tokens <= 0.0)"):
        "to record 0 changes nothing",
    (_P + "throttle_field.py", "raise_throttle", "brokers < throttle_ms → (brokers <= throttle_ms)"):
        "equal numbers: written or not, it is the same",
    (_S + "producer_ids/gate.py", "ProducerGate.__init__", "0.0 → 1.0"):
        "set by a HOLD before `count_hold` reads it",
    (_S + "replication/mirror.py", "SessionMirror._sort",
     "partition.high_watermark < 0 → (partition.high_watermark <= 0)"):
        "with a high watermark of 0 no follower is behind",
    (_Q + "sensors/hold_deadlines.py", "HoldDeadlines.pace", "late[0].pace > kept → (late[0].pace >= kept)"):
        "of equal numbers it takes one or the other",
    (_Q + "sensors/hold_deadlines.py", "HoldDeadlines._add_late",
     "late[-1].pace <= ticket.pace → (late[-1].pace < ticket.pace)"):
        "of equal paces both stand there, and the pace is the same",
    (_Q + "sensors/smooth.py", "SmoothSensor.charge",
     "eligible_at_ms < full_ms → (eligible_at_ms <= full_ms)"):
        "of equal times it takes one or the other",
    (_Q + "sensors/smooth.py", "SmoothSensor.charge_whole",
     "eligible_at_ms < full_ms → (eligible_at_ms <= full_ms)"):
        "of equal times it takes one or the other",
}  # fmt: skip
"""(path, where, change): the reason"""


def reason_of(mutant: Mutant) -> str:
    """Empty if nothing is said for it."""
    return ARGUED.get((mutant.path, mutant.where, mutant.change), "")
