"""PyTorch modules over Hotbed's tables. docs/python.md shows them at work.

Rows are pulled in forward; backward pushes the gradients, and the servers apply their optimizer. Embeddings have no
parameters, so there is nothing to do for them in `optimizer.step()`, and DistributedDataParallel sees the dense part only.
"""

from __future__ import annotations

from typing import Any

import torch

import hotbed
from hotbed.torch.ahead import prefetch
from hotbed.torch.converting import convert, import_weights
from hotbed.torch.jagged import JaggedTensor, KeyedJaggedTensor, KeyedTensor
from hotbed.torch.modules import (Embedding, EmbeddingBag, EmbeddingBagCollection, EmbeddingBagConfig, EmbeddingCollection,
                                  EmbeddingConfig)
from hotbed.torch.output import SampledSoftmaxLoss, VocabParallelCrossEntropy
from hotbed.torch.training import GradScaler, Training, training

__all__ = [
    'Embedding', 'EmbeddingBag', 'EmbeddingBagCollection', 'EmbeddingBagConfig', 'EmbeddingCollection', 'EmbeddingConfig',
    'GradScaler', 'JaggedTensor', 'KeyedJaggedTensor', 'KeyedTensor', 'SampledSoftmaxLoss', 'Training',
    'VocabParallelCrossEntropy', 'connect', 'convert', 'import_weights', 'prefetch', 'training',
]


def connect(target: str, job: str, **options: Any) -> hotbed.Client:
    """A client of its own for each rank of torch.distributed: session `job`/rank, and `trainers` the number of ranks."""
    distributed = torch.distributed.is_available() and torch.distributed.is_initialized()
    rank = torch.distributed.get_rank() if distributed else 0
    world = torch.distributed.get_world_size() if distributed else 1
    return hotbed.connect(target, session=f'{job}/{rank}', trainers=world, **options)
