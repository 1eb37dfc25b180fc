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
    (_Q + "files/config_error.py", "number_meant",
     "len(text) > _LONGEST_NUMBER → (len(text) >= _LONGEST_NUMBER)"):
        "how long a text is looked at: nobody means a number of that length",
    (_Q + "files/yaml_lines.py", "_line_of", "1 → 2"): "splits once more, behind the line that is asked for",
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
    (_P + "api_versions.py", "_above", "newest > cap[1] → (newest >= cap[1])"):
        "what is as high as it may be is written as it is",
    (_P + "codec/wire.py", "float_from_bits", "0 → 1"):
        "no number is looked at there but the two endless ones",
    (_P + "fetch_batches.py", "_count", "1 → 2"): "no element of these arrays takes a single byte",
    (_P + "mutations/requests.py", "_assigned", "5 → 6"): "no partition that is assigned takes five bytes",
    (_P + "produce.py", "ProduceUsage._walk_flexible", "raise _NotArrived → pass"):
        "what has not arrived is read, and then its end is missing all the same",
    (_P + "produce.py", "ProduceUsage._walk_classic", "pos + 2 > limit → (pos + 2 >= limit)"):
        "the next field is missing all the same",
    (_P + "produce.py", "ProduceUsage._walk_classic",
     "self.heads_read = not (topics_left or partitions_left) → pass"):
        "with its last head a classic request is read to its end, and `read` says so",
    (_P + "replication/fetch_response.py", "ReplicaAnswer.feed", "pos > len(cut) → (pos >= len(cut))"):
        "what was cut is read to its end then: the rest is read where it lies",
    (_P + "replication/fetch_response.py", "ReplicaAnswer.feed", "start < end → (start <= end)"):
        "of nothing, nothing is kept",
    (_S + "delays.py", "SessionTimeouts.saw",
     "session_timeout_ms < known_ms → (session_timeout_ms <= known_ms)"): "equal numbers: it is the same",
    (_S + "fetch/requests.py", "FetchSide._fetch", "4 → 5"):
        "a short cut: the longer way finds the same place",
    (_S + "fetch/turns.py", "FetchTurns.use", "at_ms > now_ms → (at_ms >= now_ms)"):
        "a poll that may come now waits for nothing, whether it is remembered or not",
    (_S + "mutations/requests.py", "MutationRequests._answer", "0.0 → 1.0"):
        "what keeps a place for an answer of our own: its times are read by nobody",
    (_S + "other_requests.py", "OtherRequests.raw_token", "0 → 1"):
        "bare tokens have neither correlation id nor version: an entry's are read by nobody",
    (_S + "other_requests.py", "OtherRequests.raw_token", "0.0 → 1.0"):
        "bare tokens are in no record: these times are read by nobody",
    (_S + "own_topic/topic_acl.py", "TopicGuard.judge", "0.0 → 1.0"):
        "what keeps a place for an answer of our own: its times are read by nobody",
    (_S + "own_topic/topic_acl.py", "TopicGuard._answer",
     "buf.find(topic.name_bytes, client_id_end, frame_end) >= 0 → (buf.find(topic.name_bytes, client_id_end, "
     "frame_end) > 0)"): "it is never found before the client id",
    (_S + "produce/header_prediction.py", "KnownProduce.fits_other",
     "said == rest - _TAGS_BYTES > HEAD_BYTES → (said == rest - _TAGS_BYTES >= HEAD_BYTES)"):
        "what is shorter than a head is not looked at any further",
    (_S + "produce/one_batch.py", "OneBatch.__init__", "1 → 2"): "no request has that version",
    (_S + "produce/requests.py", "ProduceSide._produce",
     "client_id_end + 4 <= (end if end < frame_end else frame_end) → (client_id_end + 4 < (end if end < "
     "frame_end else frame_end…"): "a short cut: the longer way reads the same acks",
    (_S + "produce/requests.py", "ProduceSide.pass_unacknowledged",
     "clears_at_ms > now_ms → (clears_at_ms >= now_ms)"): "of what is paid now, nothing is over",
    (_S + "request_time.py", "RequestTime.note",
     "self._one_batch.walked(buf, client_id_end, version, usage) → pass"):
        "a short cut that is never taken: the longer way reads the same",
    (_S + "replication/mirror.py", "SessionMirror._sort", "0 → 1"):
        "with a high watermark of 0 no follower is behind",
    (_Q + "files/schedule_entries.py", "ScheduleReader._second", "0 → 1"):
        "for what is no time at all: the file is refused, whatever stands in its place",
    (_Q + "files/quota_file.py", "_LINES_PER_STEP", "5_000 → 5001"):
        "how often it pauses; what is read is the same",
    (_Q + "files/yaml_lines.py", "_syntax_problem",
     "context and error.context_mark → (context or error.context_mark)"): "errors have both, or neither",
    (_Q + "files/yaml_lines.py", "_tab", "1 → 2"): "split once more behind it, the line is the same",
    (_Q + "producer_ids/fair_queue.py", "_Address.__init__", "0 → 1"): "turns have an order, no more",
    (_Q + "producer_ids/forced_queue.py", "ForcedQueue.__init__", "0 → 1"): "numbers have an order, no more",
    (_Q + "producer_ids/forced_queue.py", "ForcedQueue.bury", "0 → 1"):
        "tidied up earlier than need be: time alone",
    (_Q + "producer_ids/forced_queue.py", "ForcedQueue.bury", "return → pass"):
        "tidied up earlier than need be: time alone",
    (_Q + "producer_ids/quota.py", "ProducerIdQuota.__init__", "0 → 1"): "numbers have an order, no more",
    (_Q + "sensors/hold_queue.py", "HoldQueue.ask", "self._go(ticket, now_ms) → pass"):
        "never reached: all whose deadline is over have gone before",
    ("recalibration/policy/policy.py", "propose", "target < limit → (target <= limit)"):
        "for the limit itself both ways say the limit",
    ("usage/rollup.py", "Rollup.close", "self._addresses.clear() → pass"):
        "the next window begins with its own",
    ("usage/rollup.py", "Rollup._add", "False → True"):
        "records are all as long; and where none is marked, to look for those finds none",
    (_S + "produce/turns.py", "ProduceTurns.read_ahead",
     "latest_ms < ticket.deadline_ms - EARLY_MS → (latest_ms <= ticket.deadline_ms - EARLY_MS)"):
        "at that edge it gains half a ms, for which nobody is woken",
    (_S + "request_time.py", "RequestTime.note", "min → max"):
        "the header has arrived: it was read to judge the request",
    (_Q + "entity.py", "QuotaLevel.__new__", "level.has_user = user_part is not Part.IGNORED → pass"):
        "reckoned at import, before it could be changed: no test sees it",
    (_Q + "entity.py", "QuotaLevel.__new__",
     "Part.GROUP not in {user_part, client_part} → (Part.GROUP in {user_part, client_part})"):
        "reckoned at import, before it could be changed: no test sees it",
    (_Q + "sensors/smooth.py", "DEFAULT_BURST_S", "1.0 → 2.0"):
        "a default argument, bound at import, before it could be changed",
    (_Q + "producer_ids/quota.py", "ProducerIdQuota.ask", "head is ticket → (head is not ticket)"):
        "served now or with the next call, which is due now",
}  # fmt: skip
"""(path, where, change): the reason"""


def reason_of(mutant: Mutant) -> str:
    """Empty if nothing is said for it."""
    return ARGUED.get((mutant.path, mutant.where, mutant.change), "")
