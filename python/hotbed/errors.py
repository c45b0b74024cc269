"""The exceptions of Hotbed.

Every exception is a `HotbedError`, and where Python has an exception for the same thing it is that, too::

    HotbedError
    ├── InvalidArgument (ValueError)       an option or a value that is not allowed
    │   └── ArrayError (TypeError)         an array of a wrong type, shape or place
    ├── OutOfRange (IndexError)            an id outside a bounded table
    ├── NotFound (LookupError)             no such table
    ├── AlreadyExists                      the name is taken, or the directory is in use
    ├── FailedPrecondition                 not now: fenced by another client of the session, another format
    │   ├── ClosedError                    the client is closed
    │   └── ForkedError                    the client belongs to the parent process
    ├── DeadlineExceeded (TimeoutError)    no answer in time
    ├── Unavailable (ConnectionError)      nobody answers
    ├── ResourceExhausted                  a limit of the cluster
    ├── Aborted                            the trainer group went on without this trainer
    ├── DataLoss                           damaged rows, refused
    └── PushError                          a push that some shards refused, or whose outcome is unknown

The attributes `table`, `value` and `limit` hold what the message names, as text, or None.
"""

from __future__ import annotations

import re
from typing import Any, Optional

__all__ = [
    'HotbedError', 'InvalidArgument', 'ArrayError', 'OutOfRange', 'NotFound', 'AlreadyExists', 'FailedPrecondition',
    'ClosedError', 'ForkedError', 'DeadlineExceeded', 'Unavailable', 'ResourceExhausted', 'Aborted', 'DataLoss', 'PushError',
]

_TABLE = re.compile(r'\btable "?([\w.@/-]+?)"?(?=[\s:,;]|$)')
_VALUE = re.compile(r'\b(?:is|id) ("[^"]*"|-?[\w.+-]+?)(?=[,;: ]|$)')
_LIMIT = re.compile(r"(?:allowed:? |the limit is |the table's )([^;]*)")


class HotbedError(Exception):
    """Base of all. `table`, `value`, `limit`: what the message names, or None."""

    def __init__(self, message: str, *, table: Optional[str] = None, value: Optional[str] = None,
                 limit: Optional[str] = None) -> None:
        super().__init__(message)
        self.table = table
        self.value = value
        self.limit = limit


class InvalidArgument(HotbedError, ValueError):
    """An option or a value that is not allowed. Nothing was sent."""


class ArrayError(InvalidArgument, TypeError):
    """An array of a wrong type, shape or place. Nothing was sent."""


class OutOfRange(HotbedError, IndexError):
    """An id outside the rows of a bounded table. Nothing was sent."""


class NotFound(HotbedError, LookupError):
    """There is no such table."""


class AlreadyExists(HotbedError):
    """The name is taken, or another process uses the directory."""


class FailedPrecondition(HotbedError, RuntimeError):
    """Not in this state: for example, a newer client of the same session has fenced this one."""


class ClosedError(FailedPrecondition):
    """The client is closed."""


class ForkedError(FailedPrecondition):
    """The client was made before this process was forked; its threads are in the parent."""


class DeadlineExceeded(HotbedError, TimeoutError):
    """The deadline passed; the message says what was still missing."""


class Unavailable(HotbedError, ConnectionError):
    """Nobody answers there."""


class ResourceExhausted(HotbedError):
    """A limit of the cluster is reached."""


class Aborted(HotbedError):
    """The trainer group has gone on without this trainer; join again."""


class DataLoss(HotbedError):
    """Rows or files are damaged, and not served."""


class PushError(HotbedError):
    """A push that was not applied everywhere. `result` has the outcome of each shard that did not apply it."""

    result: Any = None
    _call: Any = None

    def retry(self, deadline: Optional[float] = None) -> Any:
        """Continues a push whose outcome is "indeterminate"; it is never applied twice. Returns a PushResult."""
        from hotbed import _hotbed, futures  # both import this module

        return futures.Future(_hotbed.retry(self._call, deadline), futures.push_result).result()


_BY_CODE = {
    3: InvalidArgument, 4: DeadlineExceeded, 5: NotFound, 6: AlreadyExists, 8: ResourceExhausted, 9: FailedPrecondition,
    10: Aborted, 11: OutOfRange, 14: Unavailable, 15: DataLoss,
}


def _facts(message: str) -> dict[str, Optional[str]]:
    found = {'table': _TABLE.search(message), 'value': _VALUE.search(message), 'limit': _LIMIT.search(message)}
    return {name: match[1].strip('"') if match else None for name, match in found.items()}


def from_status(code: int, message: str) -> HotbedError:
    """The exception of a status of the C++ client."""
    return _BY_CODE.get(code, HotbedError)(message, **_facts(message))


def wrong_array(argument: str, was: str, allowed: str) -> ArrayError:
    """The exception of an argument that is no such array."""
    table = _TABLE.search(allowed)
    return ArrayError(f'{argument} is {was}; allowed: {allowed}', value=was, limit=allowed,
                      table=table[1] if table else None)
