"""A lookup for JAX, by host callbacks.

    steps, params = hotbed.jax.Steps(), {"dense": w, "rows": hotbed.jax.anchor()}

    def loss(params, ids):                             # works under jit, with ids of any shape
        rows = hotbed.jax.lookup(table, ids, params["rows"], steps)
        return (rows * params["dense"]).sum()

    jax.grad(loss)(params, ids)                        # pushes the gradient of the rows; that of the anchor is 0

JAX computes gradients of what it is asked for only; the anchor stands for the rows there. The callback of backward pushes
and waits, so the next lookup reads what it wrote. One lookup per table and step may be differentiated; concatenate ids to
look up several together.
"""

from __future__ import annotations

import itertools
from typing import Any, Optional

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import io_callback

from hotbed.client import Table

__all__ = ['Steps', 'anchor', 'lookup']


class Steps:
    """The steps of a session, counted by the pushes of one table: `Steps(first=1)`."""

    def __init__(self, first: int = 1) -> None:
        self._numbers = itertools.count(first)

    def next(self) -> int:
        return next(self._numbers)


def anchor() -> Any:
    """What is differentiated in place of the rows: a float32 that is 0 and stays 0."""
    return jnp.zeros((), jnp.float32)


def lookup(table: Table, ids: Any, anchor: Optional[Any] = None, steps: Optional[Steps] = None) -> Any:
    """Rows of `ids` (integers of shape S): float32 of shape S + (dim,).

    Where `anchor` is differentiated, the gradient of the rows is pushed as the next of `steps`. None: constants.
    """
    ids = jnp.asarray(ids)
    if anchor is None or steps is None:
        return _pull(table, ids)
    return _lookup(table, steps, anchor, ids)


def _pull(table: Table, ids: Any) -> Any:
    shape = jax.ShapeDtypeStruct((*ids.shape, table.dim), jnp.float32)
    return io_callback(lambda i: np.asarray(table.pull(np.asarray(i))), shape, ids, ordered=True)


def _lookup(table: Table, steps: Steps, anchor: Any, ids: Any) -> Any:
    @jax.custom_vjp
    def rows(anchor: Any, ids: Any) -> Any:
        return _pull(table, ids)

    def forward(anchor: Any, ids: Any) -> tuple[Any, Any]:
        return _pull(table, ids), ids

    def backward(ids: Any, gradient: Any) -> tuple[Any, Any]:
        def push(i: Any, g: Any) -> None:
            table.push(np.asarray(i), np.asarray(g), step=steps.next())

        io_callback(push, None, ids, gradient, ordered=True)
        return jnp.zeros((), jnp.float32), np.zeros(ids.shape, jax.dtypes.float0)

    rows.defvjp(forward, backward)
    return rows(anchor, ids)
