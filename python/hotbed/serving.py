"""Lookups of served tables, for inference: docs/serving.md."""

from __future__ import annotations

import dataclasses
from typing import Any, Mapping, Optional

from hotbed import _arrays, _hotbed, client, errors

__all__ = ['Bags', 'ServedNearest', 'ServedRows', 'ServingClient']

_POOLING = {'sum': 0, 'mean': 1, 'max': 2}  # as in hotbed/pooling.h
_NONE = 3


@dataclasses.dataclass(frozen=True, eq=False)
class Bags:
    """Bags of ids that are pooled at the server, so that one row per bag travels.

    Attributes:
        ids: integers, shape (ids,).
        offsets: where each bag begins among the ids, shape (bags,), as in torch.nn.EmbeddingBag: the first is 0, none is
            less than the one before, and the last bag ends with the ids.
        pooling: "sum", "mean" or "max", in fp32 and in the order of the ids. An id without a row counts as zeros, also
            in the divisor of a mean. An empty bag is zeros.
        weights: floats, shape (ids,), for sum and mean; None: 1 each.
    """

    ids: Any
    offsets: Any
    pooling: str = 'mean'
    weights: Optional[Any] = None


@dataclasses.dataclass(frozen=True, eq=False)
class ServedRows:
    """The answer for one table. The arrays are the memory in which the answer came, and may be written to.

    Attributes:
        values: float32, shape (ids, dim), or (bags, dim).
        exists: bool, shape (ids,); the values of a row that does not exist are zeros.
        age: seconds: all pushes that were acknowledged longer before the answer are in it.
            Zero for those of a version, which do not change.
        server: the name of the serving server that answered.
        version: the name of the version whose rows these are; empty: the newest rows.
        error: why there is no answer for this table, or for the rows that `known` tells, with `partial` alone. Without `known`
            nothing is known about any of its rows, and values and exists are empty. None: all is well.
        tiers: uint8, shape (ids,), with `with_tiers` alone: 1 where memory of the server had the row, 2 where its disk
            had it, 3 where its device had it, 0 where there is no row.
        known: with an error, of a table in parts of which others were answered: bool, one per row of values. Where it is False
            nothing is known (of some id of the bag), and the row is zeros. Else None.
        older: newest rows may be older than in an answer before (docs/serving.md, "Going back").
    """

    values: Any
    exists: Any
    age: float
    server: str
    version: str = ''
    error: Optional[errors.HotbedError] = None
    tiers: Optional[Any] = None
    known: Optional[Any] = None
    older: bool = False


@dataclasses.dataclass(frozen=True, eq=False)
class ServedNearest:
    """The nearest rows of a served table.

    Attributes:
        pairs: per vector (ids, scores), uint64 and float64 arrays, the nearest first.
        age, server, version, older: as in `ServedRows`.
    """

    pairs: list[tuple[Any, Any]]
    age: float
    server: str
    version: str = ''
    older: bool = False


