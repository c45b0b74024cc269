"""Optimizers, which run on the servers, fused with each push. docs/tables.md has the formulas.

    hotbed.optim.RowWiseAdagrad(lr=0.05)

`lr` is for pushes that carry no learning rate. Arguments that all take: `weight_decay` (0), `decay_mode` ("l2" or
"decoupled"), `lazy_decay`, `clip_value`, `clip_row_norm`, `max_norm` (0: off), `state_type` ("fp32" or "bf16").
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar, Optional, Union

__all__ = [
    'Optimizer', 'SGD', 'MomentumSGD', 'Adagrad', 'RowWiseAdagrad', 'Adam', 'AdamW', 'AMSGrad', 'PartialRowWiseAdam', 'LAMB',
    'PartialRowWiseLAMB', 'LARS', 'FTRL', 'RMSProp', 'RowWiseRMSProp', 'Lion', 'Adadelta', 'NoOptimizer',
    'RowWiseAdagradCounter',
]

_NAMES = {'lr': 'learning-rate', 'eps': 'epsilon'}


@dataclasses.dataclass(frozen=True)
class Optimizer:
    """Base of all. None: the default of docs/tables.md."""

    kind: ClassVar[str] = ''
    lr: float = 0.01
    weight_decay: Optional[float] = None
    decay_mode: Optional[str] = None
    lazy_decay: Optional[bool] = None
    lazy_decay_least: Optional[float] = None
    clip_value: Optional[float] = None
    clip_row_norm: Optional[float] = None
    max_norm: Optional[float] = None
    max_norm_type: Optional[float] = None
    state_type: Optional[str] = None

    def options(self) -> dict[str, Union[str, int, float, bool]]:
        """The table options that it stands for, by name."""
        found: dict[str, Union[str, int, float, bool]] = {'optimizer': self.kind}
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if value is not None:
                found[_NAMES.get(field.name, field.name.replace('_', '-'))] = value
        return found


@dataclasses.dataclass(frozen=True)
class SGD(Optimizer):
    kind = 'sgd'


@dataclasses.dataclass(frozen=True)
class MomentumSGD(Optimizer):
    kind = 'momentum-sgd'
    momentum: float = 0.9


@dataclasses.dataclass(frozen=True)
class Adagrad(Optimizer):
    kind = 'adagrad'
    eps: float = 1e-8
    initial_accumulator: float = 0.0


@dataclasses.dataclass(frozen=True)
class RowWiseAdagrad(Optimizer):
    """One sum of squares per row: FBGEMM's EXACT_ROWWISE_ADAGRAD."""

    kind = 'rowwise-adagrad'
    eps: float = 1e-8
    initial_accumulator: float = 0.0


@dataclasses.dataclass(frozen=True)
class RowWiseAdagradCounter(Optimizer):
    kind = 'rowwise-adagrad-counter'
    eps: float = 1e-8
    initial_accumulator: float = 0.0
    counter_mode: str = 'decay'
    counter_half_life: Optional[float] = None
    counter_from_step: Optional[int] = None
    counter_threshold: Optional[float] = None
    counter_max: Optional[float] = None
    counter_power: Optional[float] = None
    clip_coefficient: Optional[float] = None
    clip_least: Optional[float] = None


@dataclasses.dataclass(frozen=True)
class Adam(Optimizer):
    kind = 'adam'
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    row_bias_correction: Optional[bool] = None


@dataclasses.dataclass(frozen=True)
class AdamW(Adam):
    kind = 'adamw'


@dataclasses.dataclass(frozen=True)
class AMSGrad(Adam):
    kind = 'amsgrad'


@dataclasses.dataclass(frozen=True)
class PartialRowWiseAdam(Adam):
    kind = 'partial-rowwise-adam'


@dataclasses.dataclass(frozen=True)
class LAMB(Adam):
    kind = 'lamb'


@dataclasses.dataclass(frozen=True)
class PartialRowWiseLAMB(Adam):
    kind = 'partial-rowwise-lamb'


@dataclasses.dataclass(frozen=True)
class LARS(Optimizer):
    kind = 'lars'
    momentum: float = 0.9
    trust_coefficient: float = 0.001


@dataclasses.dataclass(frozen=True)
class FTRL(Optimizer):
    kind = 'ftrl'
    l1: float = 0.0
    l2: float = 0.0
    ftrl_beta: float = 1.0
    initial_accumulator: float = 0.0


@dataclasses.dataclass(frozen=True)
class RMSProp(Optimizer):
    kind = 'rmsprop'
    beta2: float = 0.999
    eps: float = 1e-8


@dataclasses.dataclass(frozen=True)
class RowWiseRMSProp(RMSProp):
    kind = 'rowwise-rmsprop'


@dataclasses.dataclass(frozen=True)
class Lion(Optimizer):
    kind = 'lion'
    beta1: float = 0.9
    beta2: float = 0.999


@dataclasses.dataclass(frozen=True)
class Adadelta(Optimizer):
    kind = 'adadelta'
    beta2: float = 0.9
    eps: float = 1e-6


@dataclasses.dataclass(frozen=True)
class NoOptimizer(Optimizer):
    """Rows are assigned only; pushes of gradients are refused."""

    kind = 'none'
