"""Modules that take the place of torch.nn's and TorchRec's embeddings."""

from __future__ import annotations

import dataclasses
import weakref
from typing import Any, Optional, Sequence, Union

import torch

from hotbed import _hotbed, errors, optim, tracing
from hotbed.client import Client, Table
from hotbed.torch.jagged import JaggedTensor, KeyedJaggedTensor, KeyedTensor
from hotbed.torch.training import training

__all__ = ['EmbeddingBagConfig', 'EmbeddingConfig', 'EmbeddingBagCollection', 'EmbeddingCollection', 'EmbeddingBag',
           'Embedding']

_POOLING = {'sum': 0, 'mean': 1, 'max': 2, 'none': 3}
_AUTO = 0


@dataclasses.dataclass
class EmbeddingBagConfig:
    """TorchRec's, with the same fields. `options`: of docs/tables.md, for this table alone."""

    num_embeddings: int
    embedding_dim: int
    name: str = ''
    feature_names: list[str] = dataclasses.field(default_factory=list)
    pooling: str = 'sum'
    options: dict[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass
class EmbeddingConfig:
    """TorchRec's, with the same fields; for collections that do not pool."""

    num_embeddings: int
    embedding_dim: int
    name: str = ''
    feature_names: list[str] = dataclasses.field(default_factory=list)
    options: dict[str, Any] = dataclasses.field(default_factory=dict)


def _word(pooling: Any) -> str:
    """"sum" of "sum", and of TorchRec's PoolingType.SUM."""
    word = str(getattr(pooling, 'value', pooling)).lower()
    if word not in _POOLING:
        raise errors.InvalidArgument(f'pooling is "{word}"; allowed: {", ".join(_POOLING)}', value=word)
    return word


def _buffer(buffer: Any, rows: int, dim: int) -> torch.Tensor:
    if rows * dim == 0:
        return torch.empty((rows, dim))
    return torch.frombuffer(buffer, dtype=torch.float32).reshape(rows, dim)


class _Lookup(torch.autograd.Function):
    """From the outputs of a forward call to tensors; the gradients go to the module's training."""

    @staticmethod
    def forward(ctx: Any, anchor: torch.Tensor, owner: _Lookups, call: Any,
                device: torch.device) -> tuple[torch.Tensor, ...]:
        ctx.owner, ctx.call = owner, call
        values, batch, columns, features, _ = _hotbed.outputs(call)
        pooled = _buffer(values, batch, columns)
        sequences = [_buffer(s, memoryview(s).nbytes // (4 * dim), dim) if s is not None else torch.empty(0)
                     for _, dim, _, _, s, _ in features]
        return tuple(t.to(device, non_blocking=True) for t in (pooled, *sequences))

    @staticmethod
    def backward(ctx: Any, *gradients: Optional[torch.Tensor]) -> tuple[None, ...]:
        host = tuple(None if g is None or g.numel() == 0 else g.detach().to('cpu') for g in gradients)
        ctx.owner.after_backward(ctx.call, host)
        return None, None, None, None


class _Lookups(torch.nn.Module):
    """Features over tables: forward, backward, and what a checkpoint says about them."""

    def __init__(self, client: Client, features: Sequence[tuple[str, Table, str, bool]]) -> None:
        super().__init__()
        self._client = client
        self._features = [(name, table.name, pooling, by_frequency) for name, table, pooling, by_frequency in features]
        self._tables = sorted({table.name for _, table, _, _ in features})
        self._training = training(client)
        self._training.claim(id(self), self._tables)
        weakref.finalize(self, self._training.release, id(self))
        self._handle = self._make(None)
        self._ahead: Any = None  # of a prefetch that is under way
        # It gives the outputs a gradient. It is no parameter, or DistributedDataParallel would wait for its gradient.
        self._anchor = torch.zeros((), requires_grad=True)
        #: no gradients: the rows stay as they are
        self.freeze = False
        client._owners.add(self)

    def _make(self, look_ahead: Any) -> Any:
        return _hotbed.embeddings(self._client._connection, tuple(
            (name, self._client.table(table)._handle, _POOLING[pooling], name if len(self._features) == 1 else '', by_frequency)
            for name, table, pooling, by_frequency in self._features), _AUTO, look_ahead)

    def _release(self) -> None:
        self._handle = self._ahead = None

    def __getstate__(self) -> dict[str, Any]:
        raise errors.FailedPrecondition('a module of hotbed.torch holds a connection and cannot be copied or pickled; save its '
                                        'state_dict, and make it again')

    @staticmethod
    def batch_of(keys: Sequence[str], lengths: torch.Tensor, values: torch.Tensor,
                 weights: Optional[torch.Tensor]) -> tuple[Any, ...]:
        """What _hotbed takes."""
        if values.is_floating_point():
            raise errors.ArrayError(f'values are {str(values.dtype).replace("torch.", "")}; allowed: integers',
                                    value=str(values.dtype))
        return (tuple(keys), lengths.detach().cpu(), values.detach().cpu(), None if weights is None else weights.detach().cpu())

    def announce(self, batch: tuple[Any, ...]) -> None:
        _hotbed.announce(self._ahead, batch, tracing.current())

    def look_up(self, batch: tuple[Any, ...], device: torch.device) -> tuple[tuple[torch.Tensor, ...], tuple[Any, ...]]:
        """(pooled, sequence of each feature), and the features as _hotbed.outputs describes them."""
        trains = self.training and torch.is_grad_enabled() and not self.freeze
        self._training.before_forward(id(self), trains)
        call = _hotbed.forward(self._handle if self._ahead is None else self._ahead, batch, tracing.current())
        _hotbed.wait(call, None)
        _hotbed.result(call)
        tensors = _Lookup.apply(self._anchor.detach() if self.freeze else self._anchor, self, call, device)
        return tensors, _hotbed.outputs(call)[3]

    def after_backward(self, call: Any, gradients: tuple[Optional[torch.Tensor], ...]) -> None:
        self._training.after_backward(id(self), call, gradients)

    def get_extra_state(self) -> dict[str, Any]:
        """A reference to the tables and the step, not the rows: these are in the cluster."""
        return {'tables': self._tables, 'step': self._training.step}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        if list(state['tables']) != self._tables:
            raise errors.InvalidArgument(f'the state is of tables {state["tables"]}; this module has {self._tables}',
                                         value=str(state['tables']), limit=str(self._tables))
        self._training.step = max(self._training.step, int(state['step']) + 1)


def _tables_of(client: Client, configs: Sequence[Any], optimizer: Optional[optim.Optimizer],
               options: dict[str, Any]) -> list[Table]:
    made = []
    for config in configs:
        given = {**options, **getattr(config, 'options', {})}
        low, high = getattr(config, 'weight_init_min', None), getattr(config, 'weight_init_max', None)
        if low is not None and high is not None:
            given.setdefault('init', f'uniform:{low},{high}')
        made.append(client.create_table(config.name, config.embedding_dim, rows=config.num_embeddings, optimizer=optimizer,
                                        if_not_exists=True, **given))
    return made


class EmbeddingBagCollection(_Lookups):
    """TorchRec's EmbeddingBagCollection: pooled features of several tables.

    Args:
        tables: configurations, ours or TorchRec's. Tables that do not exist are created.
        is_weighted: ids have weights.
        device: of the outputs; default: the device of the values.
        client, optimizer: where the tables are, and how they are updated, as backward runs. There is nothing to do in
            `optimizer.step()`.
        options: of all tables (docs/tables.md).

    Forward takes a KeyedJaggedTensor and returns a KeyedTensor: values (samples, sum of dims).
    """

    def __init__(self, tables: Sequence[Any], is_weighted: bool = False, device: Optional[torch.device] = None, *,
                 client: Client, optimizer: Optional[optim.Optimizer] = None, **options: Any) -> None:
        made = _tables_of(client, tables, optimizer, options)
        super().__init__(client, [(feature, table, _word(config.pooling), False)
                                  for config, table in zip(tables, made) for feature in config.feature_names])
        self._configs = list(tables)
        self._is_weighted = is_weighted
        self._device = device

    def embedding_bag_configs(self) -> list[Any]:
        return self._configs

    def is_weighted(self) -> bool:
        return self._is_weighted

    def batch(self, features: Any) -> tuple[Any, ...]:
        weights = features.weights_or_none() if self._is_weighted else None
        return self.batch_of(features.keys(), features.lengths(), features.values(), weights)

    def forward(self, features: Any) -> Any:
        device = self._device or features.values().device
        (pooled, *_), described = self.look_up(self.batch(features), device)
        form = KeyedTensor if isinstance(features, KeyedJaggedTensor) else _torchrec().KeyedTensor
        return form([f[0] for f in described], [f[1] for f in described], pooled)


class EmbeddingCollection(_Lookups):
    """TorchRec's EmbeddingCollection: one row per id. Forward returns a dict of JaggedTensors by feature."""

    def __init__(self, tables: Sequence[Any], device: Optional[torch.device] = None, *, client: Client,
                 optimizer: Optional[optim.Optimizer] = None, **options: Any) -> None:
        made = _tables_of(client, tables, optimizer, options)
        super().__init__(client, [(feature, table, 'none', False)
                                  for config, table in zip(tables, made) for feature in config.feature_names])
        self._configs = list(tables)
        self._device = device

    def embedding_configs(self) -> list[Any]:
        return self._configs

    def batch(self, features: Any) -> tuple[Any, ...]:
        return self.batch_of(features.keys(), features.lengths(), features.values(), None)

    def forward(self, features: Any) -> dict[str, Any]:
        device = self._device or features.values().device
        (_, *rows), described = self.look_up(self.batch(features), device)
        form = JaggedTensor if isinstance(features, KeyedJaggedTensor) else _torchrec().JaggedTensor
        return {f[0]: form(row, lengths=torch.frombuffer(f[5], dtype=torch.int32).to(device))
                for f, row in zip(described, rows)}


def _table_of(client: Client, name: str, rows: int, dim: int, padding_idx: Optional[int], max_norm: Optional[float],
              norm_type: float, optimizer: Optional[optim.Optimizer], options: dict[str, Any]) -> Table:
    if max_norm is not None:
        p = 0.0 if norm_type == float('inf') else float(norm_type)
        optimizer = dataclasses.replace(optimizer or optim.RowWiseAdagrad(), max_norm=max_norm, max_norm_type=p)
        if not options.get('compose') and options.get('histogram') is None:
            reach = max_norm / (dim ** (1 / p) if p else 1.0)
            options = {'init': f'uniform:{-reach},{reach}', **options}
    histogram = options.get('histogram')
    if histogram is None:
        options = {'rows': rows, **options}
    elif len(histogram) != rows:
        raise errors.InvalidArgument(f'histogram has {len(histogram)} counts; allowed: num_embeddings, {rows}',
                                     value=str(len(histogram)), limit=str(rows))
    return client.create_table(name, dim, optimizer=optimizer, padding_id=padding_idx, if_not_exists=True, **options)


class _OneTable(_Lookups):
    """What EmbeddingBag and Embedding share."""

    def __init__(self, client: Client, table: Table, pooling: str, by_frequency: bool) -> None:
        super().__init__(client, [('input', table, pooling, by_frequency)])
        self.num_embeddings, self.embedding_dim = table.rows, table.dim

    def get_weights(self) -> list[torch.Tensor]:
        """All rows: [weight], or of a composed table those of its parts, as [rows, map] of one block."""
        return [torch.from_numpy(rows) for rows in self._client.table(self._tables[0]).get_weights()]

    @classmethod
    def from_pretrained(cls, weights: Union[torch.Tensor, Sequence[torch.Tensor]], freeze: bool = True, *, client: Client,
                        name: str, num_embeddings: Optional[int] = None, embedding_dim: Optional[int] = None,
                        **options: Any) -> Any:
        """A module over a new table of these weights, as torch.nn's. `freeze`: they are not trained.

        Of a composed table, `weights` are those of its parts, in the order of `get_weights`; num_embeddings and
        embedding_dim follow from them for blocks, and are given otherwise.
        """
        from hotbed.torch.converting import import_weights

        parts = [weights] if isinstance(weights, torch.Tensor) else list(weights)
        if isinstance(weights, torch.Tensor):
            num_embeddings, embedding_dim = weights.shape
        elif options.get('compose') == 'block' and len(parts) == 2:
            num_embeddings, embedding_dim = parts[0].shape[0], parts[1].shape[0]
            options.setdefault('block_dims', parts[0].shape[1])
        if num_embeddings is None or embedding_dim is None:
            raise errors.InvalidArgument('the parts of this composition do not say its size; allowed: with num_embeddings and '
                                         'embedding_dim')
        made = cls(num_embeddings, embedding_dim, client=client, name=name, **options)
        import_weights(client, client.table(name), parts if len(parts) > 1 else parts[0])
        made.freeze = freeze
        return made


class EmbeddingBag(_OneTable):
    """torch.nn.EmbeddingBag over a table. `client` and `name` say which; it is created if it does not exist.

    `options` are those of docs/tables.md; with `compose` the table is composed (docs/composed.md). `max_norm` limits the norm
    of a row after each update, and of its first value.
    """

    def __init__(self, num_embeddings: int, embedding_dim: int, *, client: Client, name: str, mode: str = 'mean',
                 include_last_offset: bool = False, padding_idx: Optional[int] = None, max_norm: Optional[float] = None,
                 norm_type: float = 2.0, scale_grad_by_freq: bool = False, optimizer: Optional[optim.Optimizer] = None,
                 **options: Any) -> None:
        table = _table_of(client, name, num_embeddings, embedding_dim, padding_idx, max_norm, norm_type, optimizer, options)
        super().__init__(client, table, _word(mode), scale_grad_by_freq)
        self.mode = mode
        self.include_last_offset = include_last_offset

    def forward(self, input: torch.Tensor, offsets: Optional[torch.Tensor] = None,
                per_sample_weights: Optional[torch.Tensor] = None) -> torch.Tensor:
        """`input` (bags, length), or (ids,) with `offsets` (bags,). Returns (bags, embedding_dim)."""
        if per_sample_weights is not None:
            if per_sample_weights.requires_grad:
                raise errors.InvalidArgument('per_sample_weights require a gradient, which this module does not compute')
            per_sample_weights = per_sample_weights.reshape(-1)
        if input.dim() == 2:
            lengths = torch.full((input.shape[0],), input.shape[1], dtype=torch.int64)
        elif offsets is None:
            raise errors.InvalidArgument('input has one dimension and no offsets are given; allowed: offsets, or input of shape '
                                         '(bags, length)')
        else:
            ends = offsets[1:] if self.include_last_offset else torch.cat([offsets[1:], offsets.new_tensor([len(input)])])
            lengths = ends - (offsets[:-1] if self.include_last_offset else offsets)
        batch = self.batch_of(['input'], lengths, input.reshape(-1), per_sample_weights)
        return self.look_up(batch, input.device)[0][0]


class Embedding(_OneTable):
    """torch.nn.Embedding over a table: ids of shape S give (S, embedding_dim). The rest as EmbeddingBag."""

    def __init__(self, num_embeddings: int, embedding_dim: int, *, client: Client, name: str,
                 padding_idx: Optional[int] = None, max_norm: Optional[float] = None, norm_type: float = 2.0,
                 scale_grad_by_freq: bool = False, optimizer: Optional[optim.Optimizer] = None, **options: Any) -> None:
        table = _table_of(client, name, num_embeddings, embedding_dim, padding_idx, max_norm, norm_type, optimizer, options)
        super().__init__(client, table, 'none', scale_grad_by_freq)

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        batch = self.batch_of(['input'], torch.tensor([input.numel()]), input.reshape(-1), None)
        rows = self.look_up(batch, input.device)[0][1]
        return rows.reshape(*input.shape, self.embedding_dim)


def _torchrec() -> Any:
    from torchrec.sparse import jagged_tensor  # the caller's batch comes from there

    return jagged_tensor


Collection = Union[EmbeddingBagCollection, EmbeddingCollection]
