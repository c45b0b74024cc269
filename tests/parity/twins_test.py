"""Every optimizer and option through the real client against float64 twins (twins.py), and the numbers of FBGEMM's vectors."""

import parity
from parity import np
from random_cases import PlainModel, Shape
from twins import RULES, Twin

STEPS = 4
BASE = {"lr": 0.05, "eps": 1e-4, "beta1": 0.83, "beta2": 0.947, "momentum": 0.7, "trust-coefficient": 0.02, "l1": 0.01,
        "l2": 0.1, "ftrl-beta": 0.5}
ADAM_KINDS = ("adam", "adamw", "amsgrad", "partial-rowwise-adam", "lamb", "partial-rowwise-lamb")
DECOUPLED_KINDS = ("sgd", "momentum-sgd", "adagrad", "rowwise-adagrad", "rmsprop", "rowwise-rmsprop", "adadelta",
                   "adam", "amsgrad")
# Section 5 of the list of peers: w, g twice, lr .1, eps 1e-3, weight decay .01, zero state.
VECTOR_W, VECTOR_G = [.1, -.2, .3, -.4], [.01, .02, -.03, .04]
VECTORS = [
    ({"optimizer": "sgd"}, [.098, -.204, .306, -.408]),
    ({"optimizer": "adagrad"}, [-.056949973, -.363534143, .465856584, -.567043367]),
    ({"optimizer": "rowwise-adagrad"}, [.039601523, -.320796955, .481195432, -.641593910]),
    ({"optimizer": "rowwise-adagrad", "weight-decay": .01}, [.027633251, -.318418316, .477627474, -.636836632]),
    ({"optimizer": "adam", "weight-decay": .01, "decay-mode": "decoupled"},
     [-.081927173, -.389981152, .492851913, -.594224790]),
    ({"optimizer": "adamw", "weight-decay": .01}, [-.081927173, -.389981152, .492851913, -.594224790]),
    ({"optimizer": "partial-rowwise-adam", "weight-decay": .01, "decay-mode": "decoupled"},
     [.029378378, -.340443644, .510665465, -.680887287]),
    ({"optimizer": "lamb", "weight-decay": .01}, [.045486255, -.256927087, .357787299, -.458198676]),
]


