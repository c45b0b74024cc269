"""The numbered cases of the source systems that have values, through the real client: the number is that of the case.

Source 0: column slicing over TPU cores; 2: the TorchRec tutorial; 4: sharded embeddings in JAX.
"""

import parity
from parity import np

KJT = {"keys": ["product", "user"], "lengths": [3, 1, 2, 2], "ids": [1, 2, 1, 5, 2, 3, 4, 1]}


def tutorial(options, weights=None):
    """Two tables of 4096 x 64 with pooling sum, and the tutorial's batch twice: a step, then the loss again."""
    product, user = parity.table_name("product"), parity.table_name("user")
    given = {} if weights is None else {"weights": weights}
    return {"tables": [{"name": name, "rows": 4096, "dim": 64, **given, **options} for name in (product, user)],
            "features": [{"feature": "product", "table": product}, {"feature": "user", "table": user}],
            "steps": [{"batch": KJT, "gradients": {"loss": "sum", "scale": -1}},
                      {"batch": KJT, "gradients": {"loss": "sum", "scale": -1}, "backward": "none"}]}


class Source2(parity.SeededTest):
    def test_2_1_embedding_and_bag(self):
        table = parity.table_name()
        weights = self.random.standard_normal((10, 4), dtype=np.float32)
        step = parity.run({"tables": [{"name": table, "rows": 10, "dim": 4, "weights": weights}],
                           "features": [{"feature": "f", "table": table, "pooling": "none", "output": "rows"},
                                        {"feature": "f", "table": table, "pooling": "mean", "output": "bag"}],
                           "steps": [{"batch": parity.batch([2], [1, 3])}]})["steps"][0]
        self.assert_bits(step["outputs"][0]["sequence"], weights[[1, 3]], "rows 1 and 3")
        self.assertEqual(step["values"].shape, (1, 4))
        self.assert_close(step["values"][0], weights[[1, 3]].mean(0), "their mean", 1e-7)

    def test_2_4_lengths_and_offsets_are_the_same_batch(self):
        table = parity.table_name()
        weights = self.random.standard_normal((8, 3), dtype=np.float32)
        case = {"tables": [{"name": table, "rows": 8, "dim": 3, "weights": weights}],
                "features": [{"feature": "f", "table": table, "pooling": "none"}],
                "steps": [{"batch": {"keys": ["f"], "lengths": [1, 2], "ids": [5, 7, 1]}},
                          {"batch": {"keys": ["f"], "offsets": [0, 1, 3], "ids": [5, 7, 1]}}]}
        steps = parity.run(case)["steps"]
        for step in steps:
            self.assertEqual(list(step["outputs"][0]["lengths"]), [1, 2])
            self.assert_bits(step["outputs"][0]["sequence"], weights[[5, 7, 1]], "rows")

    def test_2_5_and_2_6_two_features(self):
        weights = self.random.standard_normal((4096, 64), dtype=np.float32)
        step = parity.run(tutorial({"optimizer": "sgd"}, weights))["steps"][0]
        self.assertEqual([o["name"] for o in step["outputs"]], ["product", "user"])
        self.assertEqual([o["column"] for o in step["outputs"]], [0, 64])
        self.assertEqual(step["values"].shape, (2, 128))
        w = weights.astype(np.float64)
        wanted = [np.concatenate([2 * w[1] + w[2], w[2] + w[3]]), np.concatenate([w[5], w[4] + w[1]])]
        self.assert_close(step["values"], np.stack(wanted), "the tutorial's KeyedTensor")

    def test_2_7_id_score_lists(self):
        table = parity.table_name()
        weights = self.random.standard_normal((8, 5), dtype=np.float32)
        for pooling, below in (("sum", 1.0), ("mean", 0.5 + 2.0)):
            step = parity.run({"tables": [{"name": table, "rows": 8, "dim": 5, "weights": weights}],
                               "features": [{"feature": "f", "table": table, "pooling": pooling}],
                               "steps": [{"batch": parity.batch([2, 0], [3, 4], weights=[0.5, 2])}]})["steps"][0]
            self.assert_close(step["values"][0], (0.5 * weights[3] + 2 * weights[4]) / below, pooling)
            self.assert_bits(step["values"][1], np.zeros(5, np.float32), "the empty bag")

    def test_2_14_and_2_15_losses_of_one_step(self):
        for options, fall in (({"optimizer": "rowwise-adagrad", "lr": .02, "eps": .002}, 10.222113216),
                              ({"optimizer": "sgd", "lr": .5}, 320.0)):
            with self.subTest(**options):
                steps = parity.run(tutorial(options))["steps"]
                self.assertAlmostEqual(steps[0]["loss"] - steps[1]["loss"], fall, delta=1e-5)
                product = steps[1]["values"][0, :64]
                if options["optimizer"] == "sgd":
                    self.assert_bits(product, np.full(64, 2 * 1.0 + 0.5, np.float32), "rows hit twice and once")
                else:
                    self.assert_close(product, np.full(64, 2 * .019980020 + .019960080), "rows hit twice and once")

    def test_2_16_rows_as_int8(self):
        """Rows that travel as int8 are within half a step of their own: (max - min) / 255."""
        table = parity.table_name()
        weights = self.random.standard_normal((300, 64), dtype=np.float32) * np.float32(0.3)
        weights[7] = 0.25  # a constant row is exact
        result = parity.run({"tables": [{"name": table, "rows": 300, "dim": 64, "weights": weights}],
                             "options": {"row_wire": "int8"},
                             "steps": [{"pull": {"table": table, "ids": np.arange(300)}}], "weights": [table]})
        rows = result["steps"][0]["pull"][0]["rows"].astype(np.float64)
        scale = (weights.max(1) - weights.min(1)) / 255.0
        self.assertLessEqual((np.abs(rows - weights).max(1) - scale / 2).max(), 1e-7)
        self.assertGreater(np.abs(rows - weights).max(), 1e-4)
        self.assert_bits(rows[7], np.full(64, 0.25), "the constant row")
        self.assert_bits(result["weights"][table]["rows"], weights, "what is stored")


