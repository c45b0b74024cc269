"""The W3C trace context that calls belong to.

A server that takes long over a call names the trace in its log (docs/operations.md, Slow requests), and so does the error
of a call that fails.
"""

from __future__ import annotations

import contextlib
from contextvars import ContextVar
from typing import Iterator, Optional

from hotbed import _hotbed

_current: ContextVar[Optional[str]] = ContextVar('hotbed.trace', default=None)

#: The traceparent of the innermost block, or None.
current = _current.get


@contextlib.contextmanager
def trace(traceparent: str) -> Iterator[None]:
    """Pulls, pushes and lookups that begin in the block, in this thread or task, carry `traceparent` to the servers.

    Raises:
        InvalidArgument: not a traceparent.
    """
    _hotbed.check_traceparent(traceparent)
    token = _current.set(traceparent)
    try:
        yield
    finally:
        _current.reset(token)
