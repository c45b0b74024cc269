"""Tables of other systems as tables of Hotbed: PyTorch and TorchRec state dictionaries, FBGEMM, HugeCTR, Parquet.

The readers give arrays, and `import_arrays` makes a table of them:

    from hotbed import formats

    weights = formats.tables_of_state_dicts([torch.load(f'rank{r}.pt') for r in range(8)])
    for name, rows in weights.items():
        formats.import_arrays(client, name, rows, directory='/shared/incoming', optimizer=hotbed.optim.SGD(lr=0.1))

    ids, rows = formats.read_hugectr('wdl_0_sparse_2000.model', dim=16)
    formats.import_arrays(client, 'wdl', rows, ids=ids, directory='/shared/incoming')

docs/arrays.md has the layouts. What does not fit is refused before anything is written.
"""

from __future__ import annotations

import os
import re
import tempfile
from typing import Any, Iterable, Iterator, Mapping, Optional, Sequence, Union

import numpy as np

from hotbed import errors, optim
from hotbed.arrays import import_table
from hotbed.client import Client

__all__ = ['import_arrays', 'read_hugectr', 'read_parquet', 'tables_of_state_dicts']

Path = Union[str, os.PathLike[str]]

_ROWS_AT_ONCE = 1 << 16
_TABLE_KEY = re.compile(r'(?:^|\.)(?:embedding_bags|embeddings)\.(.+)\.weight$')
# FBGEMM's EmbeddingLocation, and the buffer that has the weights of such a table.
_FBGEMM_BUFFERS = {0: 'weights_dev', 1: 'weights_uvm', 2: 'weights_uvm', 3: 'weights_host'}


def _refused(what: str, why: str) -> errors.InvalidArgument:
    return errors.InvalidArgument(f'{what}: {why}', value=what)


def _array(name: str, value: Any) -> Any:
    """A tensor or an array as a NumPy array; bf16 becomes fp32."""
    if hasattr(value, 'detach'):
        value = value.detach().cpu()
        value = (value.float() if str(value.dtype) == 'torch.bfloat16' else value).numpy()
    if not isinstance(value, np.ndarray):
        raise _refused(name, f'it is a {type(value).__name__}; allowed: arrays and tensors')
    return value


def _check_weights(name: str, weights: Any) -> None:
    if weights.ndim != 2 or weights.shape[1] == 0:
        raise _refused(name, f'its shape is {weights.shape}; allowed: rows x dim')
    if weights.dtype.kind != 'f' or weights.dtype.itemsize not in (2, 4):
        raise _refused(name, f'its elements are {weights.dtype}; allowed: float32 and float16')
    if weights.dtype.byteorder == '>':
        raise _refused(name, "it is big-endian; convert it with astype(weights.dtype.newbyteorder('<'))")
    if not weights.flags.c_contiguous:
        raise _refused(name, 'its rows are not contiguous (Fortran order); copy it with numpy.ascontiguousarray')


def _check_finite(name: str, weights: Any) -> None:
    for first in range(0, len(weights), _ROWS_AT_ONCE):
        bad = np.argwhere(~np.isfinite(weights[first:first + _ROWS_AT_ONCE]))
        if len(bad):
            row, column = bad[0]
            raise _refused(name, f"row {first + row}, column {column} is {weights[first + row, column]}; allowed: finite weights, "
                                 "unless the table's nan policy is allow")


def _check_ids(name: str, ids: Any, rows: int) -> Any:
    ids = np.ascontiguousarray(ids)
    if ids.dtype.kind not in 'iu' or ids.dtype.byteorder == '>' or ids.shape != (rows,):
        raise _refused(name, f'its ids are {ids.shape} of {ids.dtype}; allowed: {rows} integers, one per row')
    ids = ids.astype(np.int64).view(np.uint64) if ids.dtype.kind == 'i' else ids.astype(np.uint64)
    found, counts = np.unique(ids, return_counts=True)
    if len(found) != rows:
        raise _refused(name, f'id {found[counts > 1][0]} occurs twice')
    return ids