class ServingClient:
    """Looks up rows of served tables: `hotbed.ServingClient("hotbed://127.0.0.1:7400")`.

    Rows come from serving servers, never from the servers that trainers push to. Thread-safe: any number of threads may
    look up at a time, and other Python threads run meanwhile (the GIL is released). Ctrl-C ends a call. After fork() the child connects again. Closes at the end of a `with` block, and at exit.

    Args:
        target: "hotbed://HOST:PORT,..." of the coordinators.
        connect_timeout: seconds.
        hedge_budget: the part of calls, 0 to 1, that may be sent a second time (`hedge_after`), besides a burst of 20.
        failure_domain: where this client is: serving servers with that --failure-domain are asked first, unless they have 8
            calls more than others. Empty: all are equally near.
        may_go_back: newest rows may be older than in an answer before, by the lag between two copies; calls are spread over
            copies also while rows change (docs/serving.md, "Going back").

    Raises:
        InvalidArgument: no such target, or budget. Unavailable, DeadlineExceeded: no coordinator answers in time.
    """

    def __init__(self, target: str, *, connect_timeout: float = 10.0, hedge_budget: float = 0.05,
                 failure_domain: str = '', may_go_back: bool = False) -> None:
        self._client = _hotbed.connect_serving(target, connect_timeout, hedge_budget, failure_domain, may_go_back)
        client.close_at_exit(self)

    def lookup(self, tables: Mapping[str, Any], *, timeout: float = 1.0, staleness_max: Optional[float] = None,
               hedge_after: Optional[float] = None, wire_type: str = 'fp32', version: str = '', partial: bool = False,
               batch: bool = False, with_tiers: bool = False) -> dict[str, ServedRows]:
        """The rows of many tables in one call.

        Args:
            tables: by name, ids (integers of any type, shape (ids,); numpy, torch on the host, lists) or `Bags`.
            timeout: seconds, for all of it.
            staleness_max: seconds; older rows are refused. None: as the table has it.
            hedge_after: seconds; where a server has not answered by then, another one that has its tables is asked, too, and
                the first answer is taken, within `hedge_budget`. None: never.
            wire_type: how rows travel, "fp32", "fp16", "bf16" or "int8"; narrower ones round each row once.
            version: empty or "latest": the newest rows of each table, none of which is older than in an answer that this client
                gave before, unless `ServedRows.older` says so (docs/serving.md, "Going back"); "current": of each table the current version of its model
                (`hotbed publish`), one per model for the whole call; "current/MODEL": of that model, which is to be named where
                a table belongs to several; else the name of a version.
            partial: tables, or parts of tables, that cannot be answered in time do not fail the others; `ServedRows.error` says
                which tables they are, `ServedRows.known` which rows of those are there. A lookup without any answer is an error nevertheless.
            batch: batch scoring, which gets what inference leaves: servers run it later and refuse it sooner.
            with_tiers: `ServedRows.tiers` is wanted.

        Returns:
            By name, one `ServedRows` per table.

        Raises:
            InvalidArgument: offsets or weights do not fit; ArrayError: no array of integers. NotFound: a table is not
            served, or not in the version; there is no such version. FailedPrecondition: every copy's rows are older than
            allowed; no version is current. Unavailable, DeadlineExceeded, ResourceExhausted: no copy has answered in time, or
            all have too much to do. HotbedError: the caller may not read a table. Without `partial` there is no answer for a
            part of the tables.
        """
        import numpy as np

        asked = tuple(_asked(name, value) for name, value in tables.items())
        found = _hotbed.serving_lookup(self._client, asked, timeout, staleness_max, hedge_after, wire_type, version,
                                       partial, batch, with_tiers)
        answers = {}
        for name, (dim, values, exists, tiers, known, age, older, server, of, code, why) in zip(tables, found):
            # frombuffer does not take memory without elements.
            matrix = np.frombuffer(values, np.float32) if len(memoryview(values)) else np.empty(0, np.float32)
            flags = np.frombuffer(exists, np.bool_) if len(memoryview(exists)) else np.empty(0, np.bool_)
            where = np.frombuffer(tiers, np.uint8) if len(memoryview(tiers)) else np.empty(0, np.uint8)
            rows_known = np.frombuffer(known, np.bool_) if len(memoryview(known)) else None
            error = None if code == 0 else errors.from_status(code, why)
            answers[name] = ServedRows(matrix.reshape(-1, max(dim, 1)), flags, age, server, of, error,
                                       where if with_tiers else None, rows_known, older)
        return answers

    def stats(self) -> dict[str, int]:
        """Counters since the connection: calls to servers, hedges (second calls), those that answered first, and those that the
        budget refused."""
        return dict(_hotbed.serving_stats(self._client))

    def topk(self, table: str, vectors: Any, k: int, *, metric: str = 'dot', filter: Any = None, first_id: int = 0,
             last_id: int = 2**64 - 1, timeout: float = 10.0, staleness_max: Optional[float] = None,
             version: str = '') -> ServedNearest:
        """The rows that are nearest to vectors, exactly (docs/topk.md): all rows of one copy are compared.

        Args:
            table: its name.
            vectors: floats of shape (dim,) or (n, dim), at most 1,024 vectors.
            k: rows per vector, at most 16,384; k times the vectors is at most 262,144.
            metric: "dot" or "cosine", the largest first; "l2", the square of the distance, the smallest first.
            filter: ids, at most 1,000,000: only these rows.
            first_id, last_id: only rows of these ids.
            timeout, staleness_max, version: as for `lookup`.

        Raises:
            As `lookup`.
        """
        import numpy as np

        if isinstance(vectors, (list, tuple)):
            vectors = np.asarray(vectors, np.float32)
        ids = None if filter is None else _arrays.readable(filter, 'filter')
        nearest, age, older, server, of = _hotbed.serving_top_k(
            self._client, table, _arrays.readable(vectors, 'vectors'), k, metric, ids, client.row_id(first_id, 'first_id'),
            client.row_id(last_id, 'last_id'), timeout, staleness_max, version)
        return ServedNearest(_arrays.nearest_pairs(*nearest), age, server, of, older)

    def close(self) -> None:
        """Closes; calls under way in other threads end first. May be called twice."""
        _hotbed.close_serving(self._client)

    def __enter__(self) -> ServingClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _asked(name: str, value: Any) -> tuple[str, Any, int, Optional[Any], Optional[Any]]:
    if not isinstance(value, Bags):
        return name, _arrays.readable(value, 'ids'), _NONE, None, None
    if value.pooling not in _POOLING:
        raise errors.InvalidArgument(f'table "{name}": pooling is "{value.pooling}"; allowed: sum, mean, max', table=name,
                                     value=value.pooling, limit='sum, mean, max')
    return (name, _arrays.readable(value.ids, 'ids'), _POOLING[value.pooling], _arrays.readable(value.offsets, 'offsets'),
            None if value.weights is None else _weights(name, value.weights))


def _weights(name: str, weights: Any) -> Any:
    if not isinstance(weights, (list, tuple, range)):
        return _arrays.readable(weights, 'weights')
    import numpy as np

    try:
        return np.asarray(weights, np.float32)
    except (TypeError, ValueError):
        raise errors.ArrayError(f'table "{name}": weights is a list with elements that are no numbers; allowed: floats, one per id') from None
