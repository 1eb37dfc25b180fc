# The broker's side: answers of which nothing is to be patched, and in which a gateway has nothing to rewrite.
# What AnswerSide.data, and for a limit on request time RequestTime.charge, do for them; anything else is
# theirs, from the answer where it begins.

cdef enum:
    RESPONSE_HEAD_BYTES = 8
    ENTRY_FIELDS = 10
    MARK_FIELDS = 5


cdef PyTypeObject *last_flow = NULL
cdef object costs_known = None  # RequestCosts of the last answer, and of which of its requests
cdef int cost_version = -1
cdef object cost_codec = None, cost_acks_all = None
cdef double request_ms, request_byte_ms, response_byte_ms, batch_ms, record_ms


cdef bint look_up_costs(object costs, int version, object codec, object acks_all) except -1:
    """The coefficients of such a Produce: mostly those of the last."""
    global costs_known, cost_version, cost_codec, cost_acks_all
    global request_ms, request_byte_ms, response_byte_ms, batch_ms, record_ms
    if costs is costs_known and version == cost_version and codec is cost_codec and acks_all is cost_acks_all:
        return True
    if not is_a(costs, RequestCosts):
        return False
    costs_known = None
    request_ms, request_byte_ms, response_byte_ms, batch_ms, record_ms = costs.of(
        PRODUCE_KEY, version, codec, acks_all
    )
    costs_known, cost_version, cost_codec, cost_acks_all = costs, version, codec, acks_all
    return True


cdef bint charge_time(
    Charges *charges, object request_time, object mark, object identity, tuple entry, int version,
    Py_ssize_t response_bytes, double upstream_ms
) except -1:
    """As RequestTime.charge, for the answer to a Produce within the limit. False: nothing is done."""
    cdef object flow = entry[3]
    cdef double cost_ms
    if not PyTuple_CheckExact(mark) or PyTuple_GET_SIZE(mark) != MARK_FIELDS or mark[0] != entry[0]:
        return False
    if not is_of(flow, Flow, &last_flow):
        return False
    if slot(flow, at_flow_client_id) != slot(identity, at_identity_client_id):
        return False
    if not look_up_costs(slot(request_time, at_costs), version, mark[3], mark[4]):
        return False
    cost_ms = (
        request_ms
        + request_byte_ms * <double>whole(entry[4])
        + batch_ms * <double>whole(mark[1])
        + record_ms * <double>whole(mark[2])
    )
    if upstream_ms < cost_ms:
        cost_ms = upstream_ms
    return charge(charges, cost_ms + response_byte_ms * <double>response_bytes)


cdef bint names_no_node(const unsigned char *answer, Py_ssize_t size, int version) noexcept:
    """Whether a gateway finds nothing to rewrite in a Produce's whole answer, its size included: of one
    partition without an error's text, and with no tagged field anywhere. False: it is walked in Python."""
    cdef Py_ssize_t pos = 4 + 4 + 1 + 1  # size, correlation id, the header's tags, how many topics
    if version < FIRST_WITH_NODES:
        return True
    if size < pos + 1 or answer[8] or answer[9] != 2:
        return False
    if version >= FIRST_TOPIC_ID:
        pos += 16
    else:
        if not 1 <= answer[pos] <= 0x7F:
            return False
        pos += answer[pos]
    # How many partitions; index, error code, base offset, append time, start offset; no errors of records, no
    # text, no tags; the topic's tags, the throttle, the tags.
    if size != pos + 1 + 30 + 3 + 1 + 4 + 1 or answer[pos] != 2:
        return False
    pos += 1 + 30
    return answer[pos] == 1 and not (answer[pos + 1] or answer[pos + 2] or answer[pos + 3] or answer[size - 1])