class AgainstTwins(parity.SeededTest):
    def compare(self, options, shape=None, tolerance=1e-6, weights=None, gaps=False, **rest):
        """Random batches by the features of a shape; `gaps`: training steps are left out."""
        shape = shape or Shape(self.random, poolings=("sum", "none"), tables=(1, 2))
        weights = weights or shape.weights()
        model = PlainModel(shape, weights)
        twins = {name: Twin(options, w) for name, w in weights.items()}
        steps, wanted, t = [], [], 0
        for _ in range(STEPS):
            t += 1 + (int(self.random.integers(0, 5)) if gaps else 0)
            batch = shape.batch()
            gradients = shape.gradients(batch, exact=True)
            wanted.append((*model.forward(batch), model.sizes(batch)))
            for name, (ids, rows) in model.row_gradients(batch, gradients).items():
                twins[name].step(ids, rows, t)
                model.w[name] = twins[name].w
            steps.append({"batch": batch, "gradients": gradients, "step": t})
        result = parity.run(shape.case(weights, options, steps, **rest))
        for i, (values, sequences, sizes) in enumerate(wanted):
            self.assert_close(result["steps"][i]["values"], values, f"values of step {i}", tolerance, sizes)
            for output in result["steps"][i]["outputs"]:
                if output["pooling"] == "none":
                    self.assert_close(output["sequence"], sequences[output["name"]], f"{output['name']} of step {i}", tolerance)
        for name, twin in twins.items():
            self.assert_close(result["weights"][name]["rows"], twin.w, f"weights of {name}", tolerance)
        return {name: np.abs(result["weights"][name]["rows"] - twin.w).max() for name, twin in twins.items()}

    def test_every_optimizer(self):
        for kind in RULES:
            for decay in (0.0, 0.1):
                with self.subTest(optimizer=kind, weight_decay=decay):
                    if kind == "ftrl" and decay:
                        continue  # has none
                    self.compare({"optimizer": kind, **BASE, "weight-decay": decay})

    def test_decoupled_decay(self):
        for kind in DECOUPLED_KINDS:
            with self.subTest(optimizer=kind):
                self.compare({"optimizer": kind, **BASE, "weight-decay": 0.3, "decay-mode": "decoupled"})

    def test_lazy_decay_makes_up_for_steps_in_between(self):
        for kind in DECOUPLED_KINDS + ("adamw", "lion"):
            with self.subTest(optimizer=kind):
                mode = {} if kind in ("sgd", "adamw", "lion") else {"decay-mode": "decoupled"}
                self.compare({"optimizer": kind, **BASE, "weight-decay": 0.3, "lazy-decay": True, **mode}, gaps=True)

    def test_lazy_decay_has_a_bound(self):
        self.compare({"optimizer": "sgd", **BASE, "weight-decay": 3.0, "lazy-decay": True, "lazy-decay-least": 0.8}, gaps=True)

    def test_counts(self):
        base = {"optimizer": "rowwise-adagrad-counter", **BASE, "weight-decay": 0.1}
        modes = [{"counter-mode": "decay"}, {"counter-mode": "counter-sgd", "counter-power": 0.5}]
        modes += [{"counter-mode": mode, "counter-max": 4.0, "counter-power": 0.7}
                  for mode in ("tail-increase", "tail-decrease")]
        for mode in modes:
            for rest in ({}, {"counter-half-life": 2.5, "counter-from-step": 3, "decay-mode": "decoupled"},
                         {"counter-threshold": 1.5}):
                with self.subTest(**mode, **rest):
                    self.compare({**base, **mode, **rest}, gaps=True)
        for rest in ({}, {"decay-mode": "decoupled", "counter-half-life": 2.5}):
            with self.subTest(mode="cowclip", **rest):
                self.compare({**base, "counter-mode": "cowclip", "clip-coefficient": 0.2, "clip-least": 0.05, **rest}, gaps=True)
        with self.subTest(mode="adagradw"):
            self.compare({**base, "counter-mode": "adagradw", "decay-mode": "decoupled", "counter-from-step": 2}, gaps=True)

    def test_row_bias_correction(self):
        for kind in ADAM_KINDS:
            with self.subTest(optimizer=kind):
                self.compare({"optimizer": kind, **BASE, "weight-decay": 0.05, "row-bias-correction": True}, gaps=True)

    def test_initial_accumulator(self):
        for kind in ("adagrad", "rowwise-adagrad", "rowwise-adagrad-counter", "ftrl"):
            with self.subTest(optimizer=kind):
                self.compare({"optimizer": kind, **BASE, "initial-accumulator": 0.5})

    def test_clips_and_max_norm(self):
        for kind in ("sgd", "rowwise-adagrad", "adam", "lars"):
            for clip in ({"clip-value": 0.5}, {"clip-row-norm": 0.7}, {"max-norm": 0.9},
                         {"max-norm": 0.9, "max-norm-type": 1.0}, {"max-norm": 0.3, "max-norm-type": 0.0},
                         {"max-norm": 0.7, "max-norm-type": 3.5},
                         {"clip-value": 0.8, "clip-row-norm": 0.9, "max-norm": 1.1}):
                with self.subTest(optimizer=kind, **clip):
                    self.compare({"optimizer": kind, **BASE, **clip})

    def test_zero_norms(self):
        """LAMB and LARS of rows of zeros, and of zero gradients: the plain step, and no NaN."""
        for kind in ("lamb", "partial-rowwise-lamb", "lars"):
            with self.subTest(optimizer=kind):
                shape = Shape(self.random, poolings=("sum",), tables=(1, 1))
                zeros = {name: np.zeros(size, dtype=np.float32) for name, size in shape.tables.items()}
                self.compare({"optimizer": kind, **BASE}, shape, weights=zeros)
                table = parity.table_name()
                result = parity.run({
                    "tables": [{"name": table, "rows": 2, "dim": 4, "optimizer": kind, "lr": 0.5, "weights": np.ones((2, 4))}],
                    "steps": [{"push": {"table": table, "ids": [0], "gradients": np.zeros((1, 4))}}], "weights": [table]})
                self.assert_close(result["weights"][table]["rows"], np.ones((2, 4)), "after a gradient of zeros")

    def test_vectors_of_fbgemm(self):
        for options, wanted in VECTORS:
            with self.subTest(**options):
                table = parity.table_name()
                push = {"push": {"table": table, "ids": [1], "gradients": [VECTOR_G]}}
                weights = np.zeros((3, 4), dtype=np.float32)
                weights[1] = VECTOR_W
                result = parity.run({"tables": [{"name": table, "rows": 3, "dim": 4, "lr": .1, "eps": 1e-3,
                                                 "weights": weights, **options}],
                                     "steps": [push, push], "weights": [table]})
                rows = result["weights"][table]["rows"]
                self.assert_close(rows[1], wanted, "w after two steps")
                self.assert_bits(rows[[0, 2]], weights[[0, 2]], "the neighbours")

    def test_averages_of_rows(self):
        """FBGEMM's EMA in place moves all averages after every third step; the server's rows catch up before their next."""
        table = parity.table_name()
        weights = self.random.standard_normal((5, 6), dtype=np.float32)
        want, steps = weights.astype(np.float64), []
        for step in range(1, 21):
            ids = np.arange(5) if step == 20 else np.unique(self.random.integers(0, 5, 2))
            gradients = self.random.standard_normal((len(ids), 6), dtype=np.float32)
            gradients[:, 3:] = 0
            steps.append({"push": {"table": table, "ids": ids, "gradients": gradients}})
            want[ids] -= 0.5 * gradients
            if step % 3 == 0 and step >= 6 and step < 20:
                want[:, 3:] += 0.4 * (want[:, :3] - want[:, 3:])
        result = parity.run({"tables": [{"name": table, "rows": 5, "dim": 6, "optimizer": "sgd", "lr": 0.5, "weights": weights,
                                         "average-rate": 0.4, "average-every": 3, "average-from-step": 6}],
                             "steps": steps, "weights": [table]})
        self.assert_close(result["weights"][table]["rows"], want, "weights and averages")

    def test_bf16_state(self):
        """Vectors of state kept as bf16: within its 8 bits of the twin, and not the same as fp32."""
        shape = Shape(self.random, poolings=("sum",), tables=(1, 1))
        errors = self.compare({"optimizer": "adam", **BASE, "state-type": "bf16"}, shape, tolerance=2e-2)
        self.assertGreater(max(errors.values()), 1e-5)

    def test_none_hands_the_summed_gradient_back(self):
        shape = Shape(self.random, poolings=("sum", "mean", "max", "none"), tables=(1, 2))
        weights = shape.weights()
        batch = shape.batch(size=6)
        gradients = shape.gradients(batch)
        result = parity.run(shape.case(weights, {"optimizer": "none"},
                                       [{"batch": batch, "gradients": gradients, "row_gradients": True, "backward": "none"}]))
        model = PlainModel(shape, weights)
        for name, (ids, rows) in model.row_gradients(batch, gradients).items():
            got = result["steps"][0]["row_gradients"].get(name, {"ids": np.zeros(0, "<u8"), "rows": np.zeros((0, 1))})
            first = list(dict.fromkeys(int(i) for i in ids))  # distinct, by first appearance
            self.assertEqual([int(i) for i in got["ids"]], first)
            for i, row in zip(got["ids"], got["rows"]):
                self.assert_close(row, rows[ids == int(i)].sum(0), f"gradient of {name} id {i}")
            self.assert_bits(result["weights"][name]["rows"], weights[name], "weights")
        with self.assertRaisesRegex(parity.Failed, "none"):
            parity.run(shape.case(weights, {"optimizer": "none"}, [{"batch": batch, "gradients": gradients}]))


