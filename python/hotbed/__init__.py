"""Hotbed: embedding tables larger than one machine, for trainers in Python.

    import hotbed

    client = hotbed.connect("hotbed://127.0.0.1:7400", session="job-7/0")   # or hotbed.local("/data/embeddings")
    table = client.create_table("user", dim=64, rows=1_000_000, optimizer=hotbed.optim.RowWiseAdagrad(lr=0.05))
    rows = table.pull(ids)
    table.push(ids, gradients, step=1)

`hotbed.torch` has modules that take the place of torch.nn's and TorchRec's; `hotbed.jax` has a lookup. docs/python.md.
"""

from hotbed import errors, optim
from hotbed.arrays import export_table, import_table
from hotbed.changes import Changes, Stream, follow, scan
from hotbed._hotbed import version as __version__
from hotbed.checkpoints import fetch, restore, save
from hotbed.client import Client, Table, connect, local
from hotbed.errors import (Aborted, AlreadyExists, ArrayError, ClosedError, DataLoss, DeadlineExceeded, FailedPrecondition,
                           ForkedError, HotbedError, InvalidArgument, NotFound, OutOfRange, PushError, ResourceExhausted,
                           Unavailable)
from hotbed.futures import Future, PushResult, ShardResult
from hotbed.serving import Bags, ServedNearest, ServedRows, ServingClient
from hotbed.tracing import trace
from hotbed.vocabulary import Vocabulary

__all__ = [
    'Aborted', 'AlreadyExists', 'ArrayError', 'Bags', 'Changes', 'Client', 'ClosedError', 'DataLoss', 'DeadlineExceeded',
    'FailedPrecondition', 'ForkedError', 'Future', 'HotbedError', 'InvalidArgument', 'NotFound', 'OutOfRange', 'PushError',
    'PushResult', 'ResourceExhausted', 'ServedNearest', 'ServedRows', 'ServingClient', 'ShardResult', 'Stream', 'Table', 'Unavailable', 'Vocabulary', '__version__',
    'connect',
    'errors', 'export_table', 'fetch', 'follow', 'import_table', 'local', 'optim', 'restore', 'save', 'scan', 'trace',
]
