"""Clients and tables."""

from __future__ import annotations

import atexit
import operator
import os
import weakref
from typing import Any, Callable, Mapping, Optional, Sequence, Union

from hotbed import _arrays, _hotbed, errors, optim, tracing
from hotbed.futures import Future, PushResult, push_result

__all__ = ['Client', 'Table', 'connect', 'local']

_POOLING = {'sum': 0, 'mean': 1, 'max': 2}
_UNITS = {'': 1, 'B': 1, 'KiB': 1 << 10, 'MiB': 1 << 20, 'GiB': 1 << 30, 'TiB': 1 << 40}
_open: weakref.WeakSet[Any] = weakref.WeakSet()


def close_at_exit(held: Any) -> None:
    _open.add(held)


def _bytes(value: Union[int, str, None], argument: str) -> int:
    if value is None:
        return 0
    if isinstance(value, int):
        return value
    number, unit = value.rstrip('BKMGTi'), value[len(value.rstrip('BKMGTi')):]
    try:
        return int(float(number) * _UNITS[unit])
    except (KeyError, ValueError):
        raise errors.InvalidArgument(f'{argument} is "{value}"; allowed: bytes, as 4294967296 or "4GiB"',
                                     value=value) from None


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return 'true' if value else 'false'
    return repr(float(value)) if isinstance(value, float) else str(value)


def table_items(given: Mapping[str, Any], optimizer: Optional[optim.Optimizer]) -> tuple[tuple[str, str], ...]:
    """The options of a table as the binding takes them."""
    options = {k.replace('_', '-'): v for k, v in given.items() if v is not None and v is not False}
    options.update((optimizer or optim.RowWiseAdagrad()).options())
    return tuple((k, _text(v)) for k, v in options.items())


def connect(target: str, **options: Any) -> Client:
    """Connects to a cluster: `hotbed.connect("hotbed://127.0.0.1:7400", session="job-7/0")`; also to "local:DIR".

    Several coordinators are named with commas between: "hotbed://a:7400,b:7400".

    Options:
        session: identity under which pushes are applied exactly once; keep it over restarts (job and rank). A second
            client of the same session fences the first. Default: a unique one.
        deadline: seconds of calls that name none; 60.
        pull_type, push_type: how rows and gradients travel, "fp32", "fp16" or "bf16".
        trainers: how many trainers push, for tables of reduction `mean`; trainer_group, trainer_lease (seconds): for
            synchronous and bounded tables.
        threads: that drive the network; 1. message_bytes_max, pulls_in_flight_max, pushes_in_flight_max.

    Raises:
        InvalidArgument, Unavailable, DeadlineExceeded: nobody answers at the target within the deadline.
    """
    made = Client(_hotbed.connect(target, options))
    made._target = target if target.startswith('hotbed://') else None
    return made


def local(directory: Union[str, os.PathLike[str], None] = None, *, memory: Union[int, str, None] = None,
          spill_max: Union[int, str, None] = None, log_sync_interval_ms: int = 1000, checkpoint_interval_ms: int = 300_000,
          **options: Any) -> Client:
    """The engine in this process, without a server and without a port.

    Args:
        directory: where tables, log and spilled rows are kept; None: in memory, gone with the client, and tables are of
            durability "checkpoint" unless told otherwise, since a log would survive nothing. A directory belongs to one
            process at a time; clients of it in one process share the engine.
        memory: bytes of the engine, as 4294967296 or "4GiB", at least 64 MiB; None: half of the machine's.
        spill_max: bytes of rows on disk; None: no limit.
        log_sync_interval_ms: 0: every acknowledged push survives a power loss.
        checkpoint_interval_ms: of tables of durability "checkpoint"; 0: when the client closes.
        options: as of `connect`.

    Raises:
        AlreadyExists: another process uses the directory. DataLoss, FailedPrecondition: it is damaged, or holds
        something else.
    """
    made = Client(_hotbed.connect_local(os.fspath(directory) if directory is not None else '', _bytes(memory, 'memory'),
                                        _bytes(spill_max, 'spill_max'), log_sync_interval_ms, checkpoint_interval_ms, options))
    if directory is None:
        made._durability = 'checkpoint'
    return made