class Source0(parity.SeededTest):
    def sliced(self, slices, options, dim=24, weights=None, **rest):
        table = parity.table_name()
        table_options = {"name": table, "rows": 50, "dim": dim, "column-slices": slices, **options}
        if weights is not None:
            table_options["weights"] = weights
        return table, {"tables": [table_options], "weights": [table], **rest}

    def test_0_6_column_slices_are_the_same_table(self):
        """Full-width gradients in, split by column: 1, 2, 4 and 8 slices give the same bits after k steps."""
        weights = self.random.standard_normal((50, 24), dtype=np.float32)
        pushes = [(self.random.choice(50, 20, replace=False), self.random.standard_normal((20, 24), dtype=np.float32))
                  for _ in range(4)]
        first = None
        for slices in (1, 2, 4, 8):
            table, case = self.sliced(slices, {"optimizer": "sgd", "lr": 0.1}, weights=weights)
            case["steps"] = [{"push": {"table": table, "ids": ids, "gradients": g}} for ids, g in pushes]
            rows = parity.run(case)["weights"][table]["rows"]
            first = rows if first is None else first
            self.assert_bits(rows, first, f"{slices} slices")
        for ids, g in pushes:
            weights[ids] -= np.float32(0.1) * g
        self.assert_bits(first, weights, "against the sums")

    def test_0_2_remainders_of_columns(self):
        weights = self.random.standard_normal((50, 10), dtype=np.float32)
        table, case = self.sliced(4, {"optimizer": "sgd", "lr": 1.0}, dim=10, weights=weights)
        case["steps"] = [{"push": {"table": table, "ids": [7], "gradients": np.arange(10.0).reshape(1, 10)}}]
        rows = parity.run(case)["weights"][table]["rows"]
        weights[7] -= np.arange(10, dtype=np.float32)
        self.assert_bits(rows, weights, "10 columns in 4 slices")

    def test_0_8_clipping_by_slice_and_globally(self):
        """Two slices with norms 3 and 4, clip 1: a third and a quarter; together their norm is 5: a fifth."""
        gradient = [[3.0, 0.0, 0.0, 4.0]]
        table, case = self.sliced(2, {"optimizer": "sgd", "lr": 1.0, "clip-slice-norm": 1.0}, dim=4)
        case["steps"] = [{"push": {"table": table, "ids": [5], "gradients": gradient}}]
        rows = parity.run(case)["weights"][table]["rows"]
        self.assert_close(rows[5], [-1, 0, 0, -1], "by slice")
        table, case = self.sliced(2, {"optimizer": "sgd", "lr": 1.0}, dim=4)
        case["features"] = [{"feature": "f", "table": table}]
        case["steps"] = [{"batch": parity.batch([1], [5]), "gradients": {"values": gradient}, "clip_global_norm": 1.0}]
        rows = parity.run(case)["weights"][table]["rows"]
        self.assert_close(rows[5], [-.6, 0, 0, -.8], "globally")

    def test_0_8_the_global_norm_is_over_all_tables(self):
        one, two = parity.table_name(), parity.table_name()
        result = parity.run({
            "tables": [{"name": name, "rows": 4, "dim": 2, "optimizer": "sgd", "lr": 1.0} for name in (one, two)],
            "features": [{"feature": "f", "table": one}, {"feature": "f", "table": two}],
            "steps": [{"batch": parity.batch([2], [1, 1]), "gradients": {"values": [[0.75, 0, 1, 0]]},
                       "clip_global_norm": 1.25}], "weights": [one, two]})
        # Both ids are one row: its summed gradients are 1.5 and 2, their norm 2.5.
        self.assert_close(result["weights"][one]["rows"][1], [-.75, 0], "first table")
        self.assert_close(result["weights"][two]["rows"][1], [-1, 0], "second table")

    def test_0_9_first_values_and_the_padding_row(self):
        """N(0, 1/sqrt(D)) with the full D: 0.015625 for 4096, 0.02209709 for 2048, in slices too; padding stays zero."""
        for dim, deviation in ((4096, .015625), (2048, .02209709)):
            with self.subTest(dim=dim):
                table = parity.table_name()
                result = parity.run({
                    "tables": [{"name": table, "rows": 40, "dim": dim, "column-slices": 8, "padding-id": 3,
                                "optimizer": "sgd", "lr": 1.0, "init": f"normal:0,{deviation}"}],
                    "features": [{"feature": "f", "table": table}],
                    "steps": [{"batch": parity.batch([3], [3, 3, 5]), "gradients": {"loss": "sum"}},
                              {"batch": parity.batch([2], [3, 3])}],
                    "weights": {table: [i for i in range(40) if i not in (3, 5)]}})
                rows = result["weights"][table]["rows"].astype(np.float64)
                # The deviation of a sample of n normals is within 5 / sqrt(2 n) of theirs, but for one in a million.
                self.assertAlmostEqual(rows.std() / deviation, 1.0, delta=5 / np.sqrt(2 * rows.size))
                self.assertLess(abs(rows.mean()), 5 * deviation / np.sqrt(rows.size))
                self.assertEqual(len({row.tobytes() for row in rows}), len(rows))
                self.assert_bits(result["steps"][1]["values"], np.zeros((1, dim), np.float32), "padding after a step")

    def test_0_7_summed_and_averaged_pushes(self):
        """Two trainers push the same gradient: a table of sums moves twice as far as one of means."""
        for reduction, moved in (("sum", 2.0), ("mean", 1.0)):
            table = parity.table_name()
            push = {"table": table, "ids": [1], "gradients": [[1.0, -2.0]]}
            rows = parity.run({"tables": [{"name": table, "rows": 4, "dim": 2, "optimizer": "sgd", "lr": 1.0,
                                           "reduction": reduction}],
                               "options": {"trainers": 2},
                               "steps": [{"push": push, "trainer": 0}, {"push": push, "trainer": 1}],
                               "weights": [table]})["weights"][table]["rows"]
            self.assert_bits(rows[1], np.array([-moved, 2 * moved], np.float32), reduction)

    def test_0_12_warm_up_and_inverse_square_root(self):
        table = parity.table_name()
        at = [1, 2, 3999, 4000, 4001, 16000]
        case = {"tables": [{"name": table, "rows": 1, "dim": 1, "optimizer": "sgd", "lr": 5e-4,
                            "schedule": "inverse-sqrt", "warmup-steps": 4000, "warmup-from": 1e-7}],
                "steps": [{"push": {"table": table, "ids": [0], "gradients": [[-1.0]]}, "step": t, "weights": [table]}
                          for t in at]}
        moved = np.diff([0] + [float(s["weights"][table]["rows"][0, 0]) for s in parity.run(case)["steps"]])
        wanted = [1e-7 + (5e-4 - 1e-7) * t / 4000 if t < 4000 else 5e-4 * np.sqrt(4000 / t) for t in at]
        self.assert_close(moved * 1e3, np.array(wanted) * 1e3, "rates x 1000")

    def test_ids_travel_exactly(self):
        """16,777,217 and ids beyond 2^53 come back as themselves; int32 is sign-extended, 0 and 2^64-1 are ordinary."""
        table = parity.table_name()
        ids = [16777216, 16777217, 2**53, 2**53 + 1, 2**63, 2**64 - 1, 0]
        gradients = -np.arange(1.0, len(ids) + 1).reshape(-1, 1)
        case = {"tables": [{"name": table, "hashed": True, "dim": 1, "optimizer": "sgd", "lr": 1.0}],
                "steps": [{"push": {"table": table, "ids": np.array(ids, "<u8"), "gradients": gradients}},
                          {"pull": {"table": table, "ids": np.array(ids + [2**53 + 2], "<u8")}},
                          {"pull": {"table": table, "ids": np.array([-1, 16777217], "<i4")}}]}
        steps = parity.run(case)["steps"]
        self.assertEqual(list(steps[1]["pull"][0]["rows"][:, 0]), [1, 2, 3, 4, 5, 6, 7, 0])
        self.assertEqual(list(steps[1]["pull"][0]["exists"]), [1] * 7 + [0])
        self.assertEqual(list(steps[2]["pull"][0]["rows"][:, 0]), [6, 2])


