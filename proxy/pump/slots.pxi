# Slots of the session's own Python objects, read and written where they lie.
#
# A class with __slots__ keeps each value at a fixed offset, which its descriptor tells (a member of type
# T_OBJECT_EX). So the pump and the Python code work on one and the same state, and either may have the next
# frame. An object is looked into only when its type has been compared. An empty slot reads as None: whatever
# is not of the type that is expected is left to the Python code.

from cpython.object cimport PyObject, Py_TYPE, PyTypeObject, PyObject_TypeCheck
from cpython.ref cimport Py_INCREF, Py_XDECREF

cdef extern from "Python.h":
    bint PyLong_CheckExact(object value)
    long PyLong_AsLongAndOverflow(object value, int *overflow)
    bint PyFloat_CheckExact(object value)
    double PyFloat_AS_DOUBLE(object value)
    bint PyByteArray_CheckExact(object value)
    char *PyByteArray_AS_STRING(object value)
    Py_ssize_t PyByteArray_GET_SIZE(object value)
    bint PyBytes_CheckExact(object value)
    char *PyBytes_AS_STRING(object value)
    Py_ssize_t PyBytes_GET_SIZE(object value)
    bint PyTuple_CheckExact(object value)
    Py_ssize_t PyTuple_GET_SIZE(object value)
    bint PyList_CheckExact(object value)

cdef extern from *:
    """
    #include <structmember.h>
    #include <string.h>

    static Py_ssize_t sluice_slot_offset(PyObject *descriptor) {
        PyMemberDef *member;
        if (!PyObject_TypeCheck(descriptor, &PyMemberDescr_Type)) return -1;
        member = ((PyMemberDescrObject *)descriptor)->d_member;
        if (member->type != T_OBJECT_EX || (member->flags & READONLY)) return -1;
        return member->offset;
    }
    static PyCFunction sluice_method(PyObject *descriptor, int flags) {
        PyMethodDef *method;
        if (!PyObject_TypeCheck(descriptor, &PyMethodDescr_Type)) return NULL;
        method = ((PyMethodDescrObject *)descriptor)->d_method;
        return method->ml_flags == flags ? method->ml_meth : NULL;
    }
    """
    Py_ssize_t sluice_slot_offset(object descriptor)
    ctypedef object (*PyCFunction)(object, PyObject *)
    PyCFunction sluice_method(object descriptor, int flags)
    const int METH_NOARGS
    int memcmp(const void *one, const void *other, size_t count) nogil

cdef enum:
    NO_INT = -0x4000000000000000  # nothing that is counted here has this value


cdef Py_ssize_t offset_of(object owner, str name) except -1:
    """Where the slot lies in objects of this class, and of those below it."""
    cdef Py_ssize_t found = sluice_slot_offset(getattr(owner, name))
    if found < <Py_ssize_t>sizeof(PyObject):
        raise ImportError(f"{owner.__name__}.{name} is no slot")
    return found


cdef PyCFunction method_of(object owner, str name, int flags) except NULL:
    """The C function of a built-in type's method."""
    cdef PyCFunction found = sluice_method(getattr(owner, name), flags)
    if found is NULL:
        raise ImportError(f"{owner.__name__}.{name} is called in another way")
    return found


cdef inline object slot(object owner, Py_ssize_t offset):
    """The value there; None if there is none."""
    cdef PyObject *value = (<PyObject **>(<char *>(<PyObject *>owner) + offset))[0]
    return None if value is NULL else <object>value


cdef inline int put(object owner, Py_ssize_t offset, object value) except -1:
    """Another value there."""
    cdef PyObject **place = <PyObject **>(<char *>(<PyObject *>owner) + offset)
    cdef PyObject *old = place[0]
    Py_INCREF(value)
    place[0] = <PyObject *>value
    Py_XDECREF(old)
    return 0


cdef inline bint is_a(object value, object cls) noexcept:
    """Of this very class."""
    return Py_TYPE(value) is <PyTypeObject *>cls


cdef inline bint is_of(object value, object base, PyTypeObject **known) except -1:
    """Of this class or one below it; `known`: that of the last one, mostly of all, which is kept. Looking
    through a class's bases takes several lines of the cache."""
    if Py_TYPE(value) is known[0]:
        return True
    if not PyObject_TypeCheck(value, <PyTypeObject *>base):
        return False
    Py_INCREF(<object>Py_TYPE(value))
    Py_XDECREF(<PyObject *>known[0])
    known[0] = Py_TYPE(value)
    return True


cdef inline long whole(object value) noexcept:
    """An int's value; NO_INT if it is none, or a large one."""
    cdef int overflow = 0
    cdef long found
    if not PyLong_CheckExact(value):
        return NO_INT
    found = PyLong_AsLongAndOverflow(value, &overflow)
    return NO_INT if overflow else found


cdef inline bint is_same(object one, object other) except -1:
    """Equal; mostly it is the same object."""
    return one is other or one == other


cdef inline bint read_float(object value, double *found) noexcept:
    """False: it is no float."""
    if not PyFloat_CheckExact(value):
        return False
    found[0] = PyFloat_AS_DOUBLE(value)
    return True


# Big-endian numbers. Who calls has made sure that they lie within the frame.

cdef inline int int16_at(const unsigned char *at) noexcept:
    return <short>(at[0] << 8 | at[1])


cdef inline long int32_at(const unsigned char *at) noexcept:
    return <int>(<unsigned int>at[0] << 24 | at[1] << 16 | at[2] << 8 | at[3])


cdef inline long long int64_at(const unsigned char *at) noexcept:
    return <long long>(<unsigned long long><unsigned int>int32_at(at) << 32 | <unsigned int>int32_at(at + 4))