class Client:
    """A connection to a cluster, or the local engine. Thread-safe. Closes at the end of a `with` block, and at exit."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._tables: dict[str, Table] = {}
        self._owners: weakref.WeakSet[Any] = weakref.WeakSet()  # what must let go of the client when it closes
        self._closed = False
        self._durability: Optional[str] = None  # of tables that name none
        self._target: Optional[str] = None  # as it was connected to; None: the local engine
        close_at_exit(self)

    def close(self) -> None:
        """Waits for pushes under way and closes. A local engine writes all rows back. May be called twice."""
        if self._closed:
            return
        for owner in list(self._owners):
            owner._release()
        self._closed = True
        _hotbed.close(self._connection)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *unused: object) -> None:
        self.close()

    # --- tables

    def create_table(self, name: str, dim: int, *, rows: Optional[int] = None, hashed: bool = False,
                     optimizer: Optional[optim.Optimizer] = None, if_not_exists: bool = False, init: Optional[str] = None,
                     seed: Optional[int] = None, padding_id: Optional[int] = None, bounds: Optional[str] = None,
                     weight_type: Optional[str] = None, stochastic_rounding: Optional[bool] = None,
                     column_slices: Optional[int] = None, row_statistics: Optional[str] = None,
                     durability: Optional[str] = None, replicas: Optional[int] = None, data_parallel: Optional[bool] = None,
                     reduction: Optional[str] = None, consistency: Optional[str] = None, nan: Optional[str] = None,
                     clip_slice_norm: Optional[float] = None, memory_share_min: Optional[float] = None,
                     memory_share_max: Optional[float] = None, schedule: Optional[str] = None,
                     warmup_steps: Optional[int] = None, warmup_from: Optional[float] = None,
                     total_steps: Optional[int] = None, min_factor: Optional[float] = None, step_size: Optional[int] = None,
                     gamma: Optional[float] = None, average_rate: Optional[float] = None, average_every: Optional[int] = None,
                     average_from_step: Optional[int] = None, compose: Optional[str] = None, combine: Optional[str] = None,
                     pool_first: Optional[bool] = None, buckets: Optional[int] = None,
                     block_dims: Union[int, Sequence[int], str, None] = None, histogram: Any = None, blocks: int = 4,
                     touches: Optional[bool] = None, shows: Optional[bool] = None, show_decay: Optional[float] = None,
                     show_period_s: Optional[int] = None, ttl_s: Optional[int] = None,
                     ttl_steps: Optional[int] = None, rows_max: Optional[int] = None, bytes_max: Optional[int] = None,
                     evict_by: Optional[str] = None, score_show: Optional[float] = None,
                     score_click: Optional[float] = None, score_least: Optional[float] = None, admit_after: Optional[int] = None,
                     admit_probability: Optional[float] = None, admit_zeros: Optional[bool] = None,
                     admit_by: Optional[str] = None, admit_ids: Optional[int] = None,
                     admit_false_positives: Optional[float] = None) -> Table:
        """Creates a table of `rows` x `dim` weights, or of any ids (`hashed`; then `rows` is the expected number).

        The options are those of docs/tables.md, by the same names. None: its default. `compose` makes a composed table
        (docs/composed.md); `histogram`, the count of each id, makes one of frequency blocks, of which there are `blocks`.

        Raises:
            InvalidArgument names an option, its value and what is allowed. AlreadyExists: the name is taken, unless
            `if_not_exists` and the table is the same.
        """
        durability = durability or self._durability
        if block_dims is not None and not isinstance(block_dims, (str, int)):
            block_dims = ','.join(str(operator.index(n)) for n in block_dims)
        given = {k: v for k, v in locals().items()
                 if k not in ('self', 'name', 'optimizer', 'if_not_exists', 'histogram', 'blocks')}
        items = table_items(given, optimizer)
        counts = None if histogram is None else _arrays.readable(histogram, 'histogram')
        return self._keep(Table(self, _hotbed.create_table(self._connection, name, items, if_not_exists, counts, blocks)))

    def create_vocabulary(self, name: str, numbers: int, *, if_not_exists: bool = False, durability: Optional[str] = None,
                          replicas: Optional[int] = None) -> Vocabulary:
        """Creates a table that gives keys the numbers 1 to `numbers` when they are first looked up.

        Raises:
            InvalidArgument: `numbers` is not 1 to 2**32 - 1. AlreadyExists: as `create_table`.
        """
        from hotbed.vocabulary import Vocabulary
        given = {'vocabulary': operator.index(numbers), 'durability': durability or self._durability, 'replicas': replicas}
        if not 1 <= given['vocabulary'] < 2**32:
            raise errors.InvalidArgument(f'numbers is {numbers}; allowed: 1 to 2**32 - 1', value=numbers)
        items = tuple((option, _text(value)) for option, value in given.items() if value is not None)
        return Vocabulary(self._keep(Table(self, _hotbed.create_table(self._connection, name, items, if_not_exists, None, 0))))

    def vocabulary(self, name: str, *, deadline: Optional[float] = None) -> Vocabulary:
        """The vocabulary of that name; `deadline`, in seconds, is that of its look-ups.

        Raises NotFound. InvalidArgument: a table that is no vocabulary.
        """
        from hotbed.vocabulary import Vocabulary
        return Vocabulary(self.table(name), deadline=deadline)

    def table(self, name: str) -> Table:
        """The table of that name. Raises NotFound."""
        known = self._tables.get(name)
        return known if known is not None else self._keep(Table(self, _hotbed.open_table(self._connection, name)))

    def _keep(self, table: Table) -> Table:
        self._tables[table.name] = table
        return table

    def drop_table(self, name: str) -> None:
        """Drops the table and its rows; of a composed table, all of its parts. Raises NotFound."""
        self._tables = {known: table for known, table in self._tables.items()
                        if name not in (known, table.options.get('part-of'))}
        _hotbed.drop_table(self._connection, name)

    def tables(self) -> list[dict[str, str]]:
        """All tables, each with its name and its options as text."""
        return [dict(options) for options in _hotbed.list_tables(self._connection)]

    def stats(self) -> dict[str, int]:
        """Counters since the connection: rows, bytes, messages, retries."""
        return dict(_hotbed.stats(self._connection))

    # --- several tables in one call

    def pull(self, ids: Mapping[str, Any], *, deadline: Optional[float] = None) -> dict[str, Any]:
        """Rows of several tables: `client.pull({"user": user_ids, "item": item_ids})["user"]`.

        Args:
            ids: by table, integers of any shape S. Returns float32 of shape S + (dim,) for each.
            deadline: seconds.

        Raises:
            OutOfRange, ArrayError, DeadlineExceeded.
        """
        return self.pull_async(ids, deadline=deadline).result()

    def pull_async(self, ids: Mapping[str, Any], *, deadline: Optional[float] = None) -> Future[dict[str, Any]]:
        """`pull`, as a Future."""
        made = {name: _pull_feature(self.table(name), given, None) for name, given in ids.items()}
        call = _hotbed.pull(self._connection, tuple(feature for feature, _ in made.values()), deadline, False,
                            tracing.current())
        return _future(call, lambda: {name: finish() for name, (_, finish) in made.items()})

    def push(self, gradients: Mapping[str, tuple[Any, Any]], *, step: int, lr: Optional[float] = None, assign: bool = False,
             scale: float = 1.0, clip_global_norm: float = 0.0, deadline: Optional[float] = None) -> PushResult:
        """One step over several tables: `client.push({"user": (ids, gradients)}, step=7)`.

        Args:
            gradients: by table, ids of shape S and floats of shape S + (dim,). Gradients of one id are summed.
            step: grows over the life of the session; one push per table and step. A step that was applied before is
                told to be applied, and changes nothing.
            lr: instead of the tables' own.
            assign: the rows given are the new weights; each id once.
            scale: of all gradients, before anything else. clip_global_norm: of the whole push; 0: off.
            deadline: seconds.

        Raises:
            PushError: some shards did not apply it, or the outcome is unknown. OutOfRange, ArrayError, InvalidArgument,
            FailedPrecondition: nothing was sent.
        """
        return self.push_async(gradients, step=step, lr=lr, assign=assign, scale=scale, clip_global_norm=clip_global_norm,
                               deadline=deadline).result()

    def push_async(self, gradients: Mapping[str, tuple[Any, Any]], *, step: int, lr: Optional[float] = None,
                   assign: bool = False, scale: float = 1.0, clip_global_norm: float = 0.0,
                   deadline: Optional[float] = None) -> Future[PushResult]:
        """`push`, as a Future. Pushes of one session to one shard are applied in the order of the calls."""
        features = tuple((self.table(name)._handle, _arrays.readable(ids, 'ids'), _arrays.readable(values, 'gradients'))
                         for name, (ids, values) in gradients.items())
        return Future(_hotbed.push(self._connection, step, features,
                                   (deadline, lr, assign, scale, clip_global_norm, tracing.current())), push_result)

    # --- steps of a group of trainers (docs/tables.md, Consistency of training)

    def join_trainers(self) -> int:
        """Joins the `trainer_group`; returns the step to begin with."""
        return _hotbed.trainer_step(self._connection, 'join', 0)

    def begin_step(self, step: int) -> None:
        """Waits until this trainer may begin `step`. Raises Aborted: join again."""
        _hotbed.trainer_step(self._connection, 'begin', step)

    def end_step(self, step: int) -> None:
        """All pushes of `step` were made. Waits until they are applied; of synchronous tables, by all trainers."""
        _hotbed.trainer_step(self._connection, 'end', step)

    def leave_trainers(self) -> None:
        """The other trainers go on without this one."""
        _hotbed.trainer_step(self._connection, 'leave', 0)


class Table:
    """A table of a client. Thread-safe."""

    def __init__(self, client: Client, handle: Any) -> None:
        self._client = client
        self._handle = handle
        self._options: dict[str, str] = _hotbed.table_options(handle)
        self.name = self._options['name']
        #: elements per row
        self.dim = int(self._options['dim'])

    @property
    def options(self) -> dict[str, str]:
        """All options as text, by the names of docs/tables.md."""
        return dict(self._options)

    @property
    def rows(self) -> int:
        """Rows of a bounded table; of a hashed one the expected number."""
        return int(self._options['rows'] or 0)

    @property
    def client(self) -> Client:
        return self._client

    @property
    def parts(self) -> list[Table]:
        """The tables that a composed table is made of, each with its own rows; of a plain table, none."""
        return [self._client.table(name) for name in _hotbed.table_parts(self._handle)]

    def get_weights(self) -> list[Any]:
        """All rows of a bounded table, as a list of one numpy array; of a composed table, those of its trained parts.

        Raises InvalidArgument: a hashed table, whose rows `hotbed table export` lists.
        """
        import numpy as np

        if self._options['hashed'] == 'true':
            raise errors.InvalidArgument(f'table {self.name} is hashed; allowed: bounded tables', table=self.name)
        found = []
        for part in self.parts or [self]:
            if self.parts and part.options['optimizer'] == 'none' and self._options['optimizer'] != 'none':
                continue  # the order of frequency blocks
            rows = np.empty((part.rows, part.dim), np.float32)
            for first in range(0, part.rows, 1 << 16):
                last = min(first + (1 << 16), part.rows)
                part.pull(np.arange(first, last), out=rows[first:last])
            found.append(rows)
        return found

    def __repr__(self) -> str:
        return f'hotbed.Table({self.name!r}, dim={self.dim}, rows={self.rows})'

    def pull(self, ids: Any, out: Any = None, *, lengths: Any = None, pooling: str = 'sum', weights: Any = None,
             exists: Any = None, deadline: Optional[float] = None) -> Any:
        """Rows of `ids`.

        Args:
            ids: integers of any type and shape S (numpy, torch, jax, a list).
            out: memory for the rows, float32, C-contiguous, of shape S + (dim,); it is returned.
            lengths: bags of ids, one after another: the result has one row per bag, pooled by `pooling` ("sum", "mean",
                "max"), each row times its id's `weights` ("sum" and "mean").
            exists: memory of uint8, one per id: 1 where the row was ever pushed.
            deadline: seconds.

        Returns:
            float32 of shape S + (dim,), or (bags, dim): a torch tensor on the device of torch ids, else numpy.

        Raises:
            OutOfRange, ArrayError, InvalidArgument: nothing was sent. DeadlineExceeded, NotFound: the table was dropped.
        """
        return self.pull_async(ids, out, lengths=lengths, pooling=pooling, weights=weights, exists=exists,
                               deadline=deadline).result()

    def pull_async(self, ids: Any, out: Any = None, *, lengths: Any = None, pooling: str = 'sum', weights: Any = None,
                   exists: Any = None, deadline: Optional[float] = None) -> Future[Any]:
        """`pull`, as a Future."""
        feature, finish = _pull_feature(self, ids, out, lengths, pooling, weights, exists)
        return _future(_hotbed.pull(self._client._connection, (feature,), deadline, False, tracing.current()),
                       finish)

    def lookup(self, ids: Any, out: Any = None, *, deadline: Optional[float] = None) -> Any:
        """As `pull`, for inference: no session, and no view of this client's own pushes."""
        feature, finish = _pull_feature(self, ids, out)
        return _future(_hotbed.pull(self._client._connection, (feature,), deadline, True, tracing.current()),
                       finish).result()

    def topk(self, vectors: Any, k: int, *, metric: str = 'dot', filter: Any = None, first_id: int = 0, last_id: int = 2**64 - 1,
             deadline: Optional[float] = None) -> Any:
        """The rows that are nearest to a vector, exactly (docs/topk.md).

        Args:
            vectors: floats of shape (dim,) or (n, dim).
            k: rows per vector.
            metric: "dot" or "cosine", the largest first; "l2", the square of the distance, the smallest first.
            filter: ids: only these rows.
            first_id, last_id: only rows of these ids.
            deadline: seconds.

        Returns:
            (ids, scores) as numpy arrays, uint64 and float64, the nearest first; for vectors of shape (n, dim) a list of n
            such pairs. There are fewer than k rows where the table has fewer.

        Raises:
            ArrayError, InvalidArgument, OutOfRange, DeadlineExceeded, NotFound: the table was dropped.
        """
        import numpy as np

        if isinstance(vectors, (list, tuple)):
            vectors = np.asarray(vectors, np.float32)
        shape = tuple(_arrays.shape_of(vectors))
        if len(shape) not in (1, 2) or shape[-1] != self.dim:
            raise errors.ArrayError(f'vectors has shape {shape}; allowed: ({self.dim},) or (n, {self.dim}), as table '
                                    f'{self.name} has dim {self.dim}')
        first_id, last_id = row_id(first_id, 'first_id'), row_id(last_id, 'last_id')
        ids = None if filter is None else _arrays.readable(filter, 'filter')
        nearest = _hotbed.top_k(self._handle, _arrays.readable(vectors, 'vectors'), k, metric, ids, first_id, last_id, deadline)
        pairs = _arrays.nearest_pairs(*nearest)
        return pairs[0] if len(shape) == 1 else pairs

    def push(self, ids: Any, gradients: Any, *, step: int, lr: Optional[float] = None, assign: bool = False, scale: float = 1.0,
             clip_global_norm: float = 0.0, shows: Any = None, clicks: Any = None,
             deadline: Optional[float] = None) -> PushResult:
        """Gradients for `ids`; see `Client.push`.

        Args:
            shows, clicks: one number per id, for a table with `shows=True`: added to those of the row. With `clicks` alone,
                each id was shown once.
        """
        return self.push_async(ids, gradients, step=step, lr=lr, assign=assign, scale=scale,
                               clip_global_norm=clip_global_norm, shows=shows, clicks=clicks, deadline=deadline).result()

    def push_async(self, ids: Any, gradients: Any, *, step: int, lr: Optional[float] = None, assign: bool = False,
                   scale: float = 1.0, clip_global_norm: float = 0.0, shows: Any = None, clicks: Any = None,
                   deadline: Optional[float] = None) -> Future[PushResult]:
        """`push`, as a Future."""
        feature = (self._handle, _arrays.readable(ids, 'ids'), _arrays.readable(gradients, 'gradients'),
                   _per_id(shows, 'shows'), _per_id(clicks, 'clicks'))
        return Future(_hotbed.push(self._client._connection, step, (feature,),
                                   (deadline, lr, assign, scale, clip_global_norm, tracing.current())), push_result)

    def delete(self, ids: Any, *, step: int, deadline: Optional[float] = None) -> PushResult:
        """Deletes rows of a hashed table: each reads as its first value again and does not exist, until the next push
        that names it. Ids without a row are passed over.

        Args:
            ids: integers of any shape.
            step: as that of `push`; the call counts as the push of the table in its step.
            deadline: seconds.

        Raises:
            PushError: some shards did not apply it, or the outcome is unknown. InvalidArgument: the table is bounded;
            nothing was sent.
        """
        return self.delete_async(ids, step=step, deadline=deadline).result()

    def delete_async(self, ids: Any, *, step: int, deadline: Optional[float] = None) -> Future[PushResult]:
        """`delete`, as a Future."""
        return Future(_hotbed.delete_rows(self._client._connection, step, self._handle, _arrays.readable(ids, 'ids'), deadline,
                                          tracing.current()), push_result)


    def touches(self, ids: Any, *, deadline: Optional[float] = None) -> dict[str, Any]:
        """How often and when pushes have named rows of a table with `touches=True`.

        Args:
            ids: integers of any shape.
            deadline: seconds.

        Returns:
            Arrays of the shape of `ids`: `exists`, `candidate` (the row waits for further touches), `count`, and `time`
            (seconds since 1970, by the primary's clock; 0: never) and `step` of the last touch; for a table with `shows=True`
            also `shows` and `clicks`, decayed to now.
        """
        import numpy as np
        words = np.frombuffer(_hotbed.touches(self._handle, _arrays.readable(ids, 'ids'), deadline), np.uint64)
        words = words.reshape(*_arrays.shape_of(ids), 5)
        found, count, time, step, _ = words.transpose(-1, *range(len(_arrays.shape_of(ids))))
        made = {'exists': found == 1, 'candidate': found == 2, 'count': count, 'time': time, 'step': step}
        if self._options['shows'] == 'true':
            shown = words[..., 4:].copy().view(np.float32)
            made.update(shows=shown[..., 0], clicks=shown[..., 1])
        return made

    def count_by_life(self, *, deadline: Optional[float] = None, **policies: Any) -> dict[str, int]:
        """A dry run of the table's policies, or of others (`ttl_s`, `ttl_steps`, `rows_max`, `bytes_max`, `evict_by`): `rows`
        there are, and how many of them would expire and be evicted now."""
        given = tuple((name.replace('_', '-'), _text(value)) for name, value in policies.items())
        return dict(zip(('rows', 'expires', 'evicts'), _hotbed.count_by_life(self._handle, given, deadline)))


