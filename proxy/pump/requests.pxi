# The client's side: Produces that go on at once, like the last ones. What RequestSide.data and
# ProduceSide._produce do for them, line by line; anything else is theirs, from the frame where it begins.

cdef enum:
    REQUEST_HEAD_BYTES = 14
    MIN_REQUEST_BYTES = 10
    PRODUCE_KEY = 0
    FIRST_FLEXIBLE = 9
    FIRST_TOPIC_ID = 13
    BATCH_HEAD_BYTES = 61
    LOG_OVERHEAD = 12
    TAGS_BYTES = 3
    SHORTER_BY = 13  # a batch's own length than the compact length of the records
    ENOUGH_BYTES = 65
    CODEC_AT = 22
    CODEC_BITS = 7


cdef struct Charges:  # what a sensor is charged in one look at the frames that have come
    double eligible_ms
    double tat_ms
    double burst_ms
    double ms_per_unit
    double now_ms
    double charged  # in all; of whole numbers, in this look
    bint is_whole
    bint has_begun


cdef bint begin_charges(Charges *charges, object sensor, double now_ms, bint is_whole) except -1:
    """`is_whole`: what is charged are whole numbers. False: the limit is of another kind, or others wait."""
    cdef object charged
    if not is_a(sensor, SmoothSensor) or slot(sensor, at_held):
        return False
    charged = slot(sensor, at_charged)
    charges.is_whole = is_whole and PyLong_CheckExact(charged)
    if charges.is_whole:
        charges.charged = 0.0
    elif PyLong_CheckExact(charged):
        charges.charged = charged
    elif not read_float(charged, &charges.charged):
        return False
    charges.now_ms = now_ms
    charges.has_begun = False
    return (
        read_float(slot(sensor, at_tat_ms), &charges.tat_ms)
        and read_float(slot(sensor, at_burst_ms), &charges.burst_ms)
        and read_float(slot(sensor, at_ms_per_unit), &charges.ms_per_unit)
    )


cdef inline bint charge(Charges *charges, double amount) noexcept:
    """As SmoothSensor.charge reckons. False: it would be a debt, and is not charged."""
    cdef double eligible_ms = charges.tat_ms, clears_ms
    if eligible_ms < charges.now_ms - charges.burst_ms:
        eligible_ms = charges.now_ms - charges.burst_ms
    clears_ms = eligible_ms + amount * charges.ms_per_unit
    if not clears_ms <= charges.now_ms:
        return False
    charges.eligible_ms = eligible_ms
    charges.tat_ms = clears_ms
    charges.charged = charges.charged + amount
    charges.has_begun = True
    return True


cdef int end_charges(Charges *charges, object sensor, object now) except -1:
    """Write down what SmoothSensor.charge would have, one after the other: before anybody else may look. More
    may be charged then."""
    cdef object charged
    if not charges.has_begun:
        return 0
    if charges.is_whole:
        charged = slot(sensor, at_charged) + <long>charges.charged
        charges.charged = 0.0
    else:
        charged = charges.charged
    put(sensor, at_eligible_at_ms, charges.eligible_ms)
    put(sensor, at_tat_ms, charges.tat_ms)
    put(sensor, at_charged, charged)
    put(sensor, at_last_ms, now)
    charges.has_begun = False
    return 0


cdef bint fits(object known, const unsigned char *frame, Py_ssize_t size, int version) except -1:
    """As KnownProduce tells, of a frame of `size` bytes that has wholly arrived: one batch of the last
    producer id, in the place of an earlier one."""
    cdef object head = slot(known, at_head)
    cdef long head_bytes = whole(slot(known, at_head_bytes))
    cdef const unsigned char *behind
    cdef Py_ssize_t rest, said, batch_bytes
    if head_bytes < 0 or not PyBytes_CheckExact(head):
        return False
    rest = size - REQUEST_HEAD_BYTES - head_bytes
    if rest < ENOUGH_BYTES:
        return False
    behind = frame + REQUEST_HEAD_BYTES + head_bytes
    if version < FIRST_FLEXIBLE:
        said = rest - 4
        if int32_at(behind) != said or said < BATCH_HEAD_BYTES:
            return False
        if int32_at(behind + 12) != said - LOG_OVERHEAD:
            return False
        behind += 4
    elif rest - TAGS_BYTES < 0x80:
        said = rest - TAGS_BYTES
        if behind[0] != said or said <= BATCH_HEAD_BYTES or int32_at(behind + 9) != said - SHORTER_BY:
            return False
        behind += 1
    else:
        said = rest - 2 - TAGS_BYTES + 1
        if 0x80 <= said < 0x4000:
            if behind[0] != (said & 0x7F | 0x80) or behind[1] != said >> 7:
                return False
            behind += 2
        else:
            said -= 1
            if (
                not 0x4000 <= said < 0x200000
                or behind[0] != (said & 0x7F | 0x80)
                or behind[1] != (said >> 7 & 0x7F | 0x80)
                or behind[2] != said >> 14
            ):
                return False
            behind += 3
        batch_bytes = said - SHORTER_BY
        if int32_at(behind + 8) != batch_bytes:
            return False
    if int64_at(behind + 43) != <long long>whole(slot(known, at_producer_id)):
        return False
    if PyBytes_GET_SIZE(head) == head_bytes and not memcmp(
        PyBytes_AS_STRING(head), frame + REQUEST_HEAD_BYTES, head_bytes
    ):
        return True
    return (<bytes>(<char *>frame + REQUEST_HEAD_BYTES)[:head_bytes]) in slot(known, at_heads)


