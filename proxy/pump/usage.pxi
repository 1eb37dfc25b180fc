# What becomes of requests' records, most of them: what UsageMeter counts of those within a quota, and the columns
# that Rollup makes of requests of which none wants a row of its own.

cdef extern from "<string.h>":
    void *memset(void *begin, int value, size_t size) nogil

cdef extern from "Python.h":
    object PyBytes_FromStringAndSize(const char *begin, Py_ssize_t size)

cdef extern from *:
    """
    static inline int sluice_bits(unsigned long long of) { return of ? 64 - __builtin_clzll(of) : 0; }
    """
    int sluice_bits(unsigned long long of) noexcept nogil

cdef enum:
    RECORD_FIELDS = 11
    TALLY_SLOTS = 97  # of sizes and durations; behind them the two sums
    MAX_UINT32 = 0xFFFFFFFF

cdef long DURATION_AT = _DURATION_AT, SIZE_SUM = _SIZE_SUM, DURATION_SUM = _DURATION_SUM
cdef double SLOTS_PER_MS = _SLOTS_PER_MS, MAX_MS = 2.0 ** 50
cdef Py_ssize_t at_flow_number = offset_of(_Flow, "number")

if SIZE_SUM != TALLY_SLOTS or DURATION_SUM != TALLY_SLOTS + 1 or DURATION_AT + 54 > TALLY_SLOTS:
    raise ImportError("a tally has other slots")


cdef struct Tally:
    long slots[TALLY_SLOTS]
    long bytes_
    double ms


cdef int begin_tally(Tally *sums, list tally) except -1:
    memset(sums, 0, sizeof(Tally))
    sums.ms = tally[DURATION_SUM]
    return 0


cdef int end_tally(const Tally *sums, list tally) except -1:
    cdef int at
    for at in range(TALLY_SLOTS):
        if sums.slots[at]:
            tally[at] += sums.slots[at]
    tally[SIZE_SUM] += sums.bytes_
    if sums.ms:
        tally[DURATION_SUM] = sums.ms
    return 0


def count_requests(list records not None, dict tallies not None):
    """As UsageMeter._count_requests, of requests within a quota and of an API that has a tally. Returns the
    others, of which nothing is counted."""
    cdef Tally sums
    cdef object one, sensor, key = None
    cdef tuple record
    cdef list tally = None, others = []
    cdef double upstream_ms = 0.0, throttle_ms = 0.0
    cdef long size
    for one in records:
        if not PyTuple_CheckExact(one) or PyTuple_GET_SIZE(one) != RECORD_FIELDS:
            others.append(one)
            continue
        record = <tuple>one
        sensor, size = record[10], whole(record[1])
        if (
            not is_a(sensor, SmoothSensor)
            or slot(sensor, at_exempt) is not False
            or not read_float(record[4], &throttle_ms)
            or throttle_ms != 0.0
            or not read_float(record[3], &upstream_ms)
            or not 0.0 <= upstream_ms < MAX_MS
            or not 1 <= size <= MAX_UINT32
            or (record[7] is not key and record[7] not in tallies)
        ):
            others.append(one)
            continue
        if record[7] is not key:
            if tally is not None:
                end_tally(&sums, tally)
            key = record[7]
            tally = tallies[key]
            begin_tally(&sums, tally)
        sums.slots[sluice_bits(size - 1)] += 1
        sums.bytes_ += size
        if upstream_ms > 0.0:
            sums.slots[DURATION_AT + sluice_bits(<long>(upstream_ms * SLOTS_PER_MS))] += 1
            sums.ms += upstream_ms
    if tally is not None:
        end_tally(&sums, tally)
    return others


def pack_requests(list records not None, double slow_ms):
    """Columns of their flows' numbers and bytes (uint32) and times to the answer (double), as Rollup packs them.
    None: some flow has no number, or some request is to be looked at: it was throttled, or slow."""
    cdef Py_ssize_t count = len(records), at
    cdef object packed_flows = PyBytes_FromStringAndSize(NULL, 4 * count)
    cdef object packed_requests = PyBytes_FromStringAndSize(NULL, 4 * count)
    cdef object packed_answers = PyBytes_FromStringAndSize(NULL, 4 * count)
    cdef object packed_ms = PyBytes_FromStringAndSize(NULL, 8 * count)
    cdef unsigned int *flows = <unsigned int *>PyBytes_AS_STRING(packed_flows)
    cdef unsigned int *requests = <unsigned int *>PyBytes_AS_STRING(packed_requests)
    cdef unsigned int *answers = <unsigned int *>PyBytes_AS_STRING(packed_answers)
    cdef double *times_ms = <double *>PyBytes_AS_STRING(packed_ms)
    cdef object one
    cdef tuple record
    cdef double upstream_ms = 0.0, throttle_ms = 0.0
    cdef long number, request_bytes, response_bytes
    for at in range(count):
        one = records[at]
        if not PyTuple_CheckExact(one) or PyTuple_GET_SIZE(one) != RECORD_FIELDS:
            return None
        record = <tuple>one
        if not is_of(record[0], Flow, &last_flow):
            return None
        number, request_bytes = whole(slot(record[0], at_flow_number)), whole(record[1])
        response_bytes = whole(record[2])
        if (
            not 0 <= number <= MAX_UINT32
            or not 0 <= request_bytes <= MAX_UINT32
            or not 0 <= response_bytes <= MAX_UINT32
            or not read_float(record[3], &upstream_ms)
            or not upstream_ms < slow_ms
            or not read_float(record[4], &throttle_ms)
            or throttle_ms != 0.0
        ):
            return None
        flows[at] = <unsigned int>number
        requests[at] = <unsigned int>request_bytes
        answers[at] = <unsigned int>response_bytes
        times_ms[at] = upstream_ms
    return packed_flows, packed_requests, packed_answers, packed_ms
