"""Calls that may be under way."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Any, Callable, Generator, Generic, Optional, TypeVar

from hotbed import _hotbed, errors

__all__ = ['Future', 'PushResult', 'ShardResult']

T = TypeVar('T')


class Future(Generic[T]):
    """The result of a call, which is there later. Thread-safe.

    Arrays that were given to the call belong to it until it is done, also when this object is dropped.
    """

    def __init__(self, call: Any, take: Callable[[Any], T]) -> None:
        self._call = call
        self._take = take
        self._callbacks: Optional[list[Callable[[], object]]] = None

    def done(self) -> bool:
        """Whether `result` returns at once."""
        return _hotbed.is_done(self._call)

    def result(self, timeout: Optional[float] = None) -> T:
        """The result, or its exception. Waits at most `timeout` seconds (None: the call's deadline), then raises
        `DeadlineExceeded`; the call goes on. Other threads run meanwhile, and Ctrl-C ends the wait."""
        if not _hotbed.wait(self._call, timeout):
            raise errors.DeadlineExceeded(f'the result is not there after {timeout} s; the call goes on', value=str(timeout))
        return self._take(self._call)

    def add_done_callback(self, callback: Callable[[Future[T]], object]) -> None:
        """Calls `callback(self)` once the call is done, from any thread. It must not block."""
        self._when_done(lambda: callback(self))

    def _when_done(self, callback: Callable[[], object]) -> None:
        if self._callbacks is not None:
            if not self.done():
                self._callbacks.append(callback)
            else:
                callback()
            return
        self._callbacks = [callback]

        def run() -> None:
            for one in self._callbacks or ():
                one()

        _hotbed.when_done(self._call, run)

    def __await__(self) -> Generator[Any, None, T]:
        if not self.done():
            loop = asyncio.get_running_loop()
            waiter: asyncio.Future[None] = loop.create_future()

            def wake() -> None:
                loop.call_soon_threadsafe(lambda: None if waiter.done() else waiter.set_result(None))

            self._when_done(wake)
            yield from waiter
        return self.result(0)


@dataclasses.dataclass(frozen=True)
class ShardResult:
    """A shard that did not apply a push."""

    table: str
    shard: int
    error: errors.HotbedError


@dataclasses.dataclass(frozen=True)
class PushResult:
    """The outcome of a push. A step is atomic per shard, not across shards."""

    step: int
    #: "applied", "failed" (some shards refused for good) or "indeterminate" (the push may still be applied; `retry`)
    outcome: str
    #: rows of synchronous tables, which `end_step` applies
    staged: bool
    shards: tuple[ShardResult, ...]


_OUTCOMES = ('applied', 'failed', 'indeterminate')


def push_result(call: Any) -> PushResult:
    """The result of a push, or its exception."""
    outcome, (code, message), step, _, staged, shards = _hotbed.result(call)
    result = PushResult(step, _OUTCOMES[outcome], staged, tuple(
        ShardResult(table, index, errors.from_status(*status)) for table, index, status in shards))
    if code == 0:
        return result
    error = errors.from_status(code, message)
    if not shards and outcome == 1:
        raise error
    raised = errors.PushError(message, table=error.table, value=error.value, limit=error.limit)
    raised.result = result
    raised._call = call
    raised.__cause__ = error
    raise raised
