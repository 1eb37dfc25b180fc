"""The pump: the hot functions of session and connection, compiled (Cython), for most of the traffic.

A Produce that goes on at once, like the last ones; its answer, of which nothing is to be patched; the read
and the send around them, of plain sockets and of TLS; and what is counted of both. Whatever else a frame is,
the Python functions get it whole: the pump calls the very methods whose place it takes (`core.pyx`, which
includes the other files). It keeps nothing of its own, but works on the slots of the session's objects, so
that there is one state, and either may have the next frame. Under uvloop it also sleeps in the loop's place
(`waiting.pxi`).

It is there where a C compiler and Python's headers were when Sluice was built (hatch_build.py).
"""
