"""Hotbed against PyTorch: nn.functional.embedding_bag and embedding with torch.optim, over random tables and batches."""

import warnings

import parity
from parity import np
from random_cases import PlainModel, Shape

try:
    import torch
    import torch.nn.functional as F
except ImportError as error:
    parity.skip_all(f"PyTorch is missing ({error}): apt-get install python3-torch (./dev test does)")

STEPS = 4
# How each optimizer is made in torch, and the table's options that mean the same. Sparse ones take sparse gradients; dense ones
# move rows that no batch names, so that every row is in every batch.
SPARSE = {
    "sgd": (lambda p: torch.optim.SGD(p, lr=0.1), {"optimizer": "sgd", "lr": 0.1}),
    "adagrad": (lambda p: torch.optim.Adagrad(p, lr=0.1, eps=1e-6, initial_accumulator_value=0.1),
                {"optimizer": "adagrad", "lr": 0.1, "eps": 1e-6, "initial-accumulator": 0.1}),
    # SparseAdam adds eps to the root before the second moment's bias correction, Adam and Hotbed after: so small that it is one.
    "sparse_adam": (lambda p: torch.optim.SparseAdam(p, lr=0.05, betas=(0.8, 0.99), eps=1e-12),
                    {"optimizer": "adam", "lr": 0.05, "beta1": 0.8, "beta2": 0.99, "eps": 1e-12}),
}
DENSE = {
    "sgd_l2": (lambda p: torch.optim.SGD(p, lr=0.1, weight_decay=0.1),
               {"optimizer": "sgd", "lr": 0.1, "weight-decay": 0.1}),
    "momentum": (lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.8, weight_decay=0.01),
                 {"optimizer": "momentum-sgd", "lr": 0.1, "momentum": 0.8, "weight-decay": 0.01}),
    "adagrad_l2": (lambda p: torch.optim.Adagrad(p, lr=0.1, weight_decay=0.02),
                   {"optimizer": "adagrad", "lr": 0.1, "eps": 1e-10, "weight-decay": 0.02}),
    "adam": (lambda p: torch.optim.Adam(p, lr=0.05), {"optimizer": "adam", "lr": 0.05}),
    "adam_l2": (lambda p: torch.optim.Adam(p, lr=0.05, weight_decay=0.1),
                {"optimizer": "adam", "lr": 0.05, "weight-decay": 0.1}),
    "amsgrad": (lambda p: torch.optim.Adam(p, lr=0.05, betas=(0.8, 0.9), weight_decay=0.1, amsgrad=True),
                {"optimizer": "amsgrad", "lr": 0.05, "beta1": 0.8, "beta2": 0.9, "weight-decay": 0.1}),
    "amsgrad_decoupled": (lambda p: torch.optim.AdamW(p, lr=0.05, betas=(0.8, 0.9), weight_decay=0.2, amsgrad=True),
                          {"optimizer": "amsgrad", "lr": 0.05, "beta1": 0.8, "beta2": 0.9, "weight-decay": 0.2,
                           "decay-mode": "decoupled"}),
    "adamw": (lambda p: torch.optim.AdamW(p, lr=0.05, weight_decay=0.2),
              {"optimizer": "adamw", "lr": 0.05, "weight-decay": 0.2}),
    "rmsprop": (lambda p: torch.optim.RMSprop(p, lr=0.02, alpha=0.9, eps=1e-6),
                {"optimizer": "rmsprop", "lr": 0.02, "beta2": 0.9, "eps": 1e-6}),
    "adadelta": (lambda p: torch.optim.Adadelta(p, lr=0.5, rho=0.9, eps=1e-3, weight_decay=0.02),
                 {"optimizer": "adadelta", "lr": 0.5, "beta2": 0.9, "eps": 1e-3, "weight-decay": 0.02}),
}


