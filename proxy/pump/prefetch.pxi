# Hints to the processor about what the sockets that are ready will need: a connection is some thirty objects in
# as many places, each found through the one before, and between two requests of it thousands of others' pass.
# Step by step for all of them at once, so that the memory answers for many together, not for one after the other.
# Nothing is changed, nor kept: whatever is not of the type that is expected is left out.

cdef extern from *:
    """
    static inline void sluice_prefetch(const void *at, int lines) {
        const char *line = (const char *)at;
        if (line) for (; lines > 0; lines--, line += 64) __builtin_prefetch(line);
    }
    static inline PyObject *sluice_owner(PyObject *call) {
        return call && PyMethod_Check(call) ? PyMethod_GET_SELF(call) : NULL;
    }
    static inline const void *sluice_items(PyObject *list) {
        return list && PyList_CheckExact(list) ? ((PyListObject *)list)->ob_item : NULL;
    }
    """
    void sluice_prefetch(const void *at, int lines) noexcept
    PyObject *sluice_owner(PyObject *call) noexcept
    const void *sluice_items(PyObject *list) noexcept
    PyObject *PyDict_GetItemWithError(object of, object key)

cdef enum:
    TOGETHER = 16  # connections

cdef PyTypeObject *relay_type = NULL  # of the last that was one
cdef PyTypeObject *session_type = NULL


cdef inline PyObject *behind(PyObject *owner, Py_ssize_t offset) noexcept:
    """What a slot has; NULL: there is no owner, or nothing in it."""
    return NULL if owner is NULL else (<PyObject **>(<char *>owner + offset))[0]


cdef inline PyObject *if_of(PyObject *value, object cls) noexcept:
    return value if value is not NULL and Py_TYPE(<object>value) is <PyTypeObject *>cls else NULL


cdef inline PyObject *if_relay(PyObject *value) noexcept:
    global relay_type
    if value is NULL:
        return NULL
    if Py_TYPE(<object>value) is not relay_type:
        if not PyObject_TypeCheck(<object>value, <PyTypeObject *>Relay):
            return NULL
        relay_type = Py_TYPE(<object>value)
    return value


cdef inline PyObject *if_session(PyObject *value) noexcept:
    global session_type
    if value is NULL:
        return NULL
    if Py_TYPE(<object>value) is not session_type:
        if not PyObject_TypeCheck(<object>value, <PyTypeObject *>Session):
            return NULL
        session_type = Py_TYPE(<object>value)
    return value


cdef int prefetch(dict readers, const epoll_event *events, int count) except -1:
    """What the connections of these sockets are made of: TOGETHER at most."""
    cdef PyObject *relays[TOGETHER]
    cdef PyObject *requests[TOGETHER]
    cdef PyObject *answers[TOGETHER]
    cdef PyObject *throttlings[TOGETHER]
    cdef PyObject *one
    cdef int at
    for at in range(count):
        relays[at] = PyDict_GetItemWithError(readers, event_fd(&events[at]))
        sluice_prefetch(relays[at], 1)
    for at in range(count):
        relays[at] = sluice_owner(relays[at])
        sluice_prefetch(relays[at], 4)
    for at in range(count):
        one = relays[at] = if_relay(relays[at])
        sluice_prefetch(behind(one, at_session), 2)
        sluice_prefetch(behind(one, at_client), 2)
        sluice_prefetch(behind(one, at_broker), 2)
        sluice_prefetch(behind(one, at_relay_pace), 2)
    for at in range(count):
        one = if_session(behind(relays[at], at_session))
        requests[at] = behind(one, at_session_requests)
        answers[at] = behind(one, at_session_answers)
        sluice_prefetch(requests[at], 6)
        sluice_prefetch(answers[at], 3)
        sluice_prefetch(behind(if_of(behind(relays[at], at_client), Peer), at_sock), 1)
        sluice_prefetch(behind(if_of(behind(relays[at], at_broker), Peer), at_sock), 1)
    for at in range(count):
        one = requests[at] = if_of(requests[at], pumped_requests)
        throttlings[at] = behind(one, at_side_throttling)
        sluice_prefetch(throttlings[at], 3)
        sluice_prefetch(behind(one, at_side_identity), 2)
        sluice_prefetch(behind(one, at_side_in_flight), 1)
        sluice_prefetch(behind(if_of(answers[at], pumped_answers), at_answer_local), 2)
    for at in range(count):
        one = throttlings[at] = if_of(throttlings[at], Throttling)
        sluice_prefetch(behind(one, at_known), 2)
        sluice_prefetch(behind(one, at_request_time), 2)
        sluice_prefetch(behind(one, at_produce_sensor), 2)
        sluice_prefetch(sluice_items(behind(requests[at], at_side_in_flight)), 1)
    for at in range(count):
        one = if_of(behind(throttlings[at], at_known), KnownProduce)
        sluice_prefetch(behind(one, at_head), 2)
        sluice_prefetch(behind(one, at_until_ms), 1)
        sluice_prefetch(behind(if_of(behind(throttlings[at], at_request_time), RequestTime), at_marks), 1)
    return 0
