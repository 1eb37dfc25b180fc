# Which sockets of the connections are ready: what Poller._ready does, without a list of what epoll says.

cdef extern from "<sys/epoll.h>" nogil:
    """
    static inline int event_fd(const struct epoll_event *event) { return event->data.fd; }
    static inline void watch_fd(struct epoll_event *event, int fd) { event->data.fd = fd; }
    """
    cdef struct epoll_event:
        unsigned int events
    const unsigned int EPOLLIN
    const unsigned int EPOLLOUT
    const unsigned int EPOLLERR
    const unsigned int EPOLLHUP
    int event_fd(const epoll_event *event)
    void watch_fd(epoll_event *event, int fd)
    const int EPOLL_CTL_ADD
    int epoll_wait(int epoll_fd, epoll_event *events, int at_most, int timeout_ms)
    int epoll_ctl(int epoll_fd, int what, int fd, epoll_event *event)

cdef enum:
    AT_ONCE = 256


cdef int serve(object poller, const epoll_event *events, int found) except -1:
    """Call whom they are for. It is a Poller."""
    cdef dict readers = slot(poller, at_readers), writers = slot(poller, at_writers)
    cdef object number, call
    cdef unsigned int seen
    cdef int at
    for at in range(found):
        seen = events[at].events
        number = event_fd(&events[at])
        # Looked for one by one: a call may end the watch of what comes behind it.
        try:
            if seen & (EPOLLIN | EPOLLHUP | EPOLLERR):
                call = readers.get(number)
                if call is not None:
                    call_reader(call)
            if seen & (EPOLLOUT | EPOLLHUP | EPOLLERR):
                call = writers.get(number)
                if call is not None:
                    call()
        except Exception as error:
            poller.told_of(error)
        if seen & (EPOLLHUP | EPOLLERR) and number not in readers and number not in writers:
            poller.unwatch(number)
    return 0


def sockets_ready(poller not None):
    """As Poller._ready."""
    cdef epoll_event events[AT_ONCE]
    cdef int found
    if not PyObject_TypeCheck(poller, <PyTypeObject *>Poller):
        raise TypeError("no poller")
    found = epoll_wait(poller.fd, events, AT_ONCE, 0)
    if found > 0:
        serve(poller, events, found)
