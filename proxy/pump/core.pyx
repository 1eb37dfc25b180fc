# cython: language_level=3, boundscheck=True, wraparound=False, cdivision=True, initializedcheck=True
# cython: embedsignature=False, binding=True, freethreading_compatible=False
"""The pump: what most traffic is, compiled. Works on the session's own objects; see proxy/pump/__init__.py.

It knows only requests and answers that pass as they are, and decides before it writes anything: whatever else
a frame is, the Python code gets it whole, from its first byte, with the state as it would be without a pump.
"""

from _socket import socket as _RawSocket
from socket import socket as _Socket

from sluice.protocol.addresses.addresses import VERSIONS_WITH_ADDRESSES as _VERSIONS_WITH_ADDRESSES
from sluice.protocol.apis import OFFERED as _OFFERED
from sluice.protocol.apis import PRODUCE as _PRODUCE
from sluice.protocol.errors import ProtocolError as _ProtocolError
from sluice.proxy.connection.budget import WINDOW_BYTES as _WINDOW_BYTES
from sluice.proxy.connection.budget import BufferShare as _BufferShare
from sluice.proxy.connection.peer import Peer as _Peer
from sluice.proxy.connection.poller import Poller as _Poller
from sluice.proxy.connection.relay import Relay as _Relay
from sluice.proxy.connection.splice import expect as _expect
from sluice.proxy.connection.worker import HEAD_BYTES as _HEAD_BYTES
from sluice.proxy.listener.tls.stream import SEND_BYTES as _TLS_SEND_BYTES
from sluice.proxy.listener.tls.stream import RECORD_BYTES as _RECORD_BYTES
from sluice.proxy.listener.tls.stream import TlsStream as _TlsStream
from sluice.proxy.session.causes import DisconnectCause as _DisconnectCause
from sluice.proxy.session.connection_states import State as _State
from sluice.proxy.session.identity import Identity as _Identity
from sluice.proxy.session.in_flight import ADDRESSES as _ADDRESSES
from sluice.proxy.session.in_flight import NONE as _NONE
from sluice.proxy.session.local_responses import LocalAnswers as _LocalAnswers
from sluice.proxy.session.produce.header_prediction import KnownProduce as _KnownProduce
from sluice.proxy.session.read_gate import Pace as _Pace
from sluice.proxy.session.request_time import IN_FLIGHT_IN_DEBT as _IN_FLIGHT_IN_DEBT
from sluice.proxy.session.request_time import RequestTime as _RequestTime
from sluice.proxy.session.requests import RequestSide as _RequestSide
from sluice.proxy.session.responses import AnswerSide as _AnswerSide
from sluice.proxy.session.session import Session as _Session
from sluice.proxy.session.throttling import Throttling as _Throttling
from sluice.quotas.manager import QuotaManager as _QuotaManager
from sluice.quotas.sensors.smooth import SmoothSensor as _SmoothSensor
from sluice.usage.records import Flow as _Flow
from sluice.usage.request_cost import RequestCosts as _RequestCosts
from sluice.usage.tallies import DURATION_AT as _DURATION_AT
from sluice.usage.tallies import DURATION_SUM as _DURATION_SUM
from sluice.usage.tallies import SIZE_SUM as _SIZE_SUM
from sluice.usage.tallies import SLOTS_PER_MS as _SLOTS_PER_MS

include "slots.pxi"

cdef object Flow = _Flow, Identity = _Identity, KnownProduce = _KnownProduce
cdef object LocalAnswers = _LocalAnswers, Pace = _Pace, RequestCosts = _RequestCosts
cdef object RequestTime = _RequestTime, RequestSide = _RequestSide, AnswerSide = _AnswerSide
cdef object Throttling = _Throttling, QuotaManager = _QuotaManager, SmoothSensor = _SmoothSensor
cdef object Relay = _Relay, Peer = _Peer, BufferShare = _BufferShare, Session = _Session
cdef object ProtocolError = _ProtocolError, DisconnectCause = _DisconnectCause, expect = _expect
cdef object TlsStream = _TlsStream, Poller = _Poller
cdef long RECORD_BYTES = _RECORD_BYTES, TLS_SEND_BYTES = _TLS_SEND_BYTES
cdef object socket_class = _Socket, READING = _State.READING
cdef object CLIENT_RESET = _DisconnectCause.CLIENT_RESET, CLIENT_CLOSED = _DisconnectCause.CLIENT_CLOSED
cdef object BROKER_RESET = _DisconnectCause.BROKER_RESET, BROKER_CLOSED = _DisconnectCause.BROKER_CLOSED
cdef long WINDOW_BYTES = _WINDOW_BYTES, HEAD_BYTES = _HEAD_BYTES
cdef object pure_client_readable = _Relay._client_readable
cdef object pure_broker_readable = _Relay._broker_readable