class TorchModel:
    """The features of a shape over parameters of torch."""

    def __init__(self, shape, weights, sparse):
        self.shape = shape
        self.sparse = sparse
        self.w = {name: torch.nn.Parameter(torch.from_numpy(w.copy())) for name, w in weights.items()}

    def bag(self, table, pooling, ids, offsets, weights):
        w = self.w[table]
        if self.shape.scale_by_frequency:
            return self.scaled_bag(table, pooling, ids, offsets, weights)
        if pooling == "none":
            return F.embedding(ids, w, sparse=self.sparse)
        if weights is None:
            return F.embedding_bag(ids, w, offsets, mode=pooling, sparse=self.sparse and pooling != "max")
        out = F.embedding_bag(ids, w, offsets, mode="sum", sparse=self.sparse, per_sample_weights=weights)
        if pooling == "sum":
            return out
        ends = torch.cat([offsets[1:], torch.tensor([len(ids)])])
        total = torch.stack([weights[a:b].sum() for a, b in zip(offsets, ends)])
        return out / torch.where(total == 0, torch.ones_like(total), total)[:, None]

    def scaled_bag(self, table, pooling, ids, offsets, weights):
        """With scale_grad_by_freq of F.embedding: F.embedding_bag of torch 1.13 divides by the counts of other ids."""
        rows = F.embedding(ids, self.w[table], scale_grad_by_freq=True)
        if pooling == "none":
            return rows
        weights = torch.ones(len(ids)) if weights is None else weights
        lengths = torch.diff(torch.cat([offsets, torch.tensor([len(ids)])]))
        bags = torch.repeat_interleave(torch.arange(len(offsets)), lengths)
        out = torch.zeros(len(offsets), rows.shape[1]).index_add(0, bags, rows * weights[:, None])
        if pooling == "sum":
            return out
        total = torch.zeros(len(offsets)).index_add(0, bags, weights)
        return out / torch.where(total == 0, torch.ones_like(total), total)[:, None]

    def forward(self, batch):
        pooled, sequences = [], {}
        for name, (f, t, p) in zip(self.shape.output_names(), self.shape.features):
            bags = list(self.shape.bags(batch, f))
            ids = torch.from_numpy(np.concatenate([ids for ids, _ in bags]))
            offsets = torch.tensor([0, *np.cumsum([len(ids) for ids, _ in bags])[:-1]], dtype=torch.int64)
            weights = torch.from_numpy(np.concatenate([w for _, w in bags])) if self.shape.weighted else None
            out = self.bag(t, p, ids, offsets, weights)
            if p == "none":
                sequences[name] = out
            else:
                pooled.append(out)
        size = len(batch["lengths"]) // len(self.shape.keys)
        return (torch.cat(pooled, 1) if pooled else torch.zeros(size, 0)), sequences

    def backward(self, outputs, gradients):
        values, sequences = outputs
        loss = (values * torch.from_numpy(gradients["values"])).sum()
        for name, sequence in sequences.items():
            loss = loss + (sequence * torch.from_numpy(gradients["sequences"][name])).sum()
        if loss.requires_grad:
            loss.backward()


