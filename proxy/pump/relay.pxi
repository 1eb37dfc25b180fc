# Between two streams: a read, a look by the session, a send. What Relay._client_readable and
# Relay._broker_readable do while nothing is kept; large frames and what was kept are theirs. Plain sockets
# are read and written by their descriptors, TLS by OpenSSL's functions (tls.pxi) or the stream's own calls.

cdef extern from "<errno.h>" nogil:
    int errno
    const int EAGAIN
    const int EWOULDBLOCK
    const int EINTR

cdef extern from "<sys/socket.h>" nogil:
    """
    #ifndef MSG_NOSIGNAL
    #define MSG_NOSIGNAL 0
    #endif
    """
    const int MSG_DONTWAIT
    const int MSG_NOSIGNAL
    ssize_t c_recv "recv"(int fd, void *buf, size_t size, int flags)
    ssize_t c_send "send"(int fd, const void *buf, size_t size, int flags)

cdef extern from "Python.h":
    bint PyMethod_Check(object value)
    PyObject *PyMethod_GET_FUNCTION(object method)
    PyObject *PyMethod_GET_SELF(object method)
    bint PyMemoryView_Check(object value)
    Py_buffer *PyMemoryView_GET_BUFFER(object value)

cdef extern from *:
    """
    #include <time.h>

    static inline double sluice_monotonic_s(void) {
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        return ((double)((long long)now.tv_sec * 1000000000 + now.tv_nsec)) / 1e9;
    }
    """
    double monotonic_s "sluice_monotonic_s"() noexcept nogil  # time.monotonic(), to the last bit

cdef enum:
    NO_SOCKET = -1
    NOT_NOW = -2
    BROKEN = -3


cdef object pumped_requests = None, pumped_answers = None
cdef PyTypeObject *last_session = NULL
cdef PyTypeObject *last_relay = NULL


cdef inline bint is_session(object session) except -1:
    """Its sides are the pump's own; else the relay asks them in Python."""
    return (
        is_of(session, Session, &last_session)
        and is_a(slot(session, at_session_requests), pumped_requests)
        and is_a(slot(session, at_session_answers), pumped_answers)
    )


def belong(requests not None, answers not None):
    """The classes of the sides whose `data` are `client_data` and `broker_data`."""
    global pumped_requests, pumped_answers
    if not issubclass(requests, RequestSide) or not issubclass(answers, AnswerSide):
        raise TypeError("no sides of a session")
    pumped_requests, pumped_answers = requests, answers


cdef int descriptor_of(object sock) except -2:
    """Of a plain socket; NO_SOCKET for any other stream, and for a closed one."""
    cdef long found
    if not is_a(sock, socket_class):
        return NO_SOCKET
    found = whole(socket_fileno(sock, NULL))
    return <int>found if 0 <= found <= 0x7FFFFFFF else NO_SOCKET


cdef Py_ssize_t receive(object relay, object peer) except? -100:
    """Read into the shared buffer. NO_SOCKET: nothing has been done, it is Python's turn; NOT_NOW: there was
    nothing; BROKEN: the connection is."""
    cdef object share = slot(relay, at_share), buf = slot(relay, at_buf), view, sock
    cdef Py_buffer *room
    cdef void *tls
    cdef ssize_t got
    cdef int fd
    if not (is_a(share, BufferShare) and is_a(peer, Peer) and PyByteArray_CheckExact(buf)):
        return NO_SOCKET
    if whole(slot(share, at_window_bytes)) != WINDOW_BYTES or slot(peer, at_passing) is not False:
        return NO_SOCKET
    view = slot(peer, at_peer_view)
    if not PyMemoryView_Check(view):
        return NO_SOCKET
    room = PyMemoryView_GET_BUFFER(view)
    if room.buf is not <void *>PyByteArray_AS_STRING(buf) or not 0 < room.len <= PyByteArray_GET_SIZE(buf):
        return NO_SOCKET
    sock = slot(peer, at_sock)
    fd = descriptor_of(sock)
    if fd < 0:
        tls = tls_of(sock)
        if tls is not NULL:
            got = read_tls(sock, tls, <char *>room.buf, room.len)
            if got != NO_SOCKET:
                return got
        try:
            return <Py_ssize_t>sock.recv_into(view)
        except BlockingIOError:
            return NOT_NOW
        except OSError:
            return BROKEN
    got = c_recv(fd, room.buf, room.len, MSG_DONTWAIT)
    if got >= 0:
        return got
    if errno == EAGAIN or errno == EWOULDBLOCK:
        return NOT_NOW
    return NO_SOCKET if errno == EINTR else BROKEN


cdef Py_ssize_t send_now(object peer, object buf, object view, Py_ssize_t size) except? -100:
    """Bytes of the shared buffer's begin that the peer has taken; BROKEN."""
    cdef int fd = descriptor_of(slot(peer, at_sock))
    cdef void *tls
    cdef ssize_t sent
    if fd < 0:
        tls = tls_of(slot(peer, at_sock))
        if tls is not NULL and size <= TLS_SEND_BYTES:
            return write_tls(tls, PyByteArray_AS_STRING(buf), size)
        try:
            return peer.sock.send(view[:size])
        except BlockingIOError:
            return 0
        except OSError:
            return BROKEN
    sent = c_send(fd, PyByteArray_AS_STRING(buf), size, MSG_DONTWAIT | MSG_NOSIGNAL)
    if sent >= 0:
        return sent
    return 0 if errno == EAGAIN or errno == EWOULDBLOCK or errno == EINTR else BROKEN


