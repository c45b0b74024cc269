"""Vocabularies: whole numbers for keys, given when a key is first looked up.

    words = client.create_vocabulary('words', 1_000_000)
    numbers = words(keys)                    # numpy, of the shape of `keys`: 1, 2, ... in the order of first sight; 0 when full
    rows = table.pull(numbers)               # a bounded table of 1_000_001 rows, say

The numbers are contiguous, exact over kills, moves and restarts, and the same for all clients; how often each key was looked
up is counted. Key -1 stands for no key: its number is 0. The semantics are those of the IntegerLookup of NVIDIA's
distributed_embeddings. docs/tables.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Optional

from hotbed import _arrays, _hotbed, changes, errors

if TYPE_CHECKING:
    from hotbed.client import Table

_DIGIT = 1 << 24  # common/tables/vocabulary_row.h
_NO_KEY = 2**64 - 1


class Vocabulary:
    """A vocabulary of a client. Thread-safe; its look-ups come one after another."""

    def __init__(self, table: Table, *, deadline: Optional[float] = None) -> None:
        """`table`: one with the option `vocabulary` (`Client.create_vocabulary`, `Client.vocabulary`)."""
        self._handle = _hotbed.vocabulary(table._handle, deadline)
        #: the table whose rows it is
        self.table = table

    def __call__(self, keys: Any) -> Any:
        """The numbers of `keys`, integers of any shape: a numpy array of int64 of that shape.

        Keys that have none get the next ones, in the order of their first appearance; when all are given, 0. Each occurrence
        is counted, exactly once. Up to 65,536 different keys take one round trip.

        Raises:
            DeadlineExceeded: keys may have got numbers, and may be counted or not.
        """
        import numpy as np
        found = np.frombuffer(_hotbed.vocabulary_lookup(self._handle, _arrays.readable(keys, 'keys')), np.uint32)
        return found.astype(np.int64).reshape(_arrays.shape_of(keys))

    lookup = __call__

    def find(self, keys: Any, *, deadline: Optional[float] = None) -> Any:
        """The numbers of `keys` as they are, 0 where there is none: gives and counts nothing."""
        return _whole(self.table.pull(keys, deadline=deadline)[..., :2])

    def counts(self, keys: Any, *, deadline: Optional[float] = None) -> Any:
        """How often each key was looked up."""
        return _whole(self.table.pull(keys, deadline=deadline)[..., 2:])

    @property
    def size(self) -> int:
        """How many numbers are given: 1 to this one."""
        return _hotbed.vocabulary_size(self._handle)[0]

    @property
    def max(self) -> int:
        """The largest number that may be given."""
        return _hotbed.vocabulary_size(self._handle)[1]

    def __len__(self) -> int:
        return self.size

    def frequencies(self) -> tuple[Any, Any]:
        """All keys and how often each was looked up: two numpy arrays, in which the key of number n is element n.

        Element 0 is no key (2**64 - 1), with the number of look-ups that found the vocabulary full. Lists the whole table, as of
        one moment.
        """
        import numpy as np
        target = self.table.client._target
        if target is None:
            raise errors.FailedPrecondition('frequencies: the local engine lists no rows; allowed: clients of hotbed.connect')
        found_keys, found_numbers, found_counts = [], [], []
        for part in changes.scan(target, self.table.name):
            rows = np.asarray(part.rows)
            found_keys.append(np.asarray(part.ids, np.uint64))
            found_numbers.append(_whole(rows[:, :2]))
            found_counts.append(_whole(rows[:, 2:]))
        if not found_keys:
            return np.full(1, _NO_KEY, np.uint64), np.zeros(1, np.int64)
        keys, numbers, counts = (np.concatenate(found) for found in (found_keys, found_numbers, found_counts))
        numbers = np.where(keys == np.uint64(_NO_KEY), 0, numbers)
        of_number = np.full(int(numbers.max()) + 1, _NO_KEY, np.uint64)
        times = np.zeros(len(of_number), np.int64)
        of_number[numbers] = keys
        times[numbers] = counts
        return of_number, times


def _whole(digits: Any) -> Any:
    import numpy as np
    digits = np.asarray(digits).astype(np.int64)
    return digits[..., 0] + _DIGIT * digits[..., 1]
