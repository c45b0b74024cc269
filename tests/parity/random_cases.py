"""Random tables, features and batches as hotbed-parity and the models that it is compared with take them."""

import numpy as np

import parity


class Shape:
    """Tables and features of a case, drawn once: {name: (rows, dim)} and [(feature, table, pooling)]."""

    def __init__(self, random, poolings=("sum", "mean", "max", "none"), tables=(1, 3), rows=(3, 40), weighted=False,
                 dims=(1, 3, 4, 7, 16, 32, 33, 64, 100)):
        self.random = random
        self.weighted = weighted
        self.scale_by_frequency = False
        self.tables = {parity.table_name(): (int(random.integers(rows[0], rows[1] + 1)), int(random.choice(dims)))
                       for _ in range(random.integers(tables[0], tables[1] + 1))}
        names = list(self.tables)
        # The first and the last share a feature, and so the range of its ids.
        self.tables[names[-1]] = (self.tables[names[0]][0], self.tables[names[-1]][1])
        self.features = []
        for table in names:  # each table has a feature; some share one, some features read two tables
            for _ in range(random.integers(1, 3)):
                self.features.append((f"f{len(self.features)}", table, str(random.choice(poolings))))
        if len(names) > 1:
            self.features.append(("f0", names[-1], self.features[0][2]))
        self.keys = sorted({f for f, _, _ in self.features})
        random.shuffle(self.keys)

    def weights(self):
        return {name: self.random.standard_normal(shape, dtype=np.float32) for name, shape in self.tables.items()}

    def rows_of(self, key):
        """Rows that all tables of a key have."""
        return min(self.tables[t][0] for f, t, _ in self.features if f == key)

    def batch(self, size=None, longest=6, all_rows=False, some=False):
        """Bags of any length, also empty, with ids that repeat; `some`: no feature without any; `all_rows`: each row is there."""
        random = self.random
        size = int(random.integers(1, 9)) if size is None else size
        lengths, ids = [], []
        for key in self.keys:
            rows = self.rows_of(key)
            own = random.integers(0, longest + 1, size) * (random.random(size) > 0.2)
            if some:
                own[-1] += own.sum() == 0
            drawn = random.integers(0, rows, own.sum())
            if all_rows:
                lengths_now = np.append(own[:-1], own[-1] + rows)
                drawn = np.concatenate([drawn, random.permutation(rows)])
            else:
                lengths_now = own
            lengths.append(lengths_now)
            ids.append(drawn)
        ids = np.concatenate(ids).astype(random.choice(["<i4", "<i8", "<u8", "<u4"]))
        weights = random.uniform(0.25, 2, len(ids)).astype("<f4") if self.weighted else None
        return parity.batch(np.concatenate(lengths), ids, self.keys, weights)

    def case(self, weights, table_options, steps, **rest):
        """The case: each table has its `weights` and all `table_options`; all weights are read at the end."""
        return {"tables": [{"name": name, "rows": rows, "dim": dim, "weights": weights[name], **table_options}
                           for name, (rows, dim) in self.tables.items()],
                "features": [{"feature": f, "table": t, "pooling": p, "scale_by_frequency": self.scale_by_frequency}
                             for f, t, p in self.features],
                "steps": steps, "weights": list(self.tables), **rest}

    def output_names(self):
        keys = [f for f, _, _ in self.features]
        return [f if keys.count(f) == 1 else f"{f}@{t}" for f, t, _ in self.features]

    def bags(self, batch, key):
        """Ids and weights of each sample of a key."""
        size = len(batch["lengths"]) // len(self.keys)
        ends = np.concatenate([[0], np.cumsum(batch["lengths"], dtype=np.int64)])
        first = self.keys.index(key) * size
        for b in range(first, first + size):
            span = slice(int(ends[b]), int(ends[b + 1]))
            yield batch["ids"][span].astype(np.int64), batch["weights"][span] if self.weighted else None

    def gradients(self, batch, exact=False):
        """Random gradients of the pooled outputs and of the sequences, by output name.

        `exact`: multiples of 1/32, whose sums no order changes. Adam divides by the size of the gradient, so that a sum that all but
        cancels would say more about the order of additions than about the rule.
        """
        size = len(batch["lengths"]) // len(self.keys)
        columns = sum(self.tables[t][1] for _, t, p in self.features if p != "none")
        sequences = {}
        for name, (f, t, p) in zip(self.output_names(), self.features):
            if p == "none":
                count = sum(len(ids) for ids, _ in self.bags(batch, f))
                sequences[name] = self.drawn((count, self.tables[t][1]), exact)
        return {"values": self.drawn((size, columns), exact), "sequences": sequences}

    def drawn(self, size, exact):
        drawn = self.random.standard_normal(size, dtype=np.float32)
        return np.round(drawn * 32) / np.float32(32) if exact else drawn


class PlainModel:
    """Forward and the gradients of rows in double precision, one bag after the other."""

    def __init__(self, shape, weights):
        self.shape = shape
        self.w = {name: np.asarray(w, dtype=np.float64) for name, w in weights.items()}

    def pooled(self, table, pooling, ids, weights):
        """One bag: its output, and each id's share of the output's gradient ([ids, dim] or [ids, 1])."""
        rows = self.w[table][ids]
        if not len(ids):
            return np.zeros(rows.shape[1]), np.zeros((0, 1))
        share = np.ones((len(ids), 1)) if weights is None else np.asarray(weights, dtype=np.float64)[:, None]
        if pooling == "mean":
            share = share / share.sum()
        if pooling == "max":
            share = (np.arange(len(ids))[:, None] == rows.argmax(0)).astype(float)
        return (rows * share).sum(0), share

    def forward(self, batch):
        """values, {output: sequence}."""
        pooled, sequences = [], {}
        for name, (f, t, p) in zip(self.shape.output_names(), self.shape.features):
            bags = list(self.shape.bags(batch, f))
            if p == "none":
                sequences[name] = np.concatenate([self.w[t][ids] for ids, _ in bags])
            else:
                pooled.append(np.stack([self.pooled(t, p, ids, w)[0] for ids, w in bags]))
        size = len(batch["lengths"]) // len(self.shape.keys)
        return (np.concatenate(pooled, 1) if pooled else np.zeros((size, 0))), sequences

    def sizes(self, batch):
        """The sum of the sizes of each pooled output's terms: the rounding of an fp32 sum is relative to it."""
        return PlainModel(self.shape, {name: np.abs(w) for name, w in self.w.items()}).forward(batch)[0]

    def row_gradients(self, batch, gradients):
        """{table: (ids, gradients)}, ids as they come, not yet summed."""
        out = {name: ([], []) for name in self.shape.tables}
        column = 0
        for name, (f, t, p) in zip(self.shape.output_names(), self.shape.features):
            dim, at = self.shape.tables[t][1], 0
            for b, (ids, w) in enumerate(self.shape.bags(batch, f)):
                if p == "none":
                    out[t][1].append(gradients["sequences"][name][at:at + len(ids)].astype(np.float64))
                    at += len(ids)
                else:
                    of_bag = gradients["values"][b, column:column + dim].astype(np.float64)
                    out[t][1].append(self.pooled(t, p, ids, w)[1] * of_bag)
                out[t][0].append(ids)
            column += dim if p != "none" else 0
        return {t: (np.concatenate(ids), np.concatenate(g).reshape(-1, self.shape.tables[t][1]))
                for t, (ids, g) in out.items()}
