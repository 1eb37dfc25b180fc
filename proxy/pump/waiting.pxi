# The wait of uvloop's loop, in the connections' epoll. A loop sleeps in its own epoll, in which ours would be
# one file: each request and each answer then took two epolls, the loop's round and a call of Python before a
# byte was read. Here it is the other way about: before the loop would sleep we do, as long as it would, in
# our epoll, in which the loop's own is one file. Sockets are served from there; for anything else, a timer or
# a call that is due, the loop goes on with its round, and finds what it waited for.
#
# Once it goes on it must not sleep itself, for nobody hears our sockets there; it could, behind a signal of
# which Python does not know (SIGCONT), or where a call of ours took away what its epoll had to tell. So it has
# an idle handle of ours, for which libuv looks without waiting, but while we reckon how long it would sleep.
#
# What ends the loop, an exception that is no Exception, ends it in the loop's next round but one, as uvloop does:
# until then nobody is served, or a socket whose call raises again each time would keep the loop from its end.
#
# uvloop's module has libuv's functions among its dynamic symbols, and tells Cython code where its loop lies
# (libuv_get_loop_t_ptr). Of a loop or a build without them sockets are watched as in Python.

from cpython.pycapsule cimport PyCapsule_GetPointer
from libc.stdlib cimport calloc, free

cdef extern from "<dlfcn.h>" nogil:
    const int RTLD_NOW
    const int RTLD_NOLOAD
    void *dlopen(const char *path, int flags)
    void *dlsym(void *library, const char *name)

ctypedef int (*OfLoop)(void *loop) noexcept nogil
ctypedef int (*OfHandle)(void *handle, void *argument) noexcept nogil
ctypedef void (*Walk)(void *loop, void *call, void *argument) noexcept nogil
ctypedef size_t (*SizeOf)(int kind) noexcept nogil

cdef enum:
    UV_ASYNC = 1
    UV_IDLE = 6
    UV_PREPARE = 9
    HANDLE_BYTES = 256  # more than any libuv of version 1 takes for either

cdef struct Sleeper:
    char prepare[HANDLE_BYTES]  # libuv's, of which the first word stays NULL: uvloop's own have an object there
    void *idle  # as well; by itself, for libuv ends the two in an order of its own, and each is freed then
    void *loop
    void *waker  # the loop's first handle, and one of the first that it closes
    PyObject *sleep
    int fd, loop_fd
    int rests  # 2: nobody is served until told, 1: nor in this round
    bint is_closed

cdef struct AnyHandle:  # what libuv shows of each
    void *data
    void *loop
    int kind

cdef OfLoop uv_backend_fd = NULL, uv_backend_timeout = NULL, uv_update_time = NULL
cdef OfHandle uv_prepare_init = NULL, uv_prepare_start = NULL, uv_close = NULL
cdef OfHandle uv_idle_init = NULL, uv_idle_start = NULL
cdef OfLoop uv_idle_stop = NULL, uv_is_closing = NULL, uv_unref = NULL
cdef Walk uv_walk = NULL
cdef set slept_for = set()  # addresses of loops: of two pollers of one loop the second is a file of the loop's own


cdef void *function(void *library, const char *name) except NULL:
    cdef void *found = dlsym(library, name)
    if found is NULL:
        raise LookupError(name)
    return found


cdef bint find_libuv() except -1:
    """Its functions, in the module that runs the loops. Raises LookupError where they, or the room for its
    handles, are not as they have to be."""
    global uv_backend_fd, uv_backend_timeout, uv_update_time, uv_unref
    global uv_prepare_init, uv_prepare_start, uv_idle_init, uv_idle_start, uv_idle_stop
    global uv_walk, uv_is_closing, uv_close
    cdef void *library
    cdef SizeOf size_of
    cdef int kind
    import uvloop.loop

    path = uvloop.loop.__file__.encode()
    library = dlopen(path, RTLD_NOW | RTLD_NOLOAD)
    if library is NULL:
        raise LookupError(path)
    size_of = <SizeOf>function(library, "uv_handle_size")
    for kind in (UV_IDLE, UV_PREPARE):
        if not 0 < size_of(kind) <= HANDLE_BYTES:
            raise LookupError("uv_handle_size")
    uv_backend_fd = <OfLoop>function(library, "uv_backend_fd")
    uv_backend_timeout = <OfLoop>function(library, "uv_backend_timeout")
    uv_update_time = <OfLoop>function(library, "uv_update_time")
    uv_prepare_init = <OfHandle>function(library, "uv_prepare_init")
    uv_prepare_start = <OfHandle>function(library, "uv_prepare_start")
    uv_idle_init = <OfHandle>function(library, "uv_idle_init")
    uv_idle_start = <OfHandle>function(library, "uv_idle_start")
    uv_idle_stop = <OfLoop>function(library, "uv_idle_stop")
    uv_walk = <Walk>function(library, "uv_walk")
    uv_is_closing = <OfLoop>function(library, "uv_is_closing")
    uv_close = <OfHandle>function(library, "uv_close")
    uv_unref = <OfLoop>function(library, "uv_unref")  # the last: all are there
    return True


cdef bint has_libuv() except -1:
    if uv_unref is NULL:
        try:
            find_libuv()
        except LookupError:
            return False
    return True


