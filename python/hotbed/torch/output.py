"""Tables as output layers: softmax cross-entropy over their rows, computed where they are (docs/output_layer.md)."""

from __future__ import annotations

import concurrent.futures
import weakref
from typing import Any, Optional

import torch

from hotbed import _hotbed, errors, optim
from hotbed.client import Client, Table
from hotbed.torch.training import training

__all__ = ['VocabParallelCrossEntropy', 'SampledSoftmaxLoss']

_REDUCTIONS = ('mean', 'sum', 'none')


class _CrossEntropy(torch.autograd.Function):
    """Losses per token; the gradients of the rows go to the table."""

    @staticmethod
    def forward(ctx: Any, anchor: torch.Tensor, hidden: torch.Tensor, owner: _OutputLayer, run: Any) -> torch.Tensor:
        ctx.owner, ctx.run, ctx.like = owner, run, hidden
        return torch.frombuffer(bytearray(_hotbed.output_result(run)[0]), dtype=torch.float32).to(hidden.device)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> tuple[Optional[torch.Tensor], ...]:
        scales = gradients[0].detach().to('cpu', torch.float32).contiguous()
        gradient = torch.empty(ctx.like.shape, dtype=torch.float32)
        _hotbed.output_backward(ctx.run, scales, gradient)
        ctx.owner._after_backward(ctx.run)
        return None, gradient.to(ctx.like.device, ctx.like.dtype), None, None


class _TiedLookup(torch.autograd.Function):
    """Rows of the layer's own table; their gradient becomes a part of the layer's."""

    @staticmethod
    def forward(ctx: Any, anchor: torch.Tensor, owner: VocabParallelCrossEntropy, ids: torch.Tensor) -> torch.Tensor:
        ctx.owner, ctx.ids = owner, ids
        return owner.table.pull(ids)[:, :owner.hidden_dim].contiguous()

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> tuple[None, ...]:
        ctx.owner._after_lookup(ctx.ids, gradients[0].detach().to('cpu', torch.float32))
        return None, None, None


