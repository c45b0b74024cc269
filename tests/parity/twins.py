"""Every optimizer in double precision, as its source has it: one function each over the touched rows.

w and the arrays of state `s` are [touched rows, dim], scalars of a row [touched rows, 1]; g is the summed gradient, t the step
(or the row's own count). Sources: FBGEMM (codegen/genscript/optimizers.py) for the row-wise and partial kinds, LAMB and LARS;
H. B. McMahan et al., KDD 2013 for FTRL; PyTorch for the others.
"""

import numpy as np


def _norm(x):
    return np.sqrt((x * x).sum(1, keepdims=True))


def _mean_square(x):
    return (x * x).mean(1, keepdims=True)


def sgd(w, g, s, o, lr, t):
    return w - lr * g


def momentum_sgd(w, g, s, o, lr, t):
    s["m"] = o["momentum"] * s["m"] + g
    return w - lr * s["m"]


def adagrad(w, g, s, o, lr, t):
    s["m"] += g * g
    return w - lr * g / (np.sqrt(s["m"]) + o["eps"])


def rowwise_adagrad(w, g, s, o, lr, t):
    s["row"] += _mean_square(g)
    return w - lr * g / (np.sqrt(s["row"]) + o["eps"])


def rmsprop(w, g, s, o, lr, t):
    s["m"] = o["beta2"] * s["m"] + (1 - o["beta2"]) * g * g
    return w - lr * g / (np.sqrt(s["m"]) + o["eps"])


def rowwise_rmsprop(w, g, s, o, lr, t):
    s["row"] = o["beta2"] * s["row"] + (1 - o["beta2"]) * _mean_square(g)
    return w - lr * g / (np.sqrt(s["row"]) + o["eps"])


def lion(w, g, s, o, lr, t):
    step = np.sign(o["beta1"] * s["m"] + (1 - o["beta1"]) * g)
    s["m"] = o["beta2"] * s["m"] + (1 - o["beta2"]) * g
    return w - lr * step


def adadelta(w, g, s, o, lr, t):
    s["m"] = o["beta2"] * s["m"] + (1 - o["beta2"]) * g * g
    step = np.sqrt(s["v"] + o["eps"]) / np.sqrt(s["m"] + o["eps"]) * g
    s["v"] = o["beta2"] * s["v"] + (1 - o["beta2"]) * step * step
    return w - lr * step


def _direction(g, s, o, t, second):
    """m^ / (sqrt(v^) + eps), the second moment per element or per row."""
    s["m"] = o["beta1"] * s["m"] + (1 - o["beta1"]) * g
    s[second] = o["beta2"] * s[second] + (1 - o["beta2"]) * (_mean_square(g) if second == "row" else g * g)
    return s["m"] / (1 - o["beta1"] ** t) / (np.sqrt(s[second] / (1 - o["beta2"] ** t)) + o["eps"])


def adam(w, g, s, o, lr, t):
    return w - lr * _direction(g, s, o, t, "v")


def amsgrad(w, g, s, o, lr, t):
    _direction(g, s, o, t, "v")
    s["most"] = np.maximum(s["most"], s["v"])
    return w - lr * s["m"] / (1 - o["beta1"] ** t) / (np.sqrt(s["most"] / (1 - o["beta2"] ** t)) + o["eps"])


def rowwise_adagrad_counter(w, g, s, o, lr, t):
    """FBGEMM's rowwise_adagrad_with_counter; o["gap"]: steps since the row's last update."""
    wd, mode, half, l2 = o["weight-decay"], o["counter-mode"], o["counter-half-life"], o["decay-mode"] == "l2"
    s["count"] = 1 + (0.5 ** (o["gap"] / half) if half > 0 else 1) * s["count"]
    count = s["count"]
    d = g + wd * w if l2 else g
    s["row"] += _mean_square(d)
    rate = plain = lr / (np.sqrt(s["row"]) + o["eps"])
    if mode == "cowclip":
        limit = count * np.maximum(o["clip-coefficient"] * _norm(w), o["clip-least"])
        rate = plain * np.minimum(1, limit / _norm(d))
        return (1 - wd * (rate if l2 else lr)) * w - rate * g
    steps = t - o["counter-from-step"]
    if steps <= 0:
        return w - plain * g
    if mode == "adagradw":
        shrink = 1 - wd * lr
        lazy = shrink ** (np.minimum(o["gap"], steps) - 1)
        return shrink * lazy * w - plain * np.sqrt(count) * lazy * g
    if mode == "tail-increase":
        rate = plain * np.clip((o["counter-max"] / (count + 1)) ** o["counter-power"], 1, 10)
    elif mode == "tail-decrease":
        rate = plain * np.clip(((count + 1) / o["counter-max"]) ** o["counter-power"], 0.1, 1)
    elif mode == "counter-sgd":
        rate = lr / (np.sqrt(o["counter-power"] * count) + o["eps"])
    rate = np.where(count > o["counter-threshold"], rate, plain)
    return (1 - (half / count if half > 0 else 1) * wd * (plain if l2 else lr)) * w - rate * g


def partial_rowwise_adam(w, g, s, o, lr, t):
    return w - lr * _direction(g, s, o, t, "row")


def _lamb(w, g, s, o, lr, t, second):
    r = _direction(g, s, o, t, second) + o["weight-decay"] * w
    above, below = _norm(w), _norm(r)
    ratio = np.where((above == 0) | (below == 0), 1.0, above / np.where(below == 0, 1.0, below))
    return w - lr * ratio * r


def lamb(w, g, s, o, lr, t):
    return _lamb(w, g, s, o, lr, t, "v")