def _per_id(values: Any, name: str) -> Any:
    if values is None:
        return None
    if _arrays.is_torch(values):
        return _arrays.readable(values.float(), name)
    import numpy as np
    return np.ascontiguousarray(values, np.float32)


def row_id(value: Any, name: str) -> int:
    number = operator.index(value)
    if not 0 <= number < 2**64:
        raise errors.InvalidArgument(f'{name} is {number}; allowed: 0 to 2**64 - 1', value=value)
    return number


def _pull_feature(table: Table, ids: Any, out: Any, lengths: Any = None, pooling: str = 'sum', weights: Any = None,
                  exists: Any = None) -> tuple[tuple[Any, ...], Callable[[], Any]]:
    """What _hotbed.pull takes, and what makes the result of it."""
    if pooling not in _POOLING:
        raise errors.InvalidArgument(f'pooling is "{pooling}"; allowed: {", ".join(_POOLING)}', value=pooling)
    shape: Sequence[int] = _arrays.shape_of(ids if lengths is None else lengths)
    rows = _arrays.new_rows(ids, (*shape, table.dim)) if out is None else _arrays.host_output(out)
    feature = (table._handle, _arrays.readable(ids, 'ids'), rows,
               None if lengths is None else _arrays.readable(lengths, 'lengths'), _POOLING[pooling],
               None if weights is None else _arrays.readable(weights, 'weights'), exists)
    return feature, lambda: _arrays.given_back(rows, ids, out)


def _future(call: Any, finish: Callable[[], Any]) -> Future[Any]:
    def take(done: Any) -> Any:
        _hotbed.result(done)
        return finish()

    return Future(call, take)


@atexit.register
def _close_all() -> None:
    for client in list(_open):
        try:
            client.close()
        except errors.ForkedError:
            pass