class AgainstTorch(parity.SeededTest):
    def compare(self, shape, make, options, sparse, all_rows, lr=None, steps=STEPS):
        """Forward of each step, and all weights at the end."""
        weights = shape.weights()
        model = TorchModel(shape, weights, sparse)
        optimizer = make(list(model.w.values()))
        case_steps, wanted = [], []
        for step in range(steps):
            batch = shape.batch(all_rows=all_rows, some=True)  # torch's Adagrad fails on an empty gradient
            gradients = shape.gradients(batch, exact="adam" in options["optimizer"])
            optimizer.zero_grad(set_to_none=True)
            outputs = model.forward(batch)
            sizes = PlainModel(shape, {name: w.detach().numpy() for name, w in model.w.items()}).sizes(batch)
            wanted.append((outputs[0].detach().numpy(), {k: v.detach().numpy() for k, v in outputs[1].items()}, sizes))
            model.backward(outputs, gradients)
            one = {"batch": batch, "gradients": gradients}
            if lr is not None:
                one["lr"] = optimizer.param_groups[0]["lr"] = lr[step]
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                optimizer.step()
            case_steps.append(one)
        result = parity.run(shape.case(weights, options, case_steps))
        for i, (values, sequences, sizes) in enumerate(wanted):
            got = result["steps"][i]
            self.assert_close(got["values"], values, f"values of step {i}", scale=sizes)
            for output in got["outputs"]:
                if output["pooling"] == "none":
                    self.assert_close(output["sequence"], sequences[output["name"]], f"{output['name']} of step {i}")
        for name, w in model.w.items():
            self.assert_close(result["weights"][name]["rows"], w.detach().numpy(), f"weights of {name}")

    @staticmethod
    def poolings(options):
        """See Shape.gradients: a mean is not a multiple of 1/32."""
        return ("sum", "none") if "adam" in options["optimizer"] else ("sum", "mean", "none")

    def test_sparse_gradients(self):
        for name, (make, options) in SPARSE.items():
            for trial in range(3):
                with self.subTest(optimizer=name, trial=trial):
                    # A bag of all rows of a large table would add up more roundings than the tolerance has room for.
                    shape = Shape(self.random, poolings=self.poolings(options), rows=(3, 12) if trial == 0 else (3, 40))
                    self.compare(shape, make, options, sparse=True, all_rows=trial == 0)

    def test_weighted_bags(self):
        for name in ("sgd", "adagrad"):
            for trial in range(2):
                with self.subTest(optimizer=name, trial=trial):
                    shape = Shape(self.random, poolings=("sum", "mean"), weighted=True)
                    self.compare(shape, *SPARSE[name], sparse=True, all_rows=False)

    def test_dense_rules_on_rows_that_every_batch_names(self):
        for name, (make, options) in DENSE.items():
            with self.subTest(optimizer=name):
                shape = Shape(self.random, poolings=self.poolings(options), rows=(3, 12))
                self.compare(shape, make, options, sparse=False, all_rows=True)

    def test_scaling_by_frequency(self):
        for weighted in (False, True):
            for trial in range(3):
                with self.subTest(weighted=weighted, trial=trial):
                    poolings = ("sum", "mean") if weighted else ("sum", "mean", "none")
                    shape = Shape(self.random, poolings=poolings, rows=(3, 12), weighted=weighted)
                    shape.scale_by_frequency = True
                    self.compare(shape, *SPARSE["sgd"], sparse=False, all_rows=False)

    def test_max_pooling(self):
        for name in ("sgd", "adagrad"):
            for trial in range(2):
                with self.subTest(optimizer=name, trial=trial):
                    shape = Shape(self.random, poolings=("max", "sum"))
                    self.compare(shape, *SPARSE[name], sparse=False, all_rows=False)

    def test_learning_rate_of_each_push(self):
        for name in ("sgd", "sparse_adam"):
            with self.subTest(optimizer=name):
                shape = Shape(self.random, poolings=("sum",), rows=(3, 12))
                self.compare(shape, *SPARSE[name], sparse=True, all_rows=True, lr=[0.05, 0.0, 0.1, 0.025])

    def test_one_id_a_thousand_times(self):
        table = parity.table_name()
        ids = np.full(1000, 3)
        weights = self.random.standard_normal((5, 8), dtype=np.float32)
        for mode in ("sum", "mean"):
            w = torch.nn.Parameter(torch.from_numpy(weights.copy()))
            out = F.embedding_bag(torch.from_numpy(ids), w, torch.tensor([0]), mode=mode)
            out.sum().backward()
            with torch.no_grad():
                w -= 0.001 * w.grad
            result = parity.run({
                "tables": [{"name": table, "rows": 5, "dim": 8, "optimizer": "sgd", "lr": 0.001, "weights": weights}],
                "features": [{"feature": "f", "table": table, "pooling": mode}],
                "steps": [{"batch": parity.batch([1000], ids), "gradients": {"loss": "sum"}}], "weights": [table]})
            # A thousand additions in fp32: the order of the sum is worth up to 1e-5 of 1,000 times a weight.
            scale = 1000.0 if mode == "sum" else 1.0
            self.assert_close(result["steps"][0]["values"] / scale, out.detach().numpy() / scale, f"{mode} of a bag", 2e-6)
            self.assert_close(result["weights"][table]["rows"], w.detach().numpy(), f"weights after {mode}", 2e-6)

    def test_modules_of_the_tutorial(self):
        """Embedding and EmbeddingBag of a 10 x 4 table for [[1, 3]]: the bag is the mean of the rows (source 2.1)."""
        table = parity.table_name()
        embedding = torch.nn.Embedding(10, 4)
        bag = torch.nn.EmbeddingBag(10, 4, _weight=embedding.weight.detach().clone())
        ids = torch.tensor([[1, 3]])
        result = parity.run({
            "tables": [{"name": table, "rows": 10, "dim": 4, "weights": embedding.weight.detach().numpy()}],
            "features": [{"feature": "f", "table": table, "pooling": "none", "output": "rows"},
                         {"feature": "f", "table": table, "pooling": "mean", "output": "bag"}],
            "steps": [{"batch": parity.batch([2], [1, 3])}]})
        rows = result["steps"][0]["outputs"][0]["sequence"]
        self.assert_bits(rows.reshape(1, 2, 4), embedding(ids).detach().numpy(), "Embedding")
        self.assert_close(result["steps"][0]["values"], bag(ids).detach().numpy(), "EmbeddingBag", 1e-7)
        self.assert_close(result["steps"][0]["values"], rows.mean(0, keepdims=True), "mean over dimension 1", 1e-7)