def partial_rowwise_lamb(w, g, s, o, lr, t):
    return _lamb(w, g, s, o, lr, t, "row")


def lars(w, g, s, o, lr, t):
    above = _norm(w)
    below = _norm(g) + o["weight-decay"] * above
    zero = (above == 0) | (below == 0)
    rate = np.where(zero, lr, lr * o["trust-coefficient"] * above / np.where(below == 0, 1.0, below))
    s["m"] = o["momentum"] * s["m"] + rate * (g + o["weight-decay"] * w)
    return w - s["m"]


def ftrl(w, g, s, o, lr, t):
    sigma = (np.sqrt(s["v"] + g * g) - np.sqrt(s["v"])) / lr
    s["m"] += g - sigma * w
    s["v"] += g * g
    below = (o["ftrl-beta"] + np.sqrt(s["v"])) / lr + o["l2"]
    return np.where(np.abs(s["m"]) <= o["l1"], 0.0, -(s["m"] - np.sign(s["m"]) * o["l1"]) / below)


RULES = {"sgd": sgd, "momentum-sgd": momentum_sgd, "adagrad": adagrad, "rowwise-adagrad": rowwise_adagrad,
         "rmsprop": rmsprop, "rowwise-rmsprop": rowwise_rmsprop, "lion": lion, "adadelta": adadelta, "adam": adam, "adamw": adam,
         "amsgrad": amsgrad, "rowwise-adagrad-counter": rowwise_adagrad_counter,
         "partial-rowwise-adam": partial_rowwise_adam, "lamb": lamb,
         "partial-rowwise-lamb": partial_rowwise_lamb, "lars": lars, "ftrl": ftrl}
OWN_DECAY = ("lamb", "partial-rowwise-lamb", "lars", "ftrl", "rowwise-adagrad-counter")  # theirs is in the formula, or there is none
DEFAULTS = {"lr": 0.01, "eps": 1e-8, "beta1": 0.9, "beta2": 0.999, "weight-decay": 0.0, "initial-accumulator": 0.0,
            "momentum": 0.9, "trust-coefficient": 0.001, "l1": 0.0, "l2": 0.0, "ftrl-beta": 1.0, "clip-value": 0.0,
            "clip-row-norm": 0.0, "max-norm": 0.0, "max-norm-type": 2.0, "decay-mode": "l2", "lazy-decay": False,
            "lazy-decay-least": 0.0, "row-bias-correction": False, "counter-mode": "decay", "counter-half-life": 0.0,
            "counter-from-step": 0, "counter-threshold": 0.0, "counter-max": 1.0, "counter-power": 1.0,
            "clip-coefficient": 0.0, "clip-least": 0.0}


class Twin:
    """A table that is updated as its options say. `w` is [rows, dim] in double precision."""

    def __init__(self, options, weights):
        self.o = {k: float(np.float32(v)) if isinstance(v, float) else v for k, v in {**DEFAULTS, **options}.items()}
        self.kind = self.o["optimizer"]
        self.w = np.array(weights, dtype=np.float64)
        first = {"adagrad": "m", "rowwise-adagrad": "row", "rowwise-adagrad-counter": "row", "ftrl": "v"}.get(self.kind)
        rows = len(self.w)
        self.state = {"m": np.zeros_like(self.w), "v": np.zeros_like(self.w), "most": np.zeros_like(self.w),
                      "row": np.zeros((rows, 1)), "count": np.zeros((rows, 1))}
        if first:
            self.state[first] += self.o["initial-accumulator"]
        self.updates, self.last_step = np.zeros((rows, 1)), np.zeros((rows, 1))

    def step(self, ids, gradients, t, lr=None):
        """`gradients` of `ids`, which may repeat."""
        rows, where = np.unique(np.asarray(ids, dtype=np.int64), return_inverse=True)
        if not rows.size or self.kind == "none":
            return
        g = np.zeros((len(rows), self.w.shape[1]))
        np.add.at(g, where, np.asarray(gradients, dtype=np.float64))
        o, lr = self.o, self.o["lr"] if lr is None else lr
        if o["clip-value"] > 0:
            g = np.clip(g, -o["clip-value"], o["clip-value"])
        g = self.shortened(g, o["clip-row-norm"])
        w = self.decayed(rows, self.w[rows], g, t, lr)
        self.updates[rows] += 1
        s = {k: v[rows] for k, v in self.state.items()}
        w = RULES[self.kind](w, g, s, o, lr, self.updates[rows] if o["row-bias-correction"] else t)
        for k, v in s.items():
            self.state[k][rows] = v
        self.w[rows] = self.shortened(w, o["max-norm"], o["max-norm-type"])

    def decayed(self, rows, w, g, t, lr):
        """Weights after decoupled decay; `g` gets the L2 term in place."""
        gap = np.where(self.last_step[rows] == 0, 1, t - self.last_step[rows])
        self.last_step[rows] = t
        self.o["gap"] = gap
        if self.kind in OWN_DECAY:
            return w
        lazy = self.o["lazy-decay"]
        if self.kind in ("adamw", "lion") or self.o["decay-mode"] == "decoupled" or (self.kind == "sgd" and lazy):
            shrink = 1 - lr * self.o["weight-decay"]
            return w * shrink * (np.maximum(shrink ** (gap - 1), self.o["lazy-decay-least"]) if lazy else 1)
        g += self.o["weight-decay"] * w
        return w

    @staticmethod
    def shortened(x, limit, p=2.0):
        if limit <= 0:
            return x
        size = np.abs(x)
        norm = (size ** p).sum(1, keepdims=True) ** (1 / p) if p else size.max(1, keepdims=True)
        return np.where(norm > limit, x * limit / np.where(norm == 0, 1.0, norm), x)
