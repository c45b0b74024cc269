"""Whole tables as files of arrays, NumPy's .npy and .safetensors: docs/arrays.md."""

from __future__ import annotations

import os
from typing import Any, Optional, Union

from hotbed import _hotbed, optim
from hotbed.client import Client, table_items

__all__ = ['export_table', 'import_table']

Path = Union[str, os.PathLike[str]]


def _cluster(target: Union[str, Client]) -> Any:
    return target._connection if isinstance(target, Client) else target


def _absolute(path: Optional[Path]) -> str:
    return '' if path is None else os.path.abspath(path)


def export_table(target: Union[str, Client], table: str, weights: Path, *, ids: Optional[Path] = None, state: Optional[Path] = None,
                 bytes_per_s: int = 0) -> dict[str, Any]:
    """Writes a table into arrays while training goes on. A call that was broken off goes on when it is made again.

    Args:
        target: "hotbed://HOST:PORT" of the coordinator, or a client, which may be that of `hotbed.local`.
        table: its name.
        weights: a new .npy or .safetensors file, in a directory that every server reaches under the same path.
        ids: of the rows of a hashed table; not needed if `weights` is a .safetensors file.
        state: of the optimizer; None leaves it out. It may be `weights` if that is a .safetensors file.
        bytes_per_s: that each server writes at most; 0: no limit.

    Returns:
        {"rows", "dim", "bytes", "resumed": an earlier call had begun}
    """
    return _hotbed.export_table(_cluster(target), table, _absolute(weights), _absolute(ids), _absolute(state), bytes_per_s)


def import_table(target: Union[str, Client], table: str, weights: Path, *, ids: Optional[Path] = None, state: Optional[Path] = None,
                 tensor: str = '', optimizer: Optional[optim.Optimizer] = None, **options: Any) -> dict[str, Any]:
    """Creates a table with the rows of arrays, which servers read themselves, and returns when it serves.

    Args:
        target: "hotbed://HOST:PORT" of the coordinator, or a client, which may be that of `hotbed.local`.
        table: its name.
        weights: a .npy or .safetensors file that every server reaches under the same path.
        ids: of the rows of a hashed table; not needed if `weights` is a .safetensors file.
        state: of the optimizer; None: that of new rows. It may be `weights` if that is a .safetensors file.
        tensor: the weights' name in a .safetensors file; "weight", or the only tensor that can be, if empty.
        optimizer, options: as of `Client.create_table`; dim and rows are those of the array.

    Returns:
        {"rows", "dim", "bytes", "resumed": an earlier call had begun}

    Raises:
        InvalidArgument, DataLoss, ...: an array does not fit, and nothing was written.
    """
    return _hotbed.import_table(_cluster(target), table, table_items(options, optimizer), _absolute(weights), tensor,
                                _absolute(ids), _absolute(state))
