"""Arrays of callers: what they are given back, and what the C++ client cannot read itself."""

from __future__ import annotations

import array
import sys
from typing import Any, Optional

from hotbed import errors


def is_torch(value: Any) -> bool:
    torch = sys.modules.get('torch')
    return torch is not None and isinstance(value, torch.Tensor)


def readable(value: Any, argument: str) -> Any:
    """`value` as an array in host memory, without a copy where it is one."""
    if is_torch(value):
        value = value.detach()
        return value.cpu() if value.is_cuda else value
    if isinstance(value, (list, tuple, range)):
        return _from_list(value, argument)
    if isinstance(value, int):
        return array.array('Q' if value >= 1 << 63 else 'q', [value])
    return value


def _from_list(values: Any, argument: str) -> Any:
    values = list(values)
    if values and isinstance(values[0], (list, tuple)):
        flat = [v for row in values for v in row]
        if len({len(row) for row in values}) != 1:
            raise errors.ArrayError(f'{argument} has rows of different lengths; allowed: rows of one length')
    else:
        flat = values
    if any(isinstance(v, float) for v in flat):
        return array.array('f', flat)
    try:
        return array.array('q', flat)
    except OverflowError:
        return array.array('Q', [v & 0xffffffffffffffff for v in flat])
    except TypeError:
        raise errors.ArrayError(f'{argument} is a list of {type(flat[0]).__name__}; allowed: integers (ids, keys; strings have to be hashed first) or floats') from None


def shape_of(value: Any) -> tuple[int, ...]:
    shape = getattr(value, 'shape', None)
    if shape is not None:
        return tuple(int(n) for n in shape)
    return (len(value),) if hasattr(value, '__len__') else ()


def new_rows(like: Any, shape: tuple[int, ...]) -> Any:
    """Memory for rows, float32: a torch tensor for torch ids, else numpy; without numpy, a memoryview."""
    if is_torch(like):
        torch = sys.modules['torch']
        return torch.empty(shape, dtype=torch.float32, pin_memory=like.is_cuda)
    try:
        import numpy
    except ImportError:
        count = 1
        for length in shape:
            count *= length
        rows = memoryview(array.array('f', bytes(4 * count)))
        return rows.cast('B').cast('f', shape) if 0 not in shape else rows
    return numpy.empty(shape, dtype=numpy.float32)


def given_back(rows: Any, like: Any, out: Optional[Any]) -> Any:
    """`rows` where the caller wants them: in `out`, or on the device of the ids."""
    if out is not None:
        if out is not rows:
            out.copy_(rows, non_blocking=True)
        return out
    if is_torch(like) and like.is_cuda:
        return rows.to(like.device, non_blocking=True)
    return rows


def host_output(out: Any) -> Any:
    """Memory in which the rows for `out` can be written by the host."""
    if is_torch(out) and out.is_cuda:
        torch = sys.modules['torch']
        return torch.empty(out.shape, dtype=out.dtype, pin_memory=True)
    return out


def nearest_pairs(counts: Any, ids: bytes, scores: bytes) -> list[tuple[Any, Any]]:
    """(ids, scores) of each vector, out of the rows of all."""
    import numpy as np

    edges = np.cumsum(counts)[:-1]
    return list(zip(np.split(np.frombuffer(ids, np.uint64), edges), np.split(np.frombuffer(scores, np.float64), edges)))
