"""Under uvloop the pump sleeps in the loop's place, in its own epoll, and keeps nobody from his turn."""

from __future__ import annotations

import asyncio
import faulthandler
import gc
import signal
import socket
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from struct import Struct
from threading import Event, Thread, get_ident
from typing import Any, BinaryIO

import pytest
import uvloop

from sluice.proxy.pump.choice import PUMP
from testkit.frames.frames import produce_of
from testkit.frames.wire import WITHIN_S
from testkit.peers.fault_broker import Request, answer_to
from testkit.processes.ports import LOOPBACK
from testkit.proxy.data_paths import current, over
from testkit.proxy.local_proxy import LocalProxy
from testkit.proxy.playbook import limits_of

HEAD = Struct(">4xhhi")


@pytest.fixture(autouse=True)
def over_pump() -> Iterator[None]:
    with over(PUMP):
        yield


def frame_of(stream: BinaryIO) -> bytes:
    """The next one; empty at the end."""
    size = stream.read(4)
    return size + stream.read(int.from_bytes(size, "big"))


@contextmanager
def broker_in_a_thread() -> Iterator[int]:
    """Yields its port. It answers one client, not in the loop of the proxy, which may wait for it."""
    with socket.create_server((LOOPBACK, 0)) as server:

        def serve() -> None:
            with suppress(OSError):
                sock, _ = server.accept()
                with sock, sock.makefile("rb") as stream:
                    while frame := frame_of(stream):
                        sock.sendall(answer_to(Request(frame, *HEAD.unpack_from(frame))))

        thread = Thread(target=serve)
        thread.start()
        yield server.getsockname()[1]
    thread.join(WITHIN_S)


def ask(port: int, enough: Event, at_most: int) -> int:
    """One Produce behind another's answer. Returns how many were answered."""
    with socket.create_connection((LOOPBACK, port)) as sock, sock.makefile("rb") as stream:
        for number in range(at_most):
            if enough.is_set():
                return number
            sock.sendall(produce_of(300, correlation_id=number))
            assert frame_of(stream)[4:8] == number.to_bytes(4, "big")
    return at_most


@pytest.mark.asyncio
async def test_timers_and_other_calls_go_on_beside_traffic_that_never_pauses() -> None:
    loop, enough = asyncio.get_running_loop(), Event()
    with broker_in_a_thread() as port:
        async with LocalProxy(port, limits_of(10**9)) as proxy:
            asking = loop.run_in_executor(None, ask, proxy.listener.port, enough, 1_000_000)
            async with asyncio.timeout(WITHIN_S):
                for _ in range(100):
                    await asyncio.sleep(0.001)
                    await loop.run_in_executor(None, int)
            poller: Any = proxy._worker.poller
            assert poller._sleep is not None
            enough.set()
            assert await asking > 0


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    with ours, theirs:
        yield ours, theirs


Pair = tuple[socket.socket, socket.socket]


def poller_of(loop: asyncio.AbstractEventLoop) -> Any:
    """The pump's, of which Python's types know only the base."""
    return current().poller(loop)


@pytest.mark.asyncio
async def test_a_socket_is_served_while_the_loop_has_always_something_to_do(pair: Pair) -> None:
    loop, told = asyncio.get_running_loop(), asyncio.Event()
    poller = poller_of(loop)

    def ask_again() -> None:
        if not told.is_set():
            loop.call_soon(ask_again)

    ask_again()
    poller.add_reader(pair[0].fileno(), told.set)
    pair[1].send(b"abc")
    await asyncio.wait_for(told.wait(), WITHIN_S)
    poller.close()


@pytest.mark.asyncio
async def test_the_loops_own_sockets_are_heard_while_it_sleeps_there(pair: Pair) -> None:
    loop, told = asyncio.get_running_loop(), asyncio.Event()
    poller = poller_of(loop)
    poller.add_reader(pair[1].fileno(), int)
    loop.add_reader(pair[0].fileno(), told.set)
    sender = Thread(target=pair[1].send, args=(b"a",))
    sender.start()
    await asyncio.wait_for(told.wait(), WITHIN_S)
    sender.join()
    loop.remove_reader(pair[0].fileno())
    poller.close()