class _OutputLayer(torch.nn.Module):
    """A layer and its place in the training of its client: a step has one batch of it, which is pushed in the background."""

    def __init__(self, client: Client, table: Table, hidden_dim: int, ignore_index: int, reduction: str) -> None:
        super().__init__()
        if reduction not in _REDUCTIONS:
            raise errors.InvalidArgument(f'reduction is "{reduction}"; allowed: {", ".join(_REDUCTIONS)}', value=reduction)
        self.table, self.hidden_dim, self.ignore_index, self.reduction = table, hidden_dim, ignore_index, reduction
        self._training = training(client)
        self._training.claim(id(self), [table.name])
        weakref.finalize(self, self._training.release, id(self))
        self._anchor = torch.zeros((), requires_grad=True)  # gives the losses a gradient
        self._pusher = concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix='hotbed-output')
        self._lookups = 0  # of this step, whose backward is to come
        self._added: list[tuple[torch.Tensor, torch.Tensor]] = []
        self._run: Any = None  # whose backward has come, and that waits for those of lookups
        #: of the last forward: accuracy and bits per token over the tokens that are not ignored, bytes of its messages
        self.accuracy, self.bits_per_token, self.wire_bytes = 0.0, 0.0, 0
        client._owners.add(self)

    def _release(self) -> None:
        self._pusher.shutdown()

    def __getstate__(self) -> dict[str, Any]:
        raise errors.FailedPrecondition('a module of hotbed.torch holds a connection and cannot be copied or pickled; save its '
                                        'state_dict, and make it again')

    def _handle(self) -> Any:
        raise NotImplementedError

    def _begin(self) -> bool:
        """Whether this forward trains. It begins a step if this module has pushed in the one under way."""
        trains = self.training and torch.is_grad_enabled()
        if trains and self._training._holding:
            raise errors.InvalidArgument('an output layer takes no part in accumulated or scaled gradients; put the tokens of a '
                                         'step into one batch', table=self.table.name)
        self._training.begin(id(self), trains)
        return trains

    def _after_backward(self, run: Any) -> None:
        self._run = run
        self._push_if_complete()

    def _after_lookup(self, ids: torch.Tensor, gradient: torch.Tensor) -> None:
        self._lookups -= 1
        self._added.append((ids, gradient))
        self._push_if_complete()

    def _push_if_complete(self) -> None:
        if self._run is None or self._lookups > 0:
            return
        run, added = self._run, self._added
        self._run, self._added = None, []
        ids, gradients = (None, None) if not added else (torch.cat([i for i, _ in added]), torch.cat([g for _, g in added]))
        if gradients is not None and gradients.shape[1] < self.table.dim:  # a lookup has no bias
            gradients = torch.nn.functional.pad(gradients, (0, self.table.dim - gradients.shape[1]))
        step, rate, scale = self._training.step, self._training.lr, self._training._scale()
        self._training.pushed(id(self), self._pusher.submit(_hotbed.output_push, run, step, rate, scale, ids, gradients))

    def forward(self, hidden: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """`hidden` of shape (..., hidden_dim), `targets` of shape (...). The loss, by `reduction`."""
        if hidden.shape[-1:] != (self.hidden_dim,) or hidden.shape[:-1] != targets.shape:
            raise errors.ArrayError(f'hidden has shape {tuple(hidden.shape)} and targets {tuple(targets.shape)}; allowed: '
                                    f'(..., {self.hidden_dim}) and (...), as table {self.table.name} has dim {self.table.dim}')
        if self._begin() and self._run is not None:
            raise errors.InvalidArgument('the batch before waits for the backward of a lookup; a step has one batch of an output '
                                         'layer', table=self.table.name)
        flat = hidden.reshape(-1, self.hidden_dim)
        run = _hotbed.output_forward(self._handle(), flat.detach().to('cpu', torch.float32).contiguous(),
                                     targets.detach().to('cpu', torch.int64).reshape(-1).contiguous())
        _, correct, tokens, self.bits_per_token, self.wire_bytes = _hotbed.output_result(run)
        self.accuracy = sum(correct) / max(tokens, 1)
        losses = _CrossEntropy.apply(self._anchor, flat, self, run)
        if self.reduction == 'none':
            return losses.reshape(targets.shape)
        return losses.sum() / max(tokens, 1) if self.reduction == 'mean' else losses.sum()

    def get_extra_state(self) -> dict[str, Any]:
        """A reference to the table and the step, not the rows: these are in the cluster."""
        return {'table': self.table.name, 'step': self._training.step}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        if state['table'] != self.table.name:
            raise errors.InvalidArgument(f'the state is of table {state["table"]}; this module has {self.table.name}',
                                         value=str(state['table']), limit=self.table.name)
        self._training.step = max(self._training.step, int(state['step']) + 1)


class VocabParallelCrossEntropy(_OutputLayer):
    """A linear layer and torch.nn.CrossEntropyLoss over a table, whose rows are the classes.

    Args:
        num_classes, hidden_dim: the table has as many rows, and this dim, or one more with `bias`.
        client, name: where the table is; it is created if it does not exist.
        bias: the last column of a row is the bias of its class.
        label_smoothing, ignore_index, reduction: as CrossEntropyLoss has them; "mean" is over tokens that are not ignored.
        z_loss: factor of the square of log Z, which is added to each token's loss.
        z_loss_shifted: Z is the sum of exp(logit - largest logit), and the mean over the tokens is added to each.
        optimizer, options: of the table (docs/tables.md).

    Backward computes the gradient of the hidden states, and has the servers apply those of the rows. With tied embeddings,
    `embedding(ids)` looks rows of the same table up; its gradient enters the same update.
    """

    def __init__(self, num_classes: int, hidden_dim: int, *, client: Client, name: str, bias: bool = False,
                 label_smoothing: float = 0.0, z_loss: float = 0.0, z_loss_shifted: bool = False, ignore_index: int = -100,
                 reduction: str = 'mean', deadline: Optional[float] = None, optimizer: Optional[optim.Optimizer] = None,
                 **options: Any) -> None:
        table = client.create_table(name, hidden_dim + int(bias), rows=num_classes, optimizer=optimizer, if_not_exists=True,
                                    **options)
        super().__init__(client, table, hidden_dim, ignore_index, reduction)
        self._layer = _hotbed.output_layer(table._handle, bias, label_smoothing, z_loss, z_loss_shifted, ignore_index, deadline)

    def _handle(self) -> Any:
        return self._layer

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """All logits, of shape (..., num_classes) and without a gradient: to look at a model, as all of them travel."""
        if hidden.shape[-1:] != (self.hidden_dim,):
            raise errors.ArrayError(f'hidden has shape {tuple(hidden.shape)}; allowed: (..., {self.hidden_dim})')
        self._begin()
        found = _hotbed.output_logits(self._layer, hidden.detach().to('cpu', torch.float32).contiguous())
        return torch.frombuffer(bytearray(found), dtype=torch.float32).reshape(*hidden.shape[:-1], self.table.rows)

    def embedding(self, ids: torch.Tensor) -> torch.Tensor:
        """The rows of `ids`, of shape (..., hidden_dim), without the bias."""
        trains = self._begin()
        self._lookups += int(trains)
        rows = _TiedLookup.apply(self._anchor, self, ids.detach().to('cpu').reshape(-1).contiguous())
        return rows.to(ids.device).reshape(*ids.shape, self.hidden_dim)


class SampledSoftmaxLoss(_OutputLayer):
    """The cross-entropy over the target and a sample of classes, shared by the tokens of a batch.

    Args:
        num_classes, hidden_dim, client, name, bias, ignore_index, reduction, optimizer, options: as in
            VocabParallelCrossEntropy.
        samples: classes of a batch.
        counts: how often each class occurs, and so is drawn; default: log-uniform, for classes in the order of frequency.
        power: of the counts.
        distinct: draws until all classes of the sample differ.
        seed: of the samples.

    In `eval()` it is the loss over all classes.
    """

    def __init__(self, num_classes: int, hidden_dim: int, samples: int, *, client: Client, name: str, counts: Any = None,
                 power: float = 1.0, distinct: bool = True, seed: int = 0, bias: bool = False, ignore_index: int = -100,
                 reduction: str = 'mean', deadline: Optional[float] = None, optimizer: Optional[optim.Optimizer] = None,
                 **options: Any) -> None:
        table = client.create_table(name, hidden_dim + int(bias), rows=num_classes, optimizer=optimizer, if_not_exists=True,
                                    **options)
        super().__init__(client, table, hidden_dim, ignore_index, reduction)
        self._sampled = _hotbed.sampled_layer(table._handle, samples, distinct, seed, counts, power, bias, ignore_index, deadline)
        self._full = _hotbed.output_layer(table._handle, bias, 0.0, 0.0, False, ignore_index, deadline)

    def _handle(self) -> Any:
        return self._sampled if self.training else self._full
