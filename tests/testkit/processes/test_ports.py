"""Ports that are told before their servers listen: nobody else is told the same meanwhile."""

from __future__ import annotations

import multiprocessing
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from testkit.processes.ports import (
    BLOCK_SIZE,
    LOOPBACK,
    free_port,
    free_port_range,
    free_ports,
    give_back,
    keep,
)

MANY = 100


@contextmanager
def a_fork(told: Callable[[], object]) -> Iterator[object]:
    """What a fork of this process finds; it lives until the end of the `with` block."""
    here, there = multiprocessing.Pipe()

    def tell() -> None:
        there.send(told())
        there.recv()

    process = multiprocessing.get_context("fork").Process(target=tell)
    process.start()
    try:
        yield here.recv()
    finally:
        here.send("end")
        process.join()


def test_no_port_is_told_twice_in_a_row_of_many() -> None:
    told = [free_port() for _ in range(MANY)] + free_ports(MANY)
    assert len(set(told)) == 2 * MANY


def test_what_was_told_lately_is_not_told_again_when_the_block_begins_anew() -> None:
    told = [free_port() for _ in range(3 * BLOCK_SIZE)]
    for at in range(len(told) - MANY):
        assert len(set(told[at : at + MANY])) == MANY


def test_what_is_kept_is_not_told_again_until_it_is_given_back() -> None:
    kept = free_ports(3)
    keep(kept)
    try:
        assert not set(kept) & {free_port() for _ in range(3 * BLOCK_SIZE)}
    finally:
        give_back(kept)
    assert set(kept) <= {free_port() for _ in range(3 * BLOCK_SIZE)}


def test_neither_a_fork_nor_another_process_is_told_the_same() -> None:
    here = set(free_ports(MANY))
    code = f"from testkit.processes.ports import free_ports; print(*free_ports({MANY}))"
    with a_fork(lambda: free_ports(MANY)) as forked:
        assert isinstance(forked, list)
        started = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    there = {int(port) for port in started.stdout.split()}
    assert len(here | set(forked) | there) == 3 * MANY


def test_ports_in_a_row_are_free_and_one_that_is_listened_on_is_never_told() -> None:
    first = free_port_range(20)
    with socket.socket() as taken:
        taken.bind((LOOPBACK, first + 7))
        taken.listen()
        starts = [free_port_range(20) for _ in range(2 * BLOCK_SIZE // 20)]
        told = {port for start in starts for port in range(start, start + 20)}
    assert first + 7 not in told
    assert len(told) > BLOCK_SIZE // 2, "the rest of the block is told"