@pytest.mark.asyncio
async def test_it_does_sleep(pair: Pair) -> None:
    """With sockets and a loop that have nothing, and after bytes that were read."""
    poller = poller_of(asyncio.get_running_loop())
    poller.add_reader(pair[0].fileno(), lambda: pair[0].recv(9))
    pair[1].send(b"abc")
    await asyncio.sleep(0.01)
    begun_s = time.process_time()
    await asyncio.sleep(0.5)
    assert time.process_time() - begun_s < 0.25
    poller.close()


@pytest.mark.asyncio
async def test_a_signal_that_python_does_not_see_leaves_it_asleep_there(pair: Pair, tmp_path: Path) -> None:
    """As of SIGSTOP and SIGCONT, a debugger or a frozen cgroup: the wait ends without an event."""
    loop, told = asyncio.get_running_loop(), Event()
    poller = poller_of(loop)
    poller.add_reader(pair[0].fileno(), told.set)

    def is_told(loops: int) -> bool:
        for _ in range(20):
            time.sleep(0.01)
            signal.pthread_kill(loops, signal.SIGUSR2)
        pair[1].send(b"a")
        return told.wait(WITHIN_S)

    with (tmp_path / "stacks").open("w") as stacks:
        faulthandler.register(signal.SIGUSR2, file=stacks)  # in C: nothing wakes the loop
        try:
            assert await loop.run_in_executor(None, is_told, get_ident())
        finally:
            faulthandler.unregister(signal.SIGUSR2)
    poller.close()


@pytest.mark.asyncio
async def test_a_call_takes_away_what_the_loop_would_have_heard(pair: Pair) -> None:
    """The loop was to wake for it, and finds nothing: it does not sleep where the sockets are not heard."""
    loop, told = asyncio.get_running_loop(), Event()
    poller, (loops, to_loops) = poller_of(loop), socket.socketpair()
    heard: list[bytes] = []

    def take_away() -> None:
        heard.append(pair[0].recv(1))
        if heard == [b"1"]:
            loops.recv(1)
        else:
            told.set()

    def is_told() -> bool:
        time.sleep(0.1)  # by now the loop sleeps
        pair[1].send(b"2")
        return told.wait(WITHIN_S)

    with loops, to_loops:
        poller.add_reader(pair[0].fileno(), take_away)
        loop.add_reader(loops.fileno(), loops.recv, 1)
        pair[1].send(b"1")
        to_loops.send(b"1")
        assert await loop.run_in_executor(None, is_told)
        loop.remove_reader(loops.fileno())
    poller.close()


@pytest.mark.asyncio
async def test_what_a_call_writes_by_the_loops_own_transport_goes_out_at_once(pair: Pair) -> None:
    """uvloop sends it in a later part of its round."""
    loop = asyncio.get_running_loop()
    poller, (loops, to_loops) = poller_of(loop), socket.socketpair()
    loops.setblocking(False)
    _, writer = await asyncio.open_connection(sock=loops)

    def is_told() -> bool:
        time.sleep(0.1)  # by now the loop sleeps
        pair[1].send(b"1")
        to_loops.settimeout(WITHIN_S)
        return to_loops.recv(9) == b"abc"

    def ask() -> None:
        pair[0].recv(1)
        writer.write(b"abc")

    with to_loops:
        poller.add_reader(pair[0].fileno(), ask)
        assert await loop.run_in_executor(None, is_told)
    poller.close()
    writer.close()


@pytest.mark.asyncio
async def test_the_loop_sleeps_by_itself_again_behind_its_end(pair: Pair) -> None:
    loop, told = asyncio.get_running_loop(), asyncio.Event()
    for _ in range(3):
        poller = poller_of(loop)
        poller.add_reader(pair[0].fileno(), told.set)
        await asyncio.sleep(0.001)
        poller.close()
        poller.close()
        pair[1].send(b"a")
        await asyncio.sleep(0.001)
        assert not told.is_set()
        await loop.run_in_executor(None, int)
        pair[0].recv(9)