class LowPrecision(parity.SeededTest):
    TYPES = {"fp16": torch.float16, "bf16": torch.bfloat16}

    def rounded(self, array, kind):
        return torch.from_numpy(np.ascontiguousarray(array)).to(self.TYPES[kind]).to(torch.float32).numpy()

    def test_rows_round_to_nearest_even(self):
        """Weights set, subnormal and beyond the largest included, come back as torch rounds them."""
        for kind in self.TYPES:
            with self.subTest(kind):
                table = parity.table_name()
                scale = np.float32(2.0) ** self.random.integers(-28, 15, (64, 16))
                weights = (self.random.standard_normal((64, 16)) * scale).astype(np.float32)
                result = parity.run({"tables": [{"name": table, "rows": 64, "dim": 16, "weight-type": kind,
                                                 "weights": weights}], "weights": [table]})
                self.assert_bits(result["weights"][table]["rows"], self.rounded(weights, kind), kind)

    def test_steps_on_low_precision_rows(self):
        """SGD: w = round(w - lr * g) with the two operations in fp32, to the bit."""
        for kind in self.TYPES:
            with self.subTest(kind):
                table = parity.table_name()
                w = self.rounded(self.random.standard_normal((20, 9), dtype=np.float32), kind)
                steps, lr, start = [], np.float32(0.05), w.copy()
                for _ in range(STEPS):
                    g = self.random.standard_normal((20, 9), dtype=np.float32)
                    steps.append({"push": {"table": table, "ids": np.arange(20), "gradients": g}})
                    w = self.rounded(w - lr * g, kind)
                result = parity.run({"tables": [{"name": table, "rows": 20, "dim": 9, "weight-type": kind,
                                                 "optimizer": "sgd", "lr": float(lr), "weights": start}],
                                     "steps": steps, "weights": [table]})
                self.assert_bits(result["weights"][table]["rows"], w, kind)

    def test_rows_and_gradients_on_the_wire(self):
        for kind in self.TYPES:
            with self.subTest(kind):
                table = parity.table_name()
                w = self.random.standard_normal((20, 9), dtype=np.float32)
                g = self.random.standard_normal((20, 9), dtype=np.float32)
                result = parity.run({"tables": [{"name": table, "rows": 20, "dim": 9, "optimizer": "sgd", "lr": 0.5,
                                                 "weights": w}],
                                     "options": {"row_wire": kind, "gradient_wire": kind},
                                     "steps": [{"pull": {"table": table, "ids": np.arange(20)}},
                                               {"push": {"table": table, "ids": np.arange(20), "gradients": g}}],
                                     "weights": [table]})
                self.assert_bits(result["steps"][0]["pull"][0]["rows"], self.rounded(w, kind), f"rows as {kind}")
                self.assert_bits(result["weights"][table]["rows"], w - np.float32(0.5) * self.rounded(g, kind),
                                 f"gradients as {kind}")


def setUpModule():
    torch.set_num_threads(1)
    parity.use_cluster()


if __name__ == "__main__":
    parity.main()