cdef Py_ssize_t match(
    object side, object buf, Py_ssize_t start, Py_ssize_t end, object now, bint *is_done
) except -1:
    """As `judge`, for answers."""
    cdef object pace = slot(side, at_answer_pace), throttling = slot(side, at_answer_throttling)
    cdef object identity = slot(side, at_answer_identity), in_flight = slot(side, at_answer_in_flight)
    cdef object records = slot(side, at_answer_records), local = slot(side, at_answer_local)
    cdef object due, request_time = None, sensor = None, marks = None, is_charged, user, held, entry_of, work
    cdef tuple entry
    cdef Charges charges
    cdef Py_ssize_t answered = 0
    cdef double now_ms = PyFloat_AS_DOUBLE(now), forwarded_ms = 0.0, held_ms = 0.0
    cdef const unsigned char *bytes_of = <const unsigned char *>PyByteArray_AS_STRING(buf)
    cdef Py_ssize_t pos = start, frame_end, size
    is_done[0] = False
    if not (is_a(pace, Pace) and is_a(throttling, Throttling) and is_a(identity, Identity)):
        return start
    if not (is_a(local, LocalAnswers) and PyList_CheckExact(in_flight) and PyList_CheckExact(records)):
        return start
    due, is_charged = slot(local, at_due), slot(throttling, at_charges_answers)
    if whole(slot(side, at_answer_skip)) != 0 or not PyList_CheckExact(due) or len(due):
        return start
    if is_charged is not False:
        request_time = slot(throttling, at_request_time)
        if is_charged is not True or not is_a(request_time, RequestTime):
            return start
        if whole(slot(pace, at_max_in_flight)) == IN_FLIGHT_IN_DEBT:
            return start  # a debt may be paid: more may be under way again
        sensor, marks = slot(request_time, at_time_sensor), slot(request_time, at_marks)
        if not PyList_CheckExact(marks) or not begin_charges(&charges, sensor, now_ms, False):
            return start
        if slot(sensor, at_exempt) is not False:
            return start
    user = slot(identity, at_user)
    while True:
        if end - pos < RESPONSE_HEAD_BYTES:
            is_done[0] = pos == end and slot(pace, at_is_full) is False
            break
        if answered >= len(in_flight):
            break
        entry_of = (<list>in_flight)[answered]
        if not PyTuple_CheckExact(entry_of) or PyTuple_GET_SIZE(entry_of) != ENTRY_FIELDS:
            break
        entry = <tuple>entry_of
        held, work = entry[6], entry[9]
        size = int32_at(bytes_of + pos)
        frame_end = pos + 4 + size
        if (
            (work is not NO_WORK and work is not ADDRESSES)
            or size < 4
            or frame_end > end
            or whole(entry[0]) != int32_at(bytes_of + pos + 4)
            or not read_float(entry[5], &forwarded_ms)
            or not read_float(held, &held_ms)
        ):
            break
        if work is ADDRESSES and not (
            whole(entry[1]) == PRODUCE_KEY and names_no_node(bytes_of + pos, frame_end - pos, whole(entry[2]))
        ):
            break
        if is_charged is True:
            if whole(entry[1]) != PRODUCE_KEY or answered >= len(marks):
                break
            if not charge_time(
                &charges, request_time, (<list>marks)[answered], identity, entry, whole(entry[2]),
                frame_end - pos, now_ms - forwarded_ms,
            ):
                break
        answered += 1
        (<list>records).append((
            entry[3], entry[4], frame_end - pos, now_ms - forwarded_ms, held,
            held, now, entry[1], entry[2], user, entry[8],
        ))
        pos = frame_end
    if answered:
        del (<list>in_flight)[:answered]
        if is_charged is True:
            del (<list>marks)[:answered]
            end_charges(&charges, sensor, now)
        put(side, at_answer_bytes_read, slot(side, at_answer_bytes_read) + (pos - start))
    return pos


cdef Py_ssize_t give_answers(object side, object buf, Py_ssize_t start, Py_ssize_t end, object now) except -1:
    """As AnswerSide.data, which has what is not known here."""
    cdef bint is_done = False
    cdef Py_ssize_t pos = start
    if (
        PyByteArray_CheckExact(buf)
        and PyFloat_CheckExact(now)
        and 0 <= start <= end <= PyByteArray_GET_SIZE(buf)
    ):
        pos = match(side, buf, start, end, now, &is_done)
    if not is_done:
        return <Py_ssize_t>pure_broker_data(side, buf, pos, end, now)
    put(side, at_answer_is_stopped, False)
    return pos


def broker_data(side not None, buf, Py_ssize_t start, Py_ssize_t end, now_ms):
    """In the place of AnswerSide.data."""
    if not PyObject_TypeCheck(side, <PyTypeObject *>AnswerSide):
        raise TypeError("not a broker's side")
    return give_answers(side, buf, start, end, now_ms)