cdef object NO_WORK = _NONE, ADDRESSES = _ADDRESSES, PRODUCE = _PRODUCE, ONE = 1, ZERO_FLOAT = 0.0
cdef long IN_FLIGHT_IN_DEBT = _IN_FLIGHT_IN_DEBT
cdef int PRODUCE_MIN = _OFFERED[_PRODUCE][0], PRODUCE_MAX = _OFFERED[_PRODUCE][1]
cdef int FIRST_WITH_NODES = _VERSIONS_WITH_ADDRESSES[_PRODUCE][0]
cdef object pure_client_data = _RequestSide.data, pure_broker_data = _AnswerSide.data

cdef PyCFunction socket_fileno = method_of(_RawSocket, "fileno", METH_NOARGS)

cdef Py_ssize_t at_side_pace = offset_of(_RequestSide, "_pace")
cdef Py_ssize_t at_side_throttling = offset_of(_RequestSide, "_throttling")
cdef Py_ssize_t at_side_identity = offset_of(_RequestSide, "_identity")
cdef Py_ssize_t at_side_in_flight = offset_of(_RequestSide, "_in_flight")
cdef Py_ssize_t at_side_quotas = offset_of(_RequestSide, "_quotas")
cdef Py_ssize_t at_side_skip = offset_of(_RequestSide, "_skip")
cdef Py_ssize_t at_raw_tokens = offset_of(_RequestSide, "raw_tokens")
cdef Py_ssize_t at_guard = offset_of(_RequestSide, "_guard")
cdef Py_ssize_t at_client_left = offset_of(_RequestSide, "client_left")
cdef Py_ssize_t at_produce_begin = offset_of(_RequestSide, "_produce_begin")
cdef Py_ssize_t at_produce_head_bytes = offset_of(_RequestSide, "_produce_head_bytes")
cdef Py_ssize_t at_produce_flow = offset_of(_RequestSide, "_produce_flow")
cdef Py_ssize_t at_produce_version = offset_of(_RequestSide, "_produce_version")
cdef Py_ssize_t at_produce_acks = offset_of(_RequestSide, "_produce_acks")
cdef Py_ssize_t at_frame_limit = offset_of(_RequestSide, "_frame_limit")
cdef Py_ssize_t at_client_id_length = offset_of(_RequestSide, "_client_id_length")
cdef Py_ssize_t at_paid_work = offset_of(_RequestSide, "_paid_work")
cdef Py_ssize_t at_count = offset_of(_RequestSide, "count")
cdef Py_ssize_t at_bytes_read = offset_of(_RequestSide, "bytes_read")

cdef Py_ssize_t at_answer_pace = offset_of(_AnswerSide, "_pace")
cdef Py_ssize_t at_answer_throttling = offset_of(_AnswerSide, "_throttling")
cdef Py_ssize_t at_answer_identity = offset_of(_AnswerSide, "_identity")
cdef Py_ssize_t at_answer_in_flight = offset_of(_AnswerSide, "_in_flight")
cdef Py_ssize_t at_answer_records = offset_of(_AnswerSide, "_records")
cdef Py_ssize_t at_answer_local = offset_of(_AnswerSide, "_local")
cdef Py_ssize_t at_answer_skip = offset_of(_AnswerSide, "_skip")
cdef Py_ssize_t at_answer_bytes_read = offset_of(_AnswerSide, "bytes_read")
cdef Py_ssize_t at_answer_is_stopped = offset_of(_AnswerSide, "is_stopped")

cdef Py_ssize_t at_gate_ms = offset_of(_Pace, "gate_ms")
cdef Py_ssize_t at_max_in_flight = offset_of(_Pace, "max_in_flight")
cdef Py_ssize_t at_is_full = offset_of(_Pace, "is_full")

cdef Py_ssize_t at_authenticated = offset_of(_Identity, "authenticated")
cdef Py_ssize_t at_flow = offset_of(_Identity, "flow")
cdef Py_ssize_t at_user = offset_of(_Identity, "user")
cdef Py_ssize_t at_identity_client_id = offset_of(_Identity, "client_id")
cdef Py_ssize_t at_due = offset_of(_LocalAnswers, "due")

