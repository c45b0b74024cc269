"""Tables that are listed and followed: docs/changes.md."""

from __future__ import annotations

import dataclasses
from typing import Any, Iterator, Optional, Sequence

from hotbed import _hotbed

__all__ = ['Changes', 'Stream', 'follow', 'scan']

_ALL = 2**64 - 1


@dataclasses.dataclass(frozen=True)
class Changes:
    """Rows of one shard. `ids`: uint64; `rows`: float32, ids x columns, or None."""

    shard: int
    first: int  # the shard's range: ids, or buckets of a hashed table
    limit: int
    columns: range
    again: bool  # all rows of the range come again: forget those that were told
    lsn: int  # the changes of the shard are told up to here; of a scan: the rows are as of it
    ids: Any
    rows: Any
    deleted: Any  # ids of rows that do not exist any more, uint64
    statistics: Optional[dict[str, Any]] = None  # of a scan with statistics: arrays, as Table.touches has them


class Stream:
    """The changes of a table; made by `follow`. Used by one thread at a time."""

    def __init__(self, stream: Any, with_rows: bool, with_statistics: bool = False) -> None:
        self._stream = stream
        self._with_statistics = with_statistics
        self._with_rows = with_rows

    def next(self, timeout: float = 1.0) -> Optional[Changes]:
        """The next changes; None if there were none within `timeout` seconds."""
        import numpy as np

        found = _hotbed.next_changes(self._stream, timeout)
        if found is None:
            return None
        shard, first, limit, column_first, column_limit, again, lsn, ids, rows, gone, seen = found
        columns = range(column_first, column_limit)
        numbers = np.frombuffer(ids, np.uint64) if ids else np.empty(0, np.uint64)
        values = np.frombuffer(rows, np.float32) if rows else np.empty(0, np.float32)
        matrix = values.reshape(len(numbers), len(columns)) if self._with_rows else None
        deleted = np.frombuffer(gone, np.uint64) if gone else np.empty(0, np.uint64)
        statistics = None
        if self._with_statistics:
            words = np.frombuffer(seen, np.uint64) if seen else np.empty(0, np.uint64)
            kind, count, time, step = words.reshape(len(numbers), 4).T
            statistics = {'exists': kind == 1, 'candidate': kind == 2, 'count': count, 'time': time, 'step': step}
        return Changes(shard, first, limit, columns, again, lsn, numbers, matrix, deleted, statistics)

    @property
    def positions(self) -> tuple[tuple[int, ...], ...]:
        """How far the stream was read, for `follow(..., positions=...)`. Keep it together with the rows."""
        return _hotbed.change_positions(self._stream)

    @property
    def ended(self) -> bool:
        return _hotbed.has_ended(self._stream)


def follow(target: str, table: str, *, positions: Sequence[Sequence[int]] = ()) -> Stream:
    """All rows of a table that were ever pushed, and then every change, as values.

    Args:
        target: "hotbed://HOST:PORT" of the coordinator.
        table: its name.
        positions: those of an earlier stream, which goes on from there.
    """
    kept = tuple(tuple(position) for position in positions)
    return Stream(_hotbed.follow(target, table, kept, False, True, False, 0, _ALL), True)


def scan(target: str, table: str, *, with_rows: bool = True, with_statistics: bool = False, first_id: int = 0,
         last_id: int = _ALL) -> Iterator[Changes]:
    """The rows of a table that were ever pushed, each shard as of one LSN.

    Args:
        target: "hotbed://HOST:PORT" of the coordinator.
        table: its name.
        with_rows: with weights, or else ids alone.
        with_statistics: with the touches of each row, and with candidates for admission beside the rows. InvalidArgument:
            the table keeps no touches.
        first_id, last_id: rows of other ids are left out.
    """
    asked = _hotbed.follow(target, table, (), True, with_rows, with_statistics, first_id, last_id)
    stream = Stream(asked, with_rows, with_statistics)
    while not stream.ended:
        found = stream.next()
        if found is not None and len(found.ids) > 0:
            yield found
