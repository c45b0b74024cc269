"""Several trainers of one group: synchronous tables against one trainer with the N-fold batch, and bounded staleness."""

import copy

import parity
from parity import np

TRAINERS, STEPS, ROWS, DIM = 3, 3, 40, 6


class Trainers(parity.SeededTest):
    def pushes(self, integers):
        """[step][trainer]: (ids, gradients), ids that repeat and overlap between trainers."""
        out = []
        for _ in range(STEPS):
            of_step = []
            for _ in range(TRAINERS):
                ids = self.random.integers(0, ROWS, 15)
                drawn = self.random.standard_normal((15, DIM), dtype=np.float32)
                of_step.append((ids, np.round(drawn * 4) if integers else drawn))
            out.append(of_step)
        return out

    def together(self, pushes, options, *flags, reduction="sum", trainers=range(TRAINERS), own=False):
        """All trainers step by step on a synchronous table; its rows at the end."""
        table = parity.table_name()
        steps = [{"push": {"table": table, "ids": ids, "gradients": g}, "trainer": t}
                 for of_step in pushes for t, (ids, g) in enumerate(of_step) if t in trainers]
        return parity.run({"tables": [{"name": table, "rows": ROWS, "dim": DIM, "seed": 9, "init": "normal:0,0.5",
                                       "consistency": "sync", "reduction": reduction, **options}],
                           "options": {"trainer_group": table}, "steps": steps, "weights": [table]},
                          *flags, own=own)["weights"][table]["rows"]

    def alone(self, pushes, options, scale=1.0):
        """One trainer with the batches of all, on an asynchronous table."""
        table = parity.table_name()
        steps = []
        for of_step in pushes:
            ids = np.concatenate([ids for ids, _ in of_step])
            rows = np.concatenate([g for _, g in of_step]) * np.float32(scale)
            steps.append({"push": {"table": table, "ids": ids, "gradients": rows}})
        return parity.run({"tables": [{"name": table, "rows": ROWS, "dim": DIM, "seed": 9, "init": "normal:0,0.5",
                                       **options}], "steps": steps, "weights": [table]})["weights"][table]["rows"]

    def test_n_trainers_are_one_with_the_n_fold_batch(self):
        for options in ({"optimizer": "sgd", "lr": 0.5}, {"optimizer": "rowwise-adagrad", "lr": 0.1},
                        {"optimizer": "adam", "lr": 0.05, "eps": 1e-4}):
            with self.subTest(**options):
                pushes = self.pushes(integers=True)
                self.assert_bits(self.together(pushes, options), self.alone(pushes, options), "integers")
                pushes = self.pushes(integers=False)
                self.assert_close(self.together(pushes, options), self.alone(pushes, options), "floats")

    def test_mean_over_the_trainers(self):
        pushes = self.pushes(integers=True)
        options = {"optimizer": "sgd", "lr": 1.0}
        self.assert_close(self.together(pushes, options, reduction="mean"), self.alone(pushes, options, 1 / TRAINERS), "mean")

    def test_servers_and_shards_change_no_bit(self):
        pushes = self.pushes(integers=False)
        options = {"optimizer": "rowwise-adagrad", "lr": 0.1}
        wanted = self.together(pushes, options, "--shards", 1)
        for shards in (3, 24):
            self.assert_bits(self.together(pushes, options, "--shards", shards), wanted, f"{shards} shards")
        self.assert_bits(self.together(pushes, options, "--shards", 7, "--servers", 3, own=True), wanted, "3 servers")

    def test_nothing_is_seen_before_the_step_ends_and_a_trainer_that_leaves_is_not_waited_for(self):
        table = parity.table_name()
        push = {"push": {"table": table, "ids": [1], "gradients": [[1.0]]}}
        case = {"tables": [{"name": table, "rows": 4, "dim": 1, "optimizer": "sgd", "lr": 1.0, "consistency": "sync"}],
                "options": {"trainer_group": table},
                "steps": [{**push, "trainer": 0}, {"pull": {"table": table, "ids": [1]}, "trainer": 1},
                          {**push, "trainer": 1, "weights": [table]},
                          {"disconnect": 1}, {**push, "trainer": 0, "weights": [table]}]}
        steps = parity.run(case)["steps"]
        self.assertEqual(steps[1]["pull"][0]["rows"].tolist(), [[0.0]])
        self.assertEqual(steps[2]["weights"][table]["rows"][1, 0], -2.0)
        self.assertEqual(steps[4]["weights"][table]["rows"][1, 0], -3.0)

    def test_bounded_staleness_holds_the_one_that_is_ahead(self):
        """Staleness 2: trainer 0 may push steps 1 to 3 while trainer 1 has ended none, and waits with the fourth."""
        table = parity.table_name()
        push = {"push": {"table": table, "ids": [1], "gradients": [[1.0]]}}
        late = {**copy.deepcopy(push), "trainer": 1}
        ahead = [{**copy.deepcopy(push), "trainer": 0} for _ in range(3)]
        case = {"tables": [{"name": table, "rows": 4, "dim": 1, "optimizer": "sgd", "lr": 1.0, "consistency": "bounded:2"}],
                "options": {"trainer_group": table, "deadline_ms": 3000},
                "steps": [*ahead, {"pull": {"table": table, "ids": [1]}, "trainer": 1},
                          {**copy.deepcopy(push), "trainer": 0, "step": 4, "expect_error": ""},
                          late, {**copy.deepcopy(push), "trainer": 0, "step": 4, "weights": [table]}]}
        steps = parity.run(case)["steps"]
        self.assertEqual(steps[3]["pull"][0]["rows"].tolist(), [[-3.0]])
        self.assertEqual(steps[4]["error"]["code"], "DEADLINE_EXCEEDED")
        self.assertEqual(steps[6]["weights"][table]["rows"][1, 0], -5.0)

    def test_a_table_in_step_takes_no_pushes_without_a_group(self):
        table = parity.table_name()
        with self.assertRaisesRegex(parity.Failed, "trainer_group"):
            parity.run({"tables": [{"name": table, "rows": 4, "dim": 1, "consistency": "sync"}],
                        "steps": [{"push": {"table": table, "ids": [1], "gradients": [[1.0]]}}]})


def setUpModule():
    parity.use_cluster()


if __name__ == "__main__":
    parity.main()