cdef bint read_simple(
    const unsigned char *buf, Py_ssize_t pos, Py_ssize_t end, int version, long *records, int *codec
) noexcept:
    """As ProduceUsage._read_simple, of the body from `pos` on: one topic, one partition, one batch, and that
    is all of the frame. False: it is walked in Python."""
    cdef Py_ssize_t topic_end, size
    cdef long length
    if pos + 9 > end or buf[pos] or buf[pos + 7] != 2:
        return False
    if version >= FIRST_TOPIC_ID:
        topic_end = pos + 8 + 16
    else:
        if not 1 <= buf[pos + 8] <= 0x7F:
            return False
        topic_end = pos + 9 + buf[pos + 8] - 1
    # Behind it a length of four bytes at most; then a batch's head and the tags have room in any case.
    if topic_end + 6 + 3 + BATCH_HEAD_BYTES > end or buf[topic_end] != 2:
        return False
    length = buf[topic_end + 5]
    pos = topic_end + 6
    if length > 0x7F:
        length = (length & 0x7F) | (buf[pos] & 0x7F) << 7
        if buf[pos] > 0x7F:
            length |= (buf[pos + 1] & 0x7F) << 14
            if buf[pos + 1] > 0x7F:
                length |= <long>buf[pos + 2] << 21
                pos += 1
            pos += 1
        pos += 1
    if pos + BATCH_HEAD_BYTES + TAGS_BYTES > end:
        return False
    size = int32_at(buf + pos + 8) + LOG_OVERHEAD
    if buf[pos + 16] != 2 or length != size + 1 or size < BATCH_HEAD_BYTES or pos + size + TAGS_BYTES != end:
        return False
    if buf[end - 3] or buf[end - 2] or buf[end - 1]:
        return False
    records[0] = max(int32_at(buf + pos + 57), 0)
    codec[0] = buf[pos + CODEC_AT] & CODEC_BITS
    return True