class AgainstPlainPooling(parity.SeededTest):
    def test_all_poolings_at_each_place(self):
        for place in ("client", "server", "auto"):
            for weighted in (False, True):
                with self.subTest(place=place, weighted=weighted):
                    shape = Shape(self.random, poolings=("sum", "mean") if weighted else ("sum", "mean", "max", "none"),
                                  weighted=weighted)
                    weights = shape.weights()
                    batch = shape.batch(size=8)
                    gradients = shape.gradients(batch)
                    result = parity.run(shape.case(weights, {"optimizer": "sgd", "lr": 1.0, "shards": 3},
                                                   [{"batch": batch, "gradients": gradients}],
                                                   options={"pooling_at": place}))
                    model = PlainModel(shape, weights)
                    values, sequences = model.forward(batch)
                    self.assert_close(result["steps"][0]["values"], values, "values", scale=model.sizes(batch))
                    for output in result["steps"][0]["outputs"]:
                        if output["pooling"] == "none":
                            self.assert_close(output["sequence"], sequences[output["name"]], output["name"])
                    for name, (ids, rows) in model.row_gradients(batch, gradients).items():
                        np.subtract.at(model.w[name], ids, rows)
                        self.assert_close(result["weights"][name]["rows"], model.w[name], f"weights of {name}")

    def test_accumulated_and_scaled_is_one_push(self):
        """k batches of one push: the sum of their gradients, one optimizer step."""
        shape = Shape(self.random, poolings=("sum", "mean"), tables=(1, 2))
        weights = shape.weights()
        model = PlainModel(shape, weights)
        options = {"optimizer": "rowwise-adagrad", "lr": 0.1}
        twins = {name: Twin(options, w) for name, w in weights.items()}
        steps, total = [], {name: ([], []) for name in weights}
        for _ in range(3):
            batch = shape.batch()
            gradients = shape.gradients(batch)
            steps.append({"batch": batch, "gradients": gradients})
            for name, (ids, rows) in model.row_gradients(batch, gradients).items():
                total[name][0].append(ids)
                total[name][1].append(rows / 3)
        for name, (ids, rows) in total.items():
            twins[name].step(np.concatenate(ids), np.concatenate(rows), 1)
        result = parity.run(shape.case(weights, options, steps,
                                       options={"accumulate": 3, "accumulate_scale": 1 / 3}))
        for name, twin in twins.items():
            self.assert_close(result["weights"][name]["rows"], twin.w, f"weights of {name}")


def setUpModule():
    parity.use_cluster()


if __name__ == "__main__":
    parity.main()
