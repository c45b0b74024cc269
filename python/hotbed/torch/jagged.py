"""Light forms of TorchRec's KeyedJaggedTensor, JaggedTensor and KeyedTensor, with the same methods.

The modules of hotbed.torch take TorchRec's own as well, and return its forms where they were given them.
"""

from __future__ import annotations

from typing import Mapping, Optional, Sequence

import torch

from hotbed import errors

__all__ = ['JaggedTensor', 'KeyedJaggedTensor', 'KeyedTensor']


def _lengths_of(lengths: Optional[torch.Tensor], offsets: Optional[torch.Tensor]) -> torch.Tensor:
    if lengths is not None:
        return lengths
    if offsets is None:
        raise errors.InvalidArgument('neither lengths nor offsets are given; give one')
    return offsets[1:] - offsets[:-1]


class JaggedTensor:
    """Values of samples of different lengths: `values` (N, ...), `lengths` (samples,)."""

    def __init__(self, values: torch.Tensor, weights: Optional[torch.Tensor] = None, lengths: Optional[torch.Tensor] = None,
                 offsets: Optional[torch.Tensor] = None) -> None:
        self._values = values
        self._weights = weights
        self._lengths = _lengths_of(lengths, offsets)

    def values(self) -> torch.Tensor:
        return self._values

    def lengths(self) -> torch.Tensor:
        return self._lengths

    def weights_or_none(self) -> Optional[torch.Tensor]:
        return self._weights

    def offsets(self) -> torch.Tensor:
        """(samples + 1,), from 0."""
        return torch.cat([self._lengths.new_zeros(1), self._lengths.cumsum(0)])


class KeyedJaggedTensor:
    """The sparse features of a batch: for each key, and each sample, a bag of ids.

    Args:
        keys: F names. values: all ids, key after key, sample after sample. weights: one per id.
        lengths: (F * samples,), key-major; or offsets: (F * samples + 1,).
    """

    def __init__(self, keys: Sequence[str], values: torch.Tensor, weights: Optional[torch.Tensor] = None,
                 lengths: Optional[torch.Tensor] = None, offsets: Optional[torch.Tensor] = None) -> None:
        self._keys = list(keys)
        self._jagged = JaggedTensor(values, weights, lengths, offsets)

    @staticmethod
    def from_dict(features: Mapping[str, torch.Tensor]) -> KeyedJaggedTensor:
        """Features of one length per sample: tensors of shape (samples,) or (samples, length)."""
        shaped = {k: v if v.dim() == 2 else v.reshape(-1, 1) for k, v in features.items()}
        lengths = [torch.full((v.shape[0],), v.shape[1], dtype=torch.int64) for v in shaped.values()]
        return KeyedJaggedTensor(list(shaped), torch.cat([v.reshape(-1) for v in shaped.values()]), None, torch.cat(lengths))

    def keys(self) -> list[str]:
        return self._keys

    def values(self) -> torch.Tensor:
        return self._jagged.values()

    def lengths(self) -> torch.Tensor:
        return self._jagged.lengths()

    def weights_or_none(self) -> Optional[torch.Tensor]:
        return self._jagged.weights_or_none()

    def stride(self) -> int:
        """Samples."""
        return len(self.lengths()) // max(1, len(self._keys))

    def to(self, device: torch.device) -> KeyedJaggedTensor:
        weights = self.weights_or_none()
        return KeyedJaggedTensor(self._keys, self.values().to(device), None if weights is None else weights.to(device),
                                 self.lengths().to(device))

    def __getitem__(self, key: str) -> JaggedTensor:
        at = self._keys.index(key) * self.stride()
        lengths = self.lengths()
        first = int(lengths[:at].sum())
        own = lengths[at:at + self.stride()]
        limit = first + int(own.sum())
        weights = self.weights_or_none()
        return JaggedTensor(self.values()[first:limit], None if weights is None else weights[first:limit], own)


class KeyedTensor:
    """Pooled features side by side: `values` (samples, sum of dims)."""

    def __init__(self, keys: Sequence[str], length_per_key: Sequence[int], values: torch.Tensor) -> None:
        self._keys = list(keys)
        self._lengths = list(length_per_key)
        self._values = values

    def keys(self) -> list[str]:
        return self._keys

    def length_per_key(self) -> list[int]:
        return self._lengths

    def values(self) -> torch.Tensor:
        return self._values

    def __getitem__(self, key: str) -> torch.Tensor:
        at = self._keys.index(key)
        first = sum(self._lengths[:at])
        return self._values[:, first:first + self._lengths[at]]

    def to_dict(self) -> dict[str, torch.Tensor]:
        return dict(zip(self._keys, torch.split(self._values, self._lengths, dim=1)))