cdef Py_ssize_t judge(
    object side, object buf, Py_ssize_t start, Py_ssize_t end, object now, bint *is_done
) except -1:
    """Judge the frames from `start` on that the pump knows, and return where the first other one begins.
    `is_done`: nothing is left that Python code would have to look at."""
    cdef object pace = slot(side, at_side_pace), throttling = slot(side, at_side_throttling)
    cdef object identity = slot(side, at_side_identity), in_flight = slot(side, at_side_in_flight)
    cdef object begin, quotas, head_bytes_slot, flow, known, sensor, request_time, clears, request_bytes
    cdef object ids, correlation, mark, entry, marks = None, shown_version
    cdef double now_ms = PyFloat_AS_DOUBLE(now), gate_ms, until_ms
    cdef Charges charges
    cdef const unsigned char *bytes_of = <const unsigned char *>PyByteArray_AS_STRING(buf)
    cdef Py_ssize_t pos = start, frame_end, client_id_end, size, begin_bytes = 0
    cdef long frame_limit, id_length, head_bytes, max_in_flight, produce_version, produce_acks
    cdef long acks, records = 0, count = 0
    cdef int version, codec = 0
    cdef bint is_known
    is_done[0] = False
    if not (is_a(pace, Pace) and is_a(throttling, Throttling) and is_a(identity, Identity)):
        return start
    quotas = slot(side, at_side_quotas)
    if (
        whole(slot(side, at_side_skip)) != 0
        or slot(side, at_raw_tokens) is not False
        or slot(side, at_guard) is not None
        or slot(side, at_client_left) is not False
        or slot(identity, at_authenticated) is not True
        or not is_a(quotas, QuotaManager)
        or not PyList_CheckExact(in_flight)
    ):
        return start
    known, ids = slot(throttling, at_known), slot(throttling, at_ids)
    sensor, request_time = slot(throttling, at_produce_sensor), slot(throttling, at_request_time)
    begin, head_bytes_slot = slot(side, at_produce_begin), slot(side, at_produce_head_bytes)
    frame_limit = whole(slot(side, at_frame_limit))
    id_length = whole(slot(side, at_client_id_length))
    max_in_flight = whole(slot(pace, at_max_in_flight))
    produce_version = whole(slot(side, at_produce_version))
    produce_acks = whole(slot(side, at_produce_acks))
    if (
        not is_a(known, KnownProduce)
        or frame_limit < 0
        or max_in_flight < 1
        or not is_same(slot(throttling, at_generation), slot(quotas, at_quotas_generation))
    ):
        return start
    if begin is not None:
        if not PyBytes_CheckExact(begin):
            return start
        begin_bytes = PyBytes_GET_SIZE(begin)
    if request_time is not None:
        if not is_a(request_time, RequestTime):
            return start
        marks = slot(request_time, at_marks)
        if not PyList_CheckExact(marks):
            return start
    if sensor is not None and not begin_charges(&charges, sensor, now_ms, True):
        return start
    while True:
        if not read_float(slot(pace, at_gate_ms), &gate_ms) or gate_ms > now_ms:
            break
        if end - pos < REQUEST_HEAD_BYTES:
            is_done[0] = pos == end
            break
        size = int32_at(bytes_of + pos)
        frame_end = pos + 4 + size
        if not MIN_REQUEST_BYTES <= size <= frame_limit or frame_end > end:
            break
        version = int16_at(bytes_of + pos + 6)
        if int16_at(bytes_of + pos + 4) != PRODUCE_KEY or not PRODUCE_MIN <= version <= PRODUCE_MAX:
            break
        if int16_at(bytes_of + pos + 12) != id_length:
            break
        client_id_end = pos + REQUEST_HEAD_BYTES + max(id_length, 0)
        if client_id_end > frame_end:
            break
        if begin is not None and (
            begin_bytes > frame_end - pos - REQUEST_HEAD_BYTES
            or memcmp(bytes_of + pos + REQUEST_HEAD_BYTES, PyBytes_AS_STRING(begin), begin_bytes)
        ):
            break
        # Whose it is, of which topic, and its acks.
        is_known = False
        flow = None
        if head_bytes_slot is not None:
            head_bytes = whole(head_bytes_slot)
            if head_bytes < 0 or client_id_end + head_bytes > frame_end:
                break
            flow = slot(side, at_produce_flow)
            is_known = version == produce_version
        if (
            read_float(slot(known, at_until_ms), &until_ms)
            and now_ms < until_ms
            and whole(slot(known, at_known_version)) == version
            and not slot(known, at_gates)
            and fits(known, bytes_of + pos, frame_end - pos, version)
        ):
            acks = whole(slot(known, at_known_acks))
        elif ids is not None or begin is None:
            break
        elif is_known:
            acks = produce_acks
        elif (
            version >= FIRST_FLEXIBLE and client_id_end + 4 <= frame_end
            and not (bytes_of[client_id_end] or bytes_of[client_id_end + 1])
        ):
            acks = bytes_of[client_id_end + 2] << 8 | bytes_of[client_id_end + 3]
        else:
            break
        if acks == 0 or acks == NO_INT:
            break
        if request_time is not None and not (
            version >= FIRST_FLEXIBLE and client_id_end < frame_end and bytes_of[client_id_end] == 0
            and read_simple(bytes_of, client_id_end + 1, frame_end, version, &records, &codec)
        ):
            break
        if sensor is not None and not charge(&charges, frame_end - pos):
            break
        # From here on it goes.
        if flow is None:
            flow = slot(identity, at_flow)
        else:
            put(identity, at_flow, flow)
        correlation = int32_at(bytes_of + pos + 8)
        request_bytes = frame_end - pos
        if request_time is not None:
            mark = (correlation, ONE, records, <long>codec, acks != 1)
            (<list>marks).append(mark)
        clears = ZERO_FLOAT
        if sensor is not None:
            clears = charges.tat_ms
        shown_version = version
        entry = (
            correlation, PRODUCE, shown_version, flow, request_bytes,
            now, ZERO_FLOAT, clears, sensor, slot(side, at_paid_work),
        )
        (<list>in_flight).append(entry)
        count += 1
        pos = frame_end
        if len(in_flight) >= max_in_flight:
            if sensor is not None:
                end_charges(&charges, sensor, now)
            pace.fill()
    if sensor is not None:
        end_charges(&charges, sensor, now)
    if count:
        put(side, at_count, slot(side, at_count) + count)
        put(side, at_bytes_read, slot(side, at_bytes_read) + (pos - start))
    return pos


cdef Py_ssize_t give_requests(
    object side, object buf, Py_ssize_t start, Py_ssize_t end, object now
) except -1:
    """As RequestSide.data, which has what is not known here."""
    cdef bint is_done = False
    cdef Py_ssize_t pos = start
    if (
        PyByteArray_CheckExact(buf)
        and PyFloat_CheckExact(now)
        and 0 <= start <= end <= PyByteArray_GET_SIZE(buf)
    ):
        pos = judge(side, buf, start, end, now, &is_done)
    return pos if is_done else <Py_ssize_t>pure_client_data(side, buf, pos, end, now)


def client_data(side not None, buf, Py_ssize_t start, Py_ssize_t end, now_ms):
    """In the place of RequestSide.data."""
    if not PyObject_TypeCheck(side, <PyTypeObject *>RequestSide):
        raise TypeError("not a client's side")
    return give_requests(side, buf, start, end, now_ms)
