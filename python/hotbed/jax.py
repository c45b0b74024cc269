"""A lookup for JAX, by host callbacks.

    rows = hotbed.jax.lookup(table, ids, steps)        # under jit, with ids of any shape
    loss, grads = jax.value_and_grad(loss_fn)(...)     # the gradient of rows is pushed as the next step

The callback of backward pushes the gradient and waits for it, so the next lookup reads what it wrote. Only one lookup per
table and step may be differentiated; concatenate ids to look up several together.
"""

from __future__ import annotations

import itertools
from typing import Any, Optional

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import io_callback

from hotbed.client import Table

__all__ = ['Steps', 'lookup']


class Steps:
    """The steps of a session, counted by the pushes of one table: `Steps(first=1)`."""

    def __init__(self, first: int = 1) -> None:
        self._numbers = itertools.count(first)

    def next(self) -> int:
        return next(self._numbers)


def lookup(table: Table, ids: Any, steps: Optional[Steps] = None) -> Any:
    """Rows of `ids` (integers of shape S): float32 of shape S + (dim,). Differentiated, it pushes.

    `steps`: numbers the pushes; None: the rows are constants.
    """
    ids = jnp.asarray(ids)
    # JAX asks for the gradient of floats only; this one carries that of the rows to the callback.
    anchor = jnp.zeros((), jnp.float32)
    return _lookup(table, steps, anchor, ids)


def _pull(table: Table, ids: Any) -> Any:
    shape = jax.ShapeDtypeStruct((*ids.shape, table.dim), jnp.float32)
    return io_callback(lambda i: np.asarray(table.pull(np.asarray(i))), shape, ids, ordered=True)


def _lookup(table: Table, steps: Optional[Steps], anchor: Any, ids: Any) -> Any:
    @jax.custom_vjp
    def rows(anchor: Any, ids: Any) -> Any:
        return _pull(table, ids)

    def forward(anchor: Any, ids: Any) -> tuple[Any, Any]:
        return _pull(table, ids), ids

    def backward(ids: Any, gradient: Any) -> tuple[Any, Any]:
        if steps is not None:
            def push(i: Any, g: Any) -> None:
                table.push(np.asarray(i), np.asarray(g), step=steps.next())

            io_callback(push, None, ids, gradient, ordered=True)
        return jnp.zeros((), jnp.float32), np.zeros(ids.shape, jax.dtypes.float0)

    rows.defvjp(forward, backward)
    return rows(anchor, ids)