def import_arrays(target: Union[str, Client], table: str, weights: Any, *, directory: Path, ids: Any = None,
                  optimizer: Optional[optim.Optimizer] = None, **options: Any) -> dict[str, Any]:
    """Creates a table with the rows of an array or tensor. Arrays may be memory-mapped and larger than memory.

    Args:
        target: "hotbed://HOST:PORT" of the coordinator, or a client, which may be that of `hotbed.local`.
        table: its name.
        weights: rows x dim, float32 or float16.
        directory: one that every server reaches under the same path, with room for the array; the files there are deleted.
        ids: one integer per row makes the table hashed; None: row i is that of id i.
        optimizer, options: as of `Client.create_table`.

    Returns:
        {"rows", "dim", "bytes", "resumed"} of `import_table`.

    Raises:
        InvalidArgument: shape, type, order or values do not fit, and nothing was written.
    """
    weights = _array(table, weights)
    _check_weights(table, weights)
    if options.get('nan') != 'allow':
        _check_finite(table, weights)
    if ids is not None:
        ids = _check_ids(table, _array(table, ids), len(weights))
    with tempfile.TemporaryDirectory(prefix='hotbed-import-', dir=directory) as passing:
        path = os.path.join(os.path.abspath(passing), 'weights.npy')
        np.save(path, weights)
        if ids is None:
            return import_table(target, table, path, optimizer=optimizer, **options)
        np.save(os.path.join(passing, 'ids.npy'), ids)
        return import_table(target, table, path, ids=os.path.join(passing, 'ids.npy'), optimizer=optimizer, hashed=True, **options)


# --- PyTorch, TorchRec, FBGEMM


def _shards_of(name: str, value: Any) -> Iterator[tuple[Sequence[int], Any, Sequence[int]]]:
    """(offset of row and column, array, shape of the whole) of a value of a state dictionary."""
    if hasattr(value, 'local_shards'):  # torch.distributed's ShardedTensor
        for shard in value.local_shards():
            yield tuple(shard.metadata.shard_offsets), _array(name, shard.tensor), tuple(value.metadata().size)
        return
    array = _array(name, value)
    yield (0, 0), array, array.shape


