"""The rows of the next batches, pulled while this one computes."""

from __future__ import annotations

import collections
from typing import Any, Callable, Iterable, Iterator, Optional

import torch

from hotbed import _hotbed, errors
from hotbed.torch.modules import EmbeddingBagCollection, EmbeddingCollection

__all__ = ['prefetch']


class prefetch:
    """`with hotbed.torch.prefetch(loader, model, features=lambda batch: batch.sparse) as batches: for batch in batches: ...`

    While the model computes a batch, the rows of the next `depth` are pulled; rows that its pushes change are pulled again.
    With `behind` = 0 every forward reads what a pull at that moment would give. With n, the last n pushes may be missing
    (bounded staleness n), and no forward waits for them. Pushes of other trainers are seen as of the pull.

    Args:
        loader: gives batches. model: with collections of hotbed.torch, which are run in the order in which they stand there.
        features: the KeyedJaggedTensor of a batch, or for several collections a list of one each; None: the batch itself.
        depth: batches pulled early, 1 to 64. memory: bytes of rows pulled early.
    """

    def __init__(self, loader: Iterable[Any], model: torch.nn.Module, features: Optional[Callable[[Any], Any]] = None, *,
                 depth: int = 2, behind: int = 0, memory: int = 256 << 20) -> None:
        if not 1 <= depth <= 64:
            raise errors.InvalidArgument(f'depth is {depth}; allowed: 1 to 64', value=str(depth), limit='1 to 64')
        self._loader = loader
        self._modules = [m for m in model.modules() if isinstance(m, (EmbeddingBagCollection, EmbeddingCollection))]
        if len({id(m._client) for m in self._modules}) != 1:
            raise errors.InvalidArgument('prefetch needs a model with collections of hotbed.torch, of one client; this one has '
                                         f'{len(self._modules)} collections')
        self._features = features or (lambda batch: batch)
        self._depth = depth
        client = self._modules[0]._client
        self._look_ahead = _hotbed.look_ahead(client._connection, (depth + 1) * len(self._modules), memory, behind)

    def __enter__(self) -> prefetch:
        for module in self._modules:
            module._ahead = module._make(self._look_ahead)
        return self

    def __exit__(self, *unused: object) -> None:
        for module in self._modules:
            module._training.wait()
            module._ahead = None

    def __iter__(self) -> Iterator[Any]:
        ready: collections.deque[Any] = collections.deque()
        batches = iter(self._loader)
        more = True
        while more or ready:
            while more and len(ready) <= self._depth:
                try:
                    batch = next(batches)
                except StopIteration:
                    more = False
                    break
                self._announce(batch)
                ready.append(batch)
            if ready:
                yield ready.popleft()

    def _announce(self, batch: Any) -> None:
        features = self._features(batch)
        for module, one in zip(self._modules, features if isinstance(features, (list, tuple)) else [features]):
            module.announce(module.batch(one))

    def stats(self) -> dict[str, int]:
        """batches, rows, rows_ready (pulled early), rows_refreshed (changed by own pushes), rows_late."""
        return dict(zip(('batches', 'rows', 'rows_ready', 'rows_refreshed', 'rows_late'),
                        _hotbed.look_ahead_stats(self._look_ahead)))
