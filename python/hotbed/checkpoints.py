"""Checkpoints of a cluster: docs/checkpoints.md."""

from __future__ import annotations

import os
from typing import Any, Mapping, Optional, Sequence, Union

from hotbed import _hotbed, errors
from hotbed.client import Client

__all__ = ['fetch', 'restore', 'save']

_SESSIONS = ('auto', 'continue', 'anew')


def _cluster(target: Union[str, Client]) -> Any:
    return target._connection if isinstance(target, Client) else target


def _place(path: Union[str, os.PathLike[str]]) -> str:
    text = os.fspath(path)
    return text if text.startswith(('s3://', 'server:')) else os.path.abspath(text)


def save(target: Union[str, Client], directory: Union[str, os.PathLike[str]], *, tables: Sequence[str] = (), name: str = '',
         incremental: bool = False, bytes_per_s: int = 0, at_step: Union[int, str, None] = None,
         group: str = '', compress: str = '') -> dict[str, Any]:
    """Saves tables while training goes on, each shard as of one LSN.

    Args:
        target: "hotbed://HOST:PORT" of the coordinator, or a client, which may be that of `hotbed.local`.
        directory: one that every server and this process reach under the same path, s3://BUCKET/PREFIX, or server:NAME:
            each server's own disk, from which `fetch` brings the files.
        tables: their names; all if empty.
        name: of the checkpoint, a folder in the directory; by the time if empty.
        incremental: only the rows that have changed since the newest checkpoint in the directory.
        bytes_per_s: that each server writes at most; 0: no limit.
        at_step: all shards between this step of a group of trainers and the next one; "next": the first step for which
            that is possible.
        group: the `trainer_group` whose step it is; the only one at work if empty.
        compress: 'zstd' compresses the rows; they are as they are if empty.

    Returns:
        {"path": folder, "parent": name of the checkpoint that it needs or "", "at_step": 0 if it is aligned to none,
        "tables": [{"name", "shards", "rows", "bytes"}]}

    Raises:
        InvalidArgument, NotFound, AlreadyExists, Unavailable, ...: there is no checkpoint then.
    """
    if at_step is None and group:
        raise errors.InvalidArgument('group goes with at_step', value=group)
    if at_step is not None and at_step != 'next' and (not isinstance(at_step, int) or at_step < 1):
        raise errors.InvalidArgument(f'at_step is {at_step!r}; allowed: a step above 0, or "next"', value=at_step)
    step = -1 if at_step is None else 0 if at_step == 'next' else at_step
    return _hotbed.save_checkpoint(_cluster(target), _place(directory), name, tuple(tables), bytes_per_s, incremental, step, group,
                                   compress)


def restore(target: Union[str, Client], checkpoint: Union[str, os.PathLike[str]], *, tables: Union[Sequence[str], Mapping[str, str]] = (),
            durability: Optional[str] = None, weight_type: Optional[str] = None, shards: int = 0,
            sessions: str = 'auto') -> dict[str, Any]:
    """Creates tables that begin with saved rows, and returns when they serve.

    Args:
        target: "hotbed://HOST:PORT" of the coordinator, or a client, which may be that of `hotbed.local`.
        checkpoint: its folder, or a directory, s3://BUCKET/PREFIX or server:NAME of checkpoints: the newest whole one.
        tables: their names, or {name: new name}; all if empty.
        durability, weight_type: others than saved, as of `create_table`; "replicated=2" too.
        shards: of each table, at least; 0: the saved ones.
        sessions: "continue": pushes that the checkpoint contains are known as applied; "anew"; "auto": "continue" in the
            cluster that saved it.

    Returns:
        {"path": folder, "sessions_continue": bool, "tables": [{"name", "shards", "rows", "bytes"}]}
    """
    if sessions not in _SESSIONS:
        raise errors.InvalidArgument(f'sessions is "{sessions}"; allowed: {", ".join(_SESSIONS)}', value=sessions)
    names = tables.items() if isinstance(tables, Mapping) else ((name, '') for name in tables)
    return _hotbed.restore_checkpoint(_cluster(target), _place(checkpoint), tuple(names), durability or '', weight_type or '',
                                      shards, _SESSIONS.index(sessions))


def fetch(target: Union[str, Client], checkpoint: str, directory: Union[str, os.PathLike[str]]) -> dict[str, Any]:
    """Brings a checkpoint from the servers' own disks into a place where it is like any other.

    Args:
        target: "hotbed://HOST:PORT" of the coordinator, or a client.
        checkpoint: "server:NAME/CHECKPOINT", or "server:NAME": the newest whole one there.
        directory: one that this process reaches, or s3://BUCKET/PREFIX.

    Returns:
        {"path": folder, "files": number, "bytes": of them, "files_fetched", "bytes_fetched": without those that were there}

    Raises:
        NotFound, Unavailable, DataLoss, ...: names the servers and files that lack. The files that came stay, and another
        call goes on with them.
    """
    return _hotbed.fetch_checkpoint(_cluster(target), checkpoint, _place(directory))
