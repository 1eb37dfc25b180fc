# TLS: what TlsStream.recv_into and send do of a few records, by the functions of the libssl that Python's own
# ssl uses, without the calls of Python between.
#
# Python shows no SSL*. It lies in _ssl's object between the socket and the context, and is believed to be there
# only where the context is behind it, and is the one that OpenSSL has for it too; else TLS is read in Python.
# What fails is told by Python: OpenSSL says the same again when it is asked there.

cdef extern from "<sys/ioctl.h>" nogil:
    const int FIONREAD
    int ioctl(int fd, unsigned long request, int *found)

ctypedef int (*ReadTls)(void *tls, void *buf, size_t size, size_t *done) noexcept nogil
ctypedef int (*WriteTls)(void *tls, const void *buf, size_t size, size_t *done) noexcept nogil
ctypedef int (*ErrorOf)(const void *tls, int result) noexcept nogil
ctypedef void (*ClearErrors)() noexcept nogil
ctypedef void *(*ContextOf)(const void *tls) noexcept nogil

cdef enum:
    SSL_AT = 3  # words from the begin of _ssl's object: its count, its type, the socket
    CONTEXT_AT = 4
    SSL_CTX_AT = 2  # in the context's
    SSL_ERROR_SSL = 1
    SSL_ERROR_WANT_READ = 2
    SSL_ERROR_WANT_WRITE = 3
    SSL_ERROR_SYSCALL = 5

cdef ReadTls SSL_read_ex = NULL
cdef WriteTls SSL_write_ex = NULL
cdef ErrorOf SSL_get_error = NULL
cdef ClearErrors ERR_clear_error = NULL
cdef object ssl_class = None  # of _ssl's objects; None: they are not read here
cdef Py_ssize_t at_tls_object = offset_of(_TlsStream, "_ssl")
cdef Py_ssize_t at_tls_error = offset_of(_TlsStream, "_error")
cdef Py_ssize_t at_tls_fd = offset_of(_TlsStream, "_fd")
cdef object pure_tls_recv_into = _TlsStream.recv_into, pure_tls_send = _TlsStream.send


cdef inline void *word_of(object value, int at) noexcept:
    return (<void **><PyObject *>value)[at]


cdef bint find_openssl() except -1:
    """Its functions, and that an SSL* lies where it is looked for."""
    global SSL_read_ex, SSL_write_ex, SSL_get_error, ERR_clear_error, ssl_class
    cdef void *library
    cdef ContextOf context_of
    import _ssl
    import ssl

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made = context.wrap_bio(ssl.MemoryBIO(), ssl.MemoryBIO(), server_side=True)._sslobj
    if type(made).__basicsize__ <= CONTEXT_AT * <int>sizeof(void *):
        return False
    if word_of(made, CONTEXT_AT) is not <void *><PyObject *>context or word_of(made, SSL_AT) is NULL:
        return False
    path = getattr(_ssl, "__file__", "").encode()
    library = dlopen(<const char *>path if path else NULL, RTLD_NOW | RTLD_NOLOAD)
    if library is NULL:
        return False
    try:
        context_of = <ContextOf>function(library, "SSL_get_SSL_CTX")
        SSL_read_ex = <ReadTls>function(library, "SSL_read_ex")
        SSL_write_ex = <WriteTls>function(library, "SSL_write_ex")
        SSL_get_error = <ErrorOf>function(library, "SSL_get_error")
        ERR_clear_error = <ClearErrors>function(library, "ERR_clear_error")
    except LookupError:
        return False
    if context_of(word_of(made, SSL_AT)) is not word_of(context, SSL_CTX_AT):
        return False
    ssl_class = type(made)
    return True


cdef inline void *tls_of(object stream) noexcept:
    """Its SSL*; NULL: it is Python's to read and write."""
    cdef object made
    if not is_a(stream, TlsStream) or slot(stream, at_tls_error) is not None:
        return NULL
    made = slot(stream, at_tls_object)
    return word_of(made, SSL_AT) if ssl_class is not None and is_a(made, ssl_class) else NULL


cdef Py_ssize_t read_tls(object stream, void *tls, char *room, Py_ssize_t size) except? -100:
    """As TlsStream.recv_into. NO_SOCKET: it is to be asked what has happened."""
    cdef size_t count = 0
    cdef Py_ssize_t got = 0
    cdef int error, left = 0
    while True:
        ERR_clear_error()
        if not SSL_read_ex(tls, room + got, size - got, &count):
            error = SSL_get_error(tls, 0)
            if error != SSL_ERROR_WANT_READ:
                if error == SSL_ERROR_SYSCALL:
                    stream._keep_reset()
                else:
                    stream._keep_failure()
                return got if got else NO_SOCKET
            return got if got else NOT_NOW
        got += count
        if count < RECORD_BYTES and ioctl(<int>whole(slot(stream, at_tls_fd)), FIONREAD, &left) == 0 and not left:
            return got
        if size - got < RECORD_BYTES:
            return got


cdef Py_ssize_t write_tls(void *tls, const char *data, Py_ssize_t size) noexcept:
    """As TlsStream.send, of what it gives OpenSSL at once: all of it, 0 or BROKEN."""
    cdef size_t sent = 0
    cdef int error
    ERR_clear_error()
    if SSL_write_ex(tls, data, size, &sent):
        return sent
    error = SSL_get_error(tls, 0)
    ERR_clear_error()
    return 0 if error == SSL_ERROR_WANT_READ or error == SSL_ERROR_WANT_WRITE else BROKEN


def tls_recv_into(stream not None, unsigned char[::1] view):
    """In the place of TlsStream.recv_into; the relay reads without it, tests of streams by it."""
    cdef void *tls = tls_of(stream)
    cdef Py_ssize_t got = NO_SOCKET
    if tls is not NULL and view.shape[0]:
        got = read_tls(stream, tls, <char *>&view[0], view.shape[0])
    if got == NO_SOCKET:
        return pure_tls_recv_into(stream, memoryview(view))
    if got == NOT_NOW:
        raise BlockingIOError
    return got


def tls_send(stream not None, const unsigned char[::1] data):
    """In the place of TlsStream.send, likewise."""
    cdef void *tls = tls_of(stream)
    cdef Py_ssize_t sent
    if tls is NULL or not 0 < data.shape[0] <= TLS_SEND_BYTES:
        return pure_tls_send(stream, memoryview(data))
    sent = write_tls(tls, <const char *>&data[0], data.shape[0])
    if sent == BROKEN:
        raise ConnectionResetError
    if not sent:
        raise BlockingIOError
    return sent


has_openssl = find_openssl()
