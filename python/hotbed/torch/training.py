"""When the gradients of a client's modules are pushed, and as which step."""

from __future__ import annotations

import contextlib
import weakref
from typing import Any, Iterator, Optional

import torch

from hotbed import _hotbed, errors, tracing
from hotbed.client import Client
from hotbed.futures import Future, PushResult, push_result

__all__ = ['Training', 'training', 'GradScaler']

_of_client: weakref.WeakKeyDictionary[Client, Training] = weakref.WeakKeyDictionary()


def training(client: Client) -> Training:
    """The training of a client: one for all of its modules."""
    found = _of_client.get(client)
    if found is None:
        found = _of_client[client] = Training(client)
        client._owners.add(found)
    return found


class _Backward:
    """What backward has computed for one forward of one module."""

    def __init__(self, call: Any, gradients: tuple[Optional[torch.Tensor], ...]) -> None:
        self.call = call
        self.gradients = gradients

    def finite(self) -> bool:
        return all(bool(torch.isfinite(g).all()) for g in self.gradients if g is not None)


class Training:
    """Pushes gradients as backward computes them.

    A step is over when a module that has pushed is run forward again. All pushes of a step carry its number, which the
    exactly-once of a session and the bias correction of Adam count by. A forward waits for the pushes of the step before,
    so it reads what they wrote.
    """

    def __init__(self, client: Client) -> None:
        self._client = weakref.ref(client)
        #: the step that is under way; set it after a restart, before the first forward (state_dict does)
        self.step = 1
        #: learning rate of the pushes; None: the tables' own, by their schedules
        self.lr: Optional[float] = None
        #: of the whole push of a module; 0: off
        self.clip_global_norm = 0.0
        #: gradients are multiplied by it; None: 1 / number of ranks where torch.distributed runs, for a mean over all
        self.scale: Optional[float] = None
        self._pushed: set[int] = set()  # modules, in this step
        self._waiting: dict[int, int] = {}  # by module: forwards of this step whose backward is to come
        self._kept: dict[int, list[_Backward]] = {}
        self._pushes: list[Any] = []  # with result()
        self._holding = False
        self._tables: dict[str, int] = {}

    def _release(self) -> None:
        with contextlib.suppress(errors.HotbedError):
            self.wait()

    def claim(self, module: int, tables: list[str]) -> None:
        """A table is trained by one module, since a step has one push per table."""
        for name in tables:
            if self._tables.setdefault(name, module) != module:
                raise errors.InvalidArgument(
                    f'table {name} is trained by another module of this client already; put its features into one '
                    'collection, or use that module twice', table=name)

    def release(self, module: int) -> None:
        self._tables = {name: owner for name, owner in self._tables.items() if owner != module}

    def wait(self) -> None:
        """Waits for all pushes. Raises the first error of one."""
        pushes, self._pushes = self._pushes, []
        for push in pushes:
            push.result()

    def begin(self, module: int, trains: bool) -> None:
        """A forward of `module` reads what the step before wrote; one that trains may begin the next step."""
        self.wait()
        if trains and module in self._pushed:
            self.step += 1
            self._pushed.clear()
            self._waiting.clear()

    def pushed(self, module: int, push: Any) -> None:
        """`module` has begun the push of this step; push.result() waits for it."""
        self._pushes.append(push)
        self._pushed.add(module)

    def before_forward(self, module: int, trains: bool) -> None:
        self.begin(module, trains)
        if not trains:
            return
        self._waiting[module] = self._waiting.get(module, 0) + 1

    def after_backward(self, module: int, call: Any, gradients: tuple[Optional[torch.Tensor], ...]) -> None:
        self._kept.setdefault(module, []).append(_Backward(call, gradients))
        self._waiting[module] = self._waiting.get(module, 1) - 1
        if self._waiting[module] <= 0 and not self._holding:
            self._push(module, 1.0)

    def _push(self, module: int, scale: float) -> None:
        kept = self._kept.pop(module, [])
        if not kept:
            return
        scale *= self._scale()
        options = (None, self.lr, False, scale, self.clip_global_norm, tracing.current())
        if len(kept) == 1:
            pooled, *sequences = kept[0].gradients
            call = _hotbed.backward(kept[0].call, self.step, pooled, tuple(sequences), options)
        else:
            summed = _hotbed.sum_gradients(tuple((b.call, b.gradients[0], tuple(b.gradients[1:])) for b in kept))
            call = _hotbed.push_gradients(kept[0].call, summed, self.step, options)
        self.pushed(module, Future(call, push_result))

    def _scale(self) -> float:
        if self.scale is not None:
            return self.scale
        distributed = torch.distributed.is_available() and torch.distributed.is_initialized()
        return 1.0 / torch.distributed.get_world_size() if distributed else 1.0

    @contextlib.contextmanager
    def accumulate(self, scale: float = 1.0) -> Iterator[None]:
        """Several backwards are one push, at the end of the block: `with training.accumulate(scale=1 / k): ...`."""
        self._holding = True
        try:
            yield
        except BaseException:
            self.drop()
            raise
        finally:
            self._holding = False
        self.push(scale)

    def push(self, scale: float = 1.0) -> None:
        """Pushes what `hold` and `accumulate` kept, times `scale`."""
        for module in list(self._kept):
            self._push(module, scale)
        self._waiting.clear()

    def drop(self) -> None:
        """Forgets it."""
        self._kept.clear()
        self._waiting.clear()

    def finite(self) -> bool:
        """Whether all gradients that are kept are finite."""
        return all(b.finite() for kept in self._kept.values() for b in kept)


class GradScaler:
    """Loss scaling, as torch.cuda.amp.GradScaler's, over the dense optimizer and the tables together.

    A step whose gradients overflow anywhere is skipped everywhere: neither the optimizer steps nor anything is pushed.
    Works on the CPU, too::

        scaler = hotbed.torch.GradScaler(client)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    """

    def __init__(self, client: Client, init_scale: float = 65536.0, growth_factor: float = 2.0, backoff_factor: float = 0.5,
                 growth_interval: int = 2000) -> None:
        self._training = training(client)
        self._training._holding = True
        self._scale = init_scale
        self._growth_factor = growth_factor
        self._backoff_factor = backoff_factor
        self._growth_interval = growth_interval
        self._good = 0
        self._overflowed = False

    def scale(self, loss: torch.Tensor) -> torch.Tensor:
        return loss * self._scale

    def get_scale(self) -> float:
        return self._scale

    def step(self, optimizer: Optional[torch.optim.Optimizer] = None) -> bool:
        """Whether the step was taken. With torch.distributed, all ranks take it or none."""
        groups = optimizer.param_groups if optimizer is not None else []
        gradients = [p.grad for group in groups for p in group['params'] if p.grad is not None]
        finite = self._training.finite() and all(bool(torch.isfinite(g).all()) for g in gradients)
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            vote = torch.tensor([1.0 if finite else 0.0])
            torch.distributed.all_reduce(vote, torch.distributed.ReduceOp.MIN)
            finite = bool(vote.item() > 0)
        self._overflowed = not finite
        if not finite:
            self._training.drop()
            return False
        for gradient in gradients:
            gradient.div_(self._scale)
        if optimizer is not None:
            optimizer.step()
        self._training.push(1.0 / self._scale)
        return True

    def update(self) -> None:
        """Halves the scale after an overflow; doubles it after `growth_interval` good steps."""
        self._good = 0 if self._overflowed else self._good + 1
        if self._overflowed:
            self._scale *= self._backoff_factor
        elif self._good == self._growth_interval:
            self._scale *= self._growth_factor
            self._good = 0