cdef int take_from_client(object relay, object session, object client, Py_ssize_t end) except -1:
    """As Relay._take_from_client, of a read while nothing was kept."""
    cdef object buf = slot(relay, at_buf), view = slot(relay, at_view), broker = slot(relay, at_broker)
    cdef object drops = slot(relay, at_drops), requests = slot(session, at_session_requests), data
    cdef Py_ssize_t cut, sent = 0
    cdef bint keeps = False
    cut = give_requests(requests, buf, 0, end, monotonic_s() * 1000.0)
    if cut != end:
        relay._keep(buf, view, cut, end)
        keeps = True
    if drops:
        data = relay._without_refused(view, cut)
        keeps = True
        try:
            if broker.out is None and data:
                sent = broker.sock.send(data)
        except BlockingIOError:
            pass
        except OSError:
            relay._broker_takes_no_more()
            return 0
        if sent < len(data):
            broker.send_later(data[sent:])
            client.read(False)
    elif cut:
        if slot(broker, at_out) is None:
            sent = send_now(broker, buf, view, cut)
            if sent == BROKEN:
                relay._broker_takes_no_more()
                return 0
        if sent < cut:
            broker.send_later(view[sent:cut])
            client.read(False)
            keeps = True
    if keeps:
        relay._tell_kept()
    if slot(slot(relay, at_relay_pace), at_state) is not READING:
        relay._not_reading()
    return 0


cdef bint read_client(object relay) except -1:
    """False: nothing has been done."""
    cdef object client = slot(relay, at_client), session = slot(relay, at_session)
    cdef Py_ssize_t got
    if slot(relay, at_client_kept) is not None or not is_session(session):
        return False
    if not is_a(slot(relay, at_broker), Peer) or not is_a(slot(relay, at_relay_pace), Pace):
        return False
    got = receive(relay, client)
    if got == NO_SOCKET:
        return False
    if got == BROKEN:
        put(client, at_gone, True)
        relay._client_ended(CLIENT_RESET)
    elif got == 0:
        relay._client_ended(CLIENT_CLOSED)
    elif got > 0:
        take_from_client(relay, session, client, got)
        if got >= HEAD_BYTES and slot(relay, at_moves):
            expect(client, session.client_frames, slot(relay, at_worker))
    return True


cdef int take_from_broker(object relay, object session, object broker, Py_ssize_t end) except -1:
    """The rest of Relay._broker_readable, after a read while nothing was kept."""
    cdef object buf = slot(relay, at_buf), view = slot(relay, at_view), client = slot(relay, at_client)
    cdef object answer_side = slot(session, at_session_answers), answers
    cdef Py_ssize_t cut, sent = 0
    cdef bint keeps = False
    try:
        cut = give_answers(answer_side, buf, 0, end, monotonic_s() * 1000.0)
    except ProtocolError as error:
        client.send(relay._answers(error.good_end))
        relay.fail(DisconnectCause(error.cause), str(error))
        return 0
    if cut != end:
        put(relay, at_broker_kept, bytes(view[cut:end]))
        keeps = True
        if answer_side.is_stopped:
            relay._broker_goes_on_soon()
    if cut:
        answers = None
        if slot(relay, at_edits):
            answers = relay._answers(cut)
            if not client.send(answers):
                broker.read(False)
                keeps = True
        else:
            if slot(client, at_out) is None:
                sent = send_now(client, buf, view, cut)
                if sent == BROKEN:
                    sent = 0  # it is busy or gone: `send` finds out
            if sent < cut and not client.send(view[sent:cut]):
                broker.read(False)
                keeps = True
    if keeps:
        relay._tell_kept()
    if end >= HEAD_BYTES and slot(relay, at_moves):
        expect(broker, session.broker_frames, slot(relay, at_worker))
    if (
        slot(slot(relay, at_relay_pace), at_state) is not READING
        or slot(client, at_gone) is not False
        or slot(client, at_reading) is not True
    ):
        relay._after_answer()
    return 0


cdef bint read_broker(object relay) except -1:
    """False: nothing has been done."""
    cdef object broker = slot(relay, at_broker), session = slot(relay, at_session)
    cdef Py_ssize_t got
    if slot(relay, at_broker_kept) is not None or not is_session(session):
        return False
    if not is_a(slot(relay, at_client), Peer) or not is_a(slot(relay, at_relay_pace), Pace):
        return False
    got = receive(relay, broker)
    if got == NO_SOCKET:
        return False
    if got == BROKEN:
        relay._broker_ended(BROKER_RESET)
    elif got == 0:
        relay._broker_ended(BROKER_CLOSED)
    elif got > 0:
        take_from_broker(relay, session, broker, got)
    return True


cdef int client_is_readable(object relay) except -1:
    if not is_of(relay, Relay, &last_relay):
        raise TypeError("no relay")
    try:
        if read_client(relay):
            return 0
    except Exception:
        relay._crashed()
        return 0
    pure_client_readable(relay)
    return 0


cdef int broker_is_readable(object relay) except -1:
    if not is_of(relay, Relay, &last_relay):
        raise TypeError("no relay")
    try:
        if read_broker(relay):
            return 0
    except Exception:
        relay._crashed()
        return 0
    pure_broker_readable(relay)
    return 0


def client_readable(relay not None):
    """As Relay._client_readable."""
    client_is_readable(relay)


def broker_readable(relay not None):
    """As Relay._broker_readable."""
    broker_is_readable(relay)


cdef object reads_client = client_readable, reads_broker = broker_readable


cdef int call_reader(object call) except -1:
    """Call it; the two above without a call of Python's."""
    cdef PyObject *function
    if PyMethod_Check(call):
        function = PyMethod_GET_FUNCTION(call)
        if function is <PyObject *>reads_client:
            return client_is_readable(<object>PyMethod_GET_SELF(call))
        if function is <PyObject *>reads_broker:
            return broker_is_readable(<object>PyMethod_GET_SELF(call))
    call()
    return 0