class Source4(parity.SeededTest):
    def test_4_1_and_4_2_rows_or_columns_are_the_same(self):
        """V = 5000 split by rows, by columns, and not at all: each id is answered once, gradients are those of one shard."""
        weights = self.random.standard_normal((5000, 8), dtype=np.float32)
        ids = np.concatenate([[2499, 2500, 0, 4999], self.random.integers(0, 5000, 60)])
        gradients = self.random.standard_normal((16, 8), dtype=np.float32)
        seen = None
        for layout in ({"shards": 1}, {"shards": 2}, {"shards": 1, "column-slices": 2}, {"shards": 3, "column-slices": 4}):
            with self.subTest(**layout):
                table = parity.table_name()
                result = parity.run({
                    "tables": [{"name": table, "rows": 5000, "dim": 8, "weights": weights, "optimizer": "sgd", "lr": 0.5,
                                **layout}],
                    "features": [{"feature": "f", "table": table}], "options": {"pooling_at": "client"},
                    "steps": [{"batch": parity.batch([4] * 16, ids), "gradients": {"values": gradients}}],
                    "weights": [table]})
                got = result["steps"][0]["values"], result["weights"][table]["rows"]
                seen = seen or got
                self.assert_bits(got[0], seen[0], "values")
                self.assert_bits(got[1], seen[1], "weights")
        w = weights.astype(np.float64)
        self.assert_close(seen[0], w[ids].reshape(16, 4, 8).sum(1), "sum over shards")
        np.subtract.at(w, ids, 0.5 * np.repeat(gradients, 4, 0))
        self.assert_close(seen[1], w, "one shard's gradient")