cdef Py_ssize_t at_known = offset_of(_Throttling, "known")
cdef Py_ssize_t at_ids = offset_of(_Throttling, "ids")
cdef Py_ssize_t at_produce_sensor = offset_of(_Throttling, "produce_sensor")
cdef Py_ssize_t at_request_time = offset_of(_Throttling, "request_time")
cdef Py_ssize_t at_generation = offset_of(_Throttling, "generation")
cdef Py_ssize_t at_quotas_generation = offset_of(_QuotaManager, "generation")
cdef Py_ssize_t at_charges_answers = offset_of(_Throttling, "charges_answers")

cdef Py_ssize_t at_head = offset_of(_KnownProduce, "head")
cdef Py_ssize_t at_heads = offset_of(_KnownProduce, "heads")
cdef Py_ssize_t at_head_bytes = offset_of(_KnownProduce, "_head_bytes")
cdef Py_ssize_t at_producer_id = offset_of(_KnownProduce, "producer_id")
cdef Py_ssize_t at_until_ms = offset_of(_KnownProduce, "until_ms")
cdef Py_ssize_t at_known_version = offset_of(_KnownProduce, "version")
cdef Py_ssize_t at_known_acks = offset_of(_KnownProduce, "acks")
cdef Py_ssize_t at_gates = offset_of(_KnownProduce, "gates")

cdef Py_ssize_t at_costs = offset_of(_RequestTime, "_costs")
cdef Py_ssize_t at_marks = offset_of(_RequestTime, "marks")
cdef Py_ssize_t at_time_sensor = offset_of(_RequestTime, "sensor")

cdef Py_ssize_t at_tat_ms = offset_of(_SmoothSensor, "tat_ms")
cdef Py_ssize_t at_burst_ms = offset_of(_SmoothSensor, "_burst_ms")
cdef Py_ssize_t at_ms_per_unit = offset_of(_SmoothSensor, "_ms_per_unit")
cdef Py_ssize_t at_eligible_at_ms = offset_of(_SmoothSensor, "eligible_at_ms")
cdef Py_ssize_t at_charged = offset_of(_SmoothSensor, "charged")
cdef Py_ssize_t at_last_ms = offset_of(_SmoothSensor, "last_ms")
cdef Py_ssize_t at_held = offset_of(_SmoothSensor, "held")
cdef Py_ssize_t at_exempt = offset_of(_SmoothSensor, "exempt")
cdef Py_ssize_t at_flow_client_id = offset_of(_Flow, "client_id")

cdef Py_ssize_t at_client = offset_of(_Relay, "_client")
cdef Py_ssize_t at_broker = offset_of(_Relay, "_broker")
cdef Py_ssize_t at_client_kept = offset_of(_Relay, "_client_kept")
cdef Py_ssize_t at_broker_kept = offset_of(_Relay, "_broker_kept")
cdef Py_ssize_t at_share = offset_of(_Relay, "_share")
cdef Py_ssize_t at_session = offset_of(_Relay, "session")
cdef Py_ssize_t at_buf = offset_of(_Relay, "_buf")
cdef Py_ssize_t at_view = offset_of(_Relay, "_view")
cdef Py_ssize_t at_moves = offset_of(_Relay, "_moves")
cdef Py_ssize_t at_worker = offset_of(_Relay, "_worker")
cdef Py_ssize_t at_drops = offset_of(_Relay, "_drops")
cdef Py_ssize_t at_readers = offset_of(_Poller, "_readers")
cdef Py_ssize_t at_writers = offset_of(_Poller, "_writers")
cdef Py_ssize_t at_edits = offset_of(_Relay, "_edits")
cdef Py_ssize_t at_relay_pace = offset_of(_Relay, "_pace")
cdef Py_ssize_t at_window_bytes = offset_of(_BufferShare, "window_bytes")
cdef Py_ssize_t at_sock = offset_of(_Peer, "sock")
cdef Py_ssize_t at_peer_view = offset_of(_Peer, "view")
cdef Py_ssize_t at_passing = offset_of(_Peer, "passing")
cdef Py_ssize_t at_gone = offset_of(_Peer, "gone")
cdef Py_ssize_t at_out = offset_of(_Peer, "out")
cdef Py_ssize_t at_reading = offset_of(_Peer, "reading")
cdef Py_ssize_t at_session_requests = offset_of(_Session, "_requests")
cdef Py_ssize_t at_session_answers = offset_of(_Session, "_answers")
cdef Py_ssize_t at_state = offset_of(_Pace, "state")

include "requests.pxi"
include "responses.pxi"
include "relay.pxi"
include "poller.pxi"
include "waiting.pxi"
include "tls.pxi"
include "usage.pxi"