def _fbgemm_tables(prefix: str, state: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    def numbers(key: str) -> list[int]:
        if prefix + key not in state:
            raise _refused(prefix + 'weights_offsets', f'the dictionary has no {prefix + key} beside it')
        return [int(n) for n in _array(key, state[prefix + key])]
    offsets, dims, rows, places = (numbers(k) for k in ('weights_offsets', 'D_offsets', 'rows_per_table', 'weights_placements'))
    for t, count in enumerate(rows):
        name = _FBGEMM_BUFFERS.get(places[t])
        if name is None or prefix + name not in state:
            raise _refused(f'{prefix}table {t}', f'its weights are at location {places[t]}, of which the dictionary has no buffer')
        flat, dim = _array(name, state[prefix + name]).reshape(-1), dims[t + 1] - dims[t]
        part = flat[offsets[t]:offsets[t] + count * dim]
        if len(part) != count * dim:
            raise _refused(f'{prefix}table {t}', f'it is cut off: {len(part)} elements, its rows and dim say {count} x {dim}')
        yield f'{prefix}{t}', part.reshape(count, dim)


def tables_of_state_dicts(states: Union[Mapping[str, Any], Iterable[Mapping[str, Any]]]) -> dict[str, Any]:
    """The embedding tables of a state dictionary, or of those of all ranks of a job, by name.

    * TorchRec: `...embedding_bags.NAME.weight`, `...embeddings.NAME.weight`: tensors, or ShardedTensors, whose shards of rows
      and columns are joined over the ranks.
    * FBGEMM's SplitTableBatchedEmbeddingBagsCodegen: `weights_dev`, `weights_uvm`, `weights_host`, cut by `weights_offsets`,
      `D_offsets`, `rows_per_table` and `weights_placements`. Tables are named by prefix and number.
    * PyTorch: any other tensor of two dimensions whose key ends with `.weight`, by its key; dense layers too.

    Raises:
        InvalidArgument: shards overlap or are missing, or have other sizes than the whole.
    """
    parts: dict[str, list[tuple[Sequence[int], Any, Sequence[int]]]] = {}
    result: dict[str, Any] = {}
    for state in ([states] if isinstance(states, Mapping) else states):
        for key, value in state.items():
            if key.endswith('weights_offsets'):
                result.update(_fbgemm_tables(key[:-len('weights_offsets')], state))
            match = _TABLE_KEY.search(key)
            if match:
                parts.setdefault(match[1], []).extend(_shards_of(key, value))
            elif key.endswith('.weight') and getattr(value, 'ndim', 0) == 2:
                result[key] = _array(key, value)
    for name, shards in parts.items():
        result[name] = _joined(name, shards)
    return result


def _joined(name: str, shards: list[tuple[Sequence[int], Any, Sequence[int]]]) -> Any:
    shape = tuple(shards[0][2])
    if len(shards) == 1 and shards[0][1].shape == shape:
        return shards[0][1]
    if all(tuple(offset) == (0, 0) and array.shape == shape for offset, array, _ in shards):
        return shards[0][1]  # every rank has all of it
    whole = np.empty(shape, shards[0][1].dtype)
    covered = np.zeros(shape, bool)
    for (row, column), array, of in shards:
        rows, columns = row + array.shape[0], column + array.shape[-1]
        if tuple(of) != shape or array.ndim != 2 or rows > shape[0] or columns > shape[1] or array.dtype != whole.dtype:
            raise _refused(name, f'a shard of {array.shape} {array.dtype} at {(row, column)} does not fit into {shape} {whole.dtype}')
        if covered[row:rows, column:columns].any():
            raise _refused(name, f'the shard at {(row, column)} overlaps another; pass each rank once')
        whole[row:rows, column:columns] = array
        covered[row:rows, column:columns] = True
    if not covered.all():
        row, column = np.argwhere(~covered)[0]
        raise _refused(name, f'no shard has row {row}, column {column}; pass the dictionaries of all ranks')
    return whole


# --- HugeCTR, Parquet


def read_hugectr(folder: Path, dim: int) -> tuple[Any, Any]:
    """(ids, weights) of a sparse model of HugeCTR, mapped.

    The folder (`NAME_sparse_ITERATION.model`) has the files `key`, an 8-byte integer per row, and `emb_vector`, `dim` 4-byte
    floats per row, both little-endian; `slot_id`, if there is one, is not read.
    """
    key, vectors = (os.path.join(folder, name) for name in ('key', 'emb_vector'))
    for path, row_bytes in ((key, 8), (vectors, 4 * dim)):
        if not os.path.exists(path):
            raise errors.NotFound(f'{path} is not there; a sparse model of HugeCTR has the files key and emb_vector')
        if os.path.getsize(path) % row_bytes:
            raise _refused(path, f'it has {os.path.getsize(path)} bytes, no multiple of {row_bytes}; it is cut off, or dim is not {dim}')
    rows = os.path.getsize(key) // 8
    if os.path.getsize(vectors) != rows * 4 * dim:
        raise _refused(os.fspath(vectors), f'it has {os.path.getsize(vectors) // (4 * dim)} rows of {dim}, key has {rows}')
    if rows == 0:
        return np.empty(0, np.int64), np.empty((0, dim), np.float32)
    return np.memmap(key, '<i8', 'r', shape=(rows,)), np.memmap(vectors, '<f4', 'r', shape=(rows, dim))


def read_parquet(path: Path, *, weights: Union[str, Sequence[str]] = 'weight', ids: Optional[str] = None) -> tuple[Any, Any]:
    """(ids or None, weights) of a Parquet file; needs pyarrow.

    Args:
        weights: a column of lists of dim floats, or the names of dim columns of floats.
        ids: a column of integers.
    """
    try:
        import pyarrow.parquet  # pylint: disable=import-outside-toplevel
    except ImportError as error:
        raise errors.FailedPrecondition('pyarrow is not installed; install it to read Parquet files') from error
    columns = [weights] if isinstance(weights, str) else list(weights)
    file = pyarrow.parquet.ParquetFile(path)
    missing = [c for c in columns + ([ids] if ids else []) if c not in file.schema_arrow.names]
    if missing:
        raise _refused(os.fspath(path), f'it has no column {missing[0]}, but {", ".join(file.schema_arrow.names)}')
    found_ids, found = [], []
    for batch in file.iter_batches(columns=columns + ([ids] if ids else [])):
        values = [batch.column(batch.schema.get_field_index(c)) for c in columns]
        if any(v.null_count for v in values):
            raise _refused(os.fspath(path), f'row {sum(map(len, found))} or a later one has no weights')
        if isinstance(weights, str):
            lengths = {len(row) for row in values[0]}
            if len(lengths) > 1 or (found and lengths and lengths != {found[0].shape[1]}):
                raise _refused(os.fspath(path), f'rows of "{weights}" have different lengths: {sorted(lengths)}')
            flat = values[0].flatten().to_numpy(zero_copy_only=False)
            found.append(flat.reshape(len(batch), -1))
        else:
            found.append(np.stack([v.to_numpy(zero_copy_only=False) for v in values], axis=1))
        if ids:
            column = batch.column(batch.schema.get_field_index(ids))
            if column.null_count:
                raise _refused(os.fspath(path), f'a row has no "{ids}"')
            found_ids.append(column.to_numpy(zero_copy_only=False))
    if not found:
        raise _refused(os.fspath(path), 'it has no rows')
    rows = np.concatenate(found)
    rows = np.ascontiguousarray(rows, np.float16 if rows.dtype == np.float16 else np.float32)
    return np.concatenate(found_ids) if ids else None, rows