class Rules(parity.SeededTest):
    """Bounds, padding and what is refused."""

    def case(self, options=(), pooling="sum", **step):
        table = parity.table_name()
        return table, {"tables": [{"name": table, "rows": 10, "dim": 2, "optimizer": "sgd", "lr": 1.0,
                                   "weights": np.arange(20.0).reshape(10, 2), **dict(options)}],
                       "features": [{"feature": "f", "table": table, "pooling": pooling}],
                       "steps": [{"gradients": {"loss": "sum"}, **step}], "weights": [table]}

    def test_bounds_modes(self):
        start = np.arange(20, dtype=np.float32).reshape(10, 2)
        for pooling in ("sum", "mean"):
            table, case = self.case({"bounds": "zero"}, pooling, batch=parity.batch([3], [2, 10, 999]))
            result = parity.run(case)
            below = 1 if pooling == "sum" else 3
            self.assertEqual(result["steps"][0]["out_of_bounds"], 2)
            self.assert_close(result["steps"][0]["values"], start[[2]] / below, f"zero, {pooling}")
            start_after = start.copy()
            start_after[2] -= 1 / below
            self.assert_close(result["weights"][table]["rows"], start_after, f"weights, {pooling}")
        table, case = self.case({"bounds": "modulo"}, batch=parity.batch([3], np.array([12, -1, 3], "<i8")))
        result = parity.run(case)
        self.assert_close(result["steps"][0]["values"], [start[[2, 9, 3]].sum(0)], "modulo")
        table, case = self.case(batch=parity.batch([2, 1], [2, 3, 10]))
        with self.assertRaisesRegex(parity.Failed, "10"):
            parity.run(case)

    def test_padding_counts_for_nothing(self):
        start = np.arange(20, dtype=np.float32).reshape(10, 2)
        for pooling, wanted in (("sum", start[4] + start[5]), ("mean", (start[4] + start[5]) / 2), ("max", start[5])):
            table, case = self.case({"padding-id": 7}, pooling, batch=parity.batch([3, 1], [4, 7, 5, 7]))
            result = parity.run(case)
            self.assert_close(result["steps"][0]["values"], [wanted, [0, 0]], pooling)
            self.assert_bits(result["weights"][table]["rows"][[0, 6, 8]], start[[0, 6, 8]], "the others")
        table, case = self.case({"padding-id": 7}, "none", batch=parity.batch([3], [4, 7, 5]))
        sequence = parity.run(case)["steps"][0]["outputs"][0]["sequence"]
        self.assert_bits(sequence, np.array([start[4], [0, 0], start[5]], np.float32), "none")

    def test_bad_batches_are_refused_whole(self):
        """Each refusal names the feature and the position; nothing of the step is applied."""
        bad = [("lengths that do not add up", {"keys": ["f"], "lengths": [2, 2], "ids": [1, 2, 3]}, "f"),
               ("offsets that fall", {"keys": ["f"], "offsets": [0, 2, 1], "ids": [1]}, "f"),
               ("offsets that do not begin at 0", {"keys": ["f"], "offsets": [1, 2], "ids": [1, 2]}, "0"),
               ("weights of another length", {"keys": ["f"], "lengths": [2], "ids": [1, 2], "weights": [1]}, "weight"),
               ("a weight that is no number", {"keys": ["f"], "lengths": [2], "ids": [1, 2], "weights": [1, "nan"]}, "f"),
               ("a missing key", {"keys": ["g"], "lengths": [1], "ids": [1]}, "f"),
               ("a key twice", {"keys": ["f", "f"], "lengths": [1, 1], "ids": [1, 2]}, "f")]
        for what, batch, named in bad:
            with self.subTest(what):
                table, case = self.case(batch=batch, expect_error=named)
                result = parity.run(case)
                self.assertEqual(result["steps"][0]["error"]["code"] in ("INVALID_ARGUMENT", "NOT_FOUND"), True,
                                 result["steps"][0]["error"])
                self.assert_bits(result["weights"][table]["rows"], np.arange(20, dtype=np.float32).reshape(10, 2), what)
        table, case = self.case(pooling="none", batch=parity.batch([2], [1, 2], weights=[1, 2]), expect_error="f")
        self.assertEqual(parity.run(case)["steps"][0]["error"]["code"], "INVALID_ARGUMENT")

    def test_bad_options_name_field_and_range(self):
        for option, value, words in (("lr", -1.0, "learning_rate"), ("beta1", 1.0, "beta1"), ("dim", 0, "dim"),
                                     ("dim", 8193, "8192"), ("optimizer", "adamax", "adamax"), ("momentum", 1.0, "momentum"),
                                     ("eps", 0.0, "epsilon"), ("padding-id", 10, "padding"), ("staleness", -1, "staleness"),
                                     ("column-slices", 3, "column_slices"), ("max-norm", -1.0, "max_norm")):
            with self.subTest(option=option, value=value):
                _, case = self.case({option: value}, batch=parity.batch([1], [1]))
                case["tables"][0].pop("weights")
                with self.assertRaisesRegex(parity.Failed, f"(?i){words}|{words.replace('_', '-')}"):
                    parity.run(case)

    def test_nan_gradients_are_refused_before_anything_is_sent(self):
        table, case = self.case(batch=parity.batch([1, 1], [1, 2]), expect_error=str("NaN"))
        case["steps"][0]["gradients"] = {"values": [[1, 1], [1, "nan"]]}
        result = parity.run(case)
        self.assert_bits(result["weights"][table]["rows"], np.arange(20, dtype=np.float32).reshape(10, 2), "weights")


def setUpModule():
    parity.use_cluster()


if __name__ == "__main__":
    parity.main()