def _raise(error):
    """In a round of the loop, which it ends: as if the loop had called who raised it."""
    raise error


cdef int serve_all(Sleeper *sleeper, const epoll_event *events, int found) noexcept with gil:
    cdef Sleep sleep = <Sleep>sleeper.sleep
    cdef object poller = sleep.poller, loop
    try:
        serve(poller, events, found)
    except BaseException as error:
        sleeper.rests = 2
        loop = poller._loop
        loop.call_soon(_raise, error)
        loop.call_soon(sleep.serve_again)
    return 0


cdef int give_up(Sleeper *sleeper) noexcept with gil:
    (<Sleep>sleeper.sleep).close()
    return 0


cdef void before_sleep(void *prepare) noexcept nogil:
    """What libuv calls in each round before it would sleep."""
    cdef Sleeper *sleeper = <Sleeper *>prepare
    cdef epoll_event events[AT_ONCE]
    cdef int timeout_ms, found, at, others
    if uv_is_closing(sleeper.waker):
        give_up(sleeper)
        return
    if sleeper.rests:
        if sleeper.rests == 1:
            sleeper.rests = 0
        return
    uv_idle_stop(sleeper.idle)
    while not sleeper.is_closed and not sleeper.rests:
        timeout_ms = uv_backend_timeout(sleeper.loop)
        found = epoll_wait(sleeper.fd, events, AT_ONCE, timeout_ms)
        others = -1
        for at in range(found):
            if event_fd(&events[at]) == sleeper.loop_fd:
                others = at
        if others >= 0:
            found -= 1
            events[others] = events[found]
        if found > 0:
            serve_all(sleeper, events, found)
        # What it sleeps for is reckoned from the time that it last looked at.
        uv_update_time(sleeper.loop)
        if found <= 0 or others >= 0 or timeout_ms == 0:
            break
    if not sleeper.is_closed:
        uv_idle_start(sleeper.idle, <void *>does_nothing)


cdef void does_nothing(void *idle) noexcept nogil:
    pass


cdef void freed(void *handle) noexcept nogil:
    """What libuv calls behind a handle's end."""
    free(handle)


cdef void keep_waker(void *handle, void *sleeper) noexcept nogil:
    if (<Sleeper *>sleeper).waker is NULL and (<AnyHandle *>handle).kind == UV_ASYNC:
        (<Sleeper *>sleeper).waker = handle


cdef class Sleep:
    """A loop's wait, while it is ours."""

    cdef Sleeper *_sleeper
    cdef object poller

    def close(self):
        """The loop sleeps by itself again; harmless when closed already."""
        cdef Sleeper *sleeper = self._sleeper
        if sleeper is NULL:
            return
        self._sleeper = NULL
        sleeper.is_closed = True
        slept_for.discard(<size_t>sleeper.loop)
        uv_close(sleeper.idle, <void *>freed)
        uv_close(sleeper.prepare, <void *>freed)
        Py_XDECREF(sleeper.sleep)

    def serve_again(self):
        """From the next round on, if there is one: what had ended the loop was told."""
        if self._sleeper is not NULL:
            self._sleeper.rests = 1


def sleep_for(poller not None, loop):
    """Have the loop sleep in the poller's epoll. None: it does so in another's, is not uvloop's, or has none of
    what that takes."""
    cdef Sleeper *sleeper
    cdef epoll_event event
    cdef Sleep made
    cdef void *at
    import uvloop.loop

    if not PyObject_TypeCheck(poller, <PyTypeObject *>Poller):
        raise TypeError("no poller")
    if type(loop) is not uvloop.Loop or not has_libuv():
        return None
    at = PyCapsule_GetPointer(uvloop.loop.libuv_get_loop_t_ptr(loop), NULL)
    if <size_t>at in slept_for:
        return None
    sleeper = <Sleeper *>calloc(1, sizeof(Sleeper))
    if sleeper is NULL:
        raise MemoryError
    sleeper.idle = calloc(1, HANDLE_BYTES)
    if sleeper.idle is NULL:
        free(sleeper)
        raise MemoryError
    sleeper.loop = at
    sleeper.fd, sleeper.loop_fd = poller.fd, uv_backend_fd(sleeper.loop)
    event.events = EPOLLIN
    watch_fd(&event, sleeper.loop_fd)
    uv_walk(at, <void *>keep_waker, sleeper)
    if sleeper.waker is NULL or epoll_ctl(sleeper.fd, EPOLL_CTL_ADD, sleeper.loop_fd, &event):
        free(sleeper.idle)
        free(sleeper)
        return None
    uv_prepare_init(sleeper.loop, sleeper.prepare)  # these and the starts return 0, whatever they are given
    uv_idle_init(sleeper.loop, sleeper.idle)
    uv_prepare_start(sleeper.prepare, <void *>before_sleep)
    uv_unref(sleeper.prepare)  # the loop ends without them
    uv_unref(sleeper.idle)
    slept_for.add(<size_t>at)
    made = Sleep.__new__(Sleep)
    made.poller = poller
    made._sleeper = sleeper
    sleeper.sleep = <PyObject *>made
    Py_INCREF(made)
    return made
