"""From a model with torch.nn's embeddings to one with Hotbed's."""

from __future__ import annotations

import sys
from typing import Any, Optional, Sequence, Union

import torch

from hotbed import errors, optim
from hotbed.client import Client, Table
from hotbed.torch.modules import Embedding, EmbeddingBag
from hotbed.torch.training import training

__all__ = ['convert', 'import_weights']

_ROWS_PER_PUSH = 1 << 16


def import_weights(client: Client, table: Table, weights: Union[torch.Tensor, Sequence[torch.Tensor]]) -> None:
    """Assigns row i of `weights` to id i. A push of its own step for each 65,536 rows; progress on a terminal.

    Of a composed table, `weights` is a list with one tensor for each of its trained parts, as `get_weights` returns it.
    """
    if not isinstance(weights, torch.Tensor):
        parts = [part for part in table.parts if not part.name.endswith('/index')] or [table]
        shapes = [(part.rows, part.dim) for part in parts]
        given = [tuple(one.shape) for one in weights]
        if given != shapes:
            raise errors.ArrayError(f'weights have the shapes {given}; allowed: {shapes}, as the parts of table {table.name}',
                                    value=str(given), limit=str(shapes))
        for part, one in zip(parts, weights):
            import_weights(client, part, one)
        return
    if tuple(weights.shape) != (table.rows, table.dim):
        raise errors.ArrayError(f'weights has shape {tuple(weights.shape)}; allowed: ({table.rows}, {table.dim}), as table '
                                f'{table.name} has', value=str(tuple(weights.shape)), limit=f'({table.rows}, {table.dim})')
    norm = float(table.options['max-norm'] or 0)
    if norm > 0:  # as torch.nn does when it reads a row for the first time
        p = float(table.options['max-norm-type'])
        norms = weights.norm(p if p else float('inf'), dim=1, keepdim=True)
        weights = torch.where(norms > norm, weights * (norm / (norms + 1e-7)), weights)
    steps = training(client)
    for first in range(0, len(weights), _ROWS_PER_PUSH):
        ids = torch.arange(first, min(first + _ROWS_PER_PUSH, len(weights)))
        padding = table.options['padding-id']
        if padding not in ('', 'none'):
            ids = ids[ids != int(padding)]
        table.push(ids, weights[ids], step=steps.step, assign=True)
        steps.step += 1
        if sys.stderr.isatty():
            done = int(ids[-1]) + 1
            print(f'\r{table.name}: {done:,} of {len(weights):,} rows', end='\n' if done == len(weights) else '',
                  file=sys.stderr, flush=True)


def _replacement(module: Any, name: str, client: Client, optimizer: Optional[optim.Optimizer],
                 options: dict[str, Any]) -> Any:
    if isinstance(module, torch.nn.EmbeddingBag):
        return EmbeddingBag(module.num_embeddings, module.embedding_dim, client=client, name=name, mode=module.mode,
                            include_last_offset=module.include_last_offset, padding_idx=module.padding_idx,
                            max_norm=module.max_norm, norm_type=module.norm_type,
                            scale_grad_by_freq=module.scale_grad_by_freq, optimizer=optimizer, **options)
    return Embedding(module.num_embeddings, module.embedding_dim, client=client, name=name, padding_idx=module.padding_idx,
                     max_norm=module.max_norm, norm_type=module.norm_type, scale_grad_by_freq=module.scale_grad_by_freq,
                     optimizer=optimizer, **options)


def convert(model: torch.nn.Module, *, client: Client, min_rows: int = 100_000, prefix: str = '',
            optimizer: Optional[optim.Optimizer] = None, **options: Any) -> torch.nn.Module:
    """Replaces nn.Embedding and nn.EmbeddingBag of at least `min_rows` rows by Hotbed's, and imports their weights.

    The table of a module is named `prefix` and the module's path in the model. Returns the model, changed in place. Make the
    dense optimizer afterwards: the replaced weights are no parameters any more.
    """
    for path, module in list(model.named_modules()):
        if not isinstance(module, (torch.nn.Embedding, torch.nn.EmbeddingBag)) or module.num_embeddings < min_rows:
            continue
        name = prefix + (path or 'embedding')
        made = _replacement(module, name, client, optimizer, options)
        import_weights(client, client.table(name), module.weight.detach())
        made.train(module.training)
        if not path:
            return made
        parent, _, leaf = path.rpartition('.')
        setattr(model.get_submodule(parent), leaf, made)
    return model