@pytest.mark.asyncio
async def test_a_reader_may_end_it(pair: Pair) -> None:
    poller = poller_of(asyncio.get_running_loop())
    poller.add_reader(pair[0].fileno(), poller.close)
    pair[1].send(b"abc")
    await asyncio.sleep(0.01)
    assert poller._epoll.closed


async def wait_beside(pair: Pair, call: Callable[[], None]) -> None:
    """For a reader's call that is due at once."""
    poller = poller_of(asyncio.get_running_loop())
    try:
        poller.add_reader(pair[0].fileno(), call)
        pair[1].send(b"abc")
        await asyncio.sleep(WITHIN_S)
    finally:
        poller.close()


def test_what_ends_the_loop_in_a_reader_ends_it(pair: Pair) -> None:
    """As in a call of the loop's own."""
    loop = uvloop.new_event_loop()

    def interrupted() -> None:
        pair[0].recv(9)
        raise KeyboardInterrupt

    task = loop.create_task(wait_beside(pair, interrupted))
    with pytest.raises(KeyboardInterrupt):
        loop.run_until_complete(task)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        loop.run_until_complete(task)
    loop.close()


@pytest.mark.parametrize("ends", [KeyboardInterrupt, SystemExit])
def test_a_reader_that_would_end_it_each_time_ends_it_once(pair: Pair, ends: type[BaseException]) -> None:
    """Without having read: it is called again and again, and the loop ends all the same."""
    calls: list[int] = []

    def end() -> None:
        calls.append(1)
        raise ends

    with pytest.raises(ends):
        uvloop.run(wait_beside(pair, end))
    assert 1 <= len(calls) <= 3


def test_a_loop_may_end_before_it(pair: Pair) -> None:
    loop = uvloop.new_event_loop()
    errors: list[object] = []
    loop.set_exception_handler(lambda _, context: errors.append(context.get("exception")))
    poller, calls = poller_of(loop), list[int]()
    poller.add_reader(pair[0].fileno(), lambda: calls.append(1))
    loop.run_until_complete(asyncio.sleep(0))
    pair[1].send(b"abc")
    loop.close()
    poller.close()
    assert not calls
    assert set(errors) <= {None}  # uvloop tells of handles that are not its own
    left = weakref.ref(loop)
    del loop, poller
    gc.collect()
    assert left() is None


@pytest.mark.asyncio
async def test_a_reader_may_end_it_at_its_sockets_end(pair: Pair) -> None:
    loop, errors = asyncio.get_running_loop(), list[object]()
    loop.set_exception_handler(lambda _, context: errors.append(context))
    poller = poller_of(loop)
    poller.add_reader(pair[0].fileno(), poller.close)
    pair[1].close()
    await asyncio.sleep(0.01)
    assert poller._epoll.closed
    assert not errors


def test_another_loop_is_asked_as_in_python(pair: Pair) -> None:

    async def serve() -> None:
        told = asyncio.Event()
        poller = poller_of(asyncio.get_running_loop())
        poller.add_reader(pair[0].fileno(), told.set)
        assert poller._sleep is None
        pair[1].send(b"abc")
        await asyncio.wait_for(told.wait(), WITHIN_S)
        poller.close()

    with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
        runner.run(serve())


@pytest.mark.asyncio
async def test_of_two_on_one_loop_both_are_served(pair: Pair) -> None:
    """One of them sleeps in the loop's place, and then the next may."""
    loop, told = asyncio.get_running_loop(), asyncio.Event()
    first, second = poller_of(loop), poller_of(loop)
    first.add_reader(pair[1].fileno(), int)
    second.add_reader(pair[0].fileno(), told.set)
    assert first._sleep is not None
    assert second._sleep is None
    pair[1].send(b"a")
    await asyncio.wait_for(told.wait(), WITHIN_S)
    second.close()
    first.close()
    third = poller_of(loop)
    third.add_reader(pair[0].fileno(), int)
    assert third._sleep is not None
    third.close()


@pytest.mark.asyncio
async def test_one_without_a_socket_asks_nothing_of_the_loop() -> None:
    """A start that fails ends without it: the loop would not be closed with it open."""
    poller = poller_of(asyncio.get_running_loop())
    assert not poller._is_attached
