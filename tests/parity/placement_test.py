"""Placement changes nothing (docs/decisions.md, "Numbers"): the same case with other shard counts, column slices,
message cuts, servers, memory and restarts gives the same files to the byte, on random floats with ids that repeat."""

import copy

import parity
from parity import np
from random_cases import Shape

BASE = {"lr": 0.05, "eps": 1e-5, "beta1": 0.8, "beta2": 0.95, "init": "normal:0,0.3", "seed": 77}
BY_ELEMENT = [{"optimizer": "sgd", "weight-decay": 0.1}, {"optimizer": "momentum-sgd"}, {"optimizer": "adagrad"},
              {"optimizer": "adam", "state-type": "bf16"}, {"optimizer": "adamw", "weight-decay": 0.1},
              {"optimizer": "rmsprop", "clip-value": 0.5}, {"optimizer": "ftrl", "l1": 0.01},
              {"optimizer": "adam", "weight-type": "bf16", "stochastic-rounding": True}]
BY_ROW = [{"optimizer": "rowwise-adagrad", "weight-decay": 0.1}, {"optimizer": "partial-rowwise-adam"},
          {"optimizer": "lamb"}, {"optimizer": "partial-rowwise-lamb", "row-bias-correction": True}, {"optimizer": "lars"},
          {"optimizer": "adam", "clip-row-norm": 0.5, "max-norm": 0.9}]
STEPS = 3


class Placement(parity.SeededTest):
    def drawn(self, options, size=8, longest=6, **of_shape):
        """A case with client-side pooling, so that outputs are bits too."""
        shape = Shape(self.random, poolings=("sum", "mean", "max", "none"), tables=(1, 2), **{"rows": (30, 60), **of_shape})
        steps = []
        for _ in range(STEPS):
            batch = shape.batch(size=size, longest=longest)
            steps.append({"batch": batch, "gradients": shape.gradients(batch)})
        case = shape.case({name: None for name in shape.tables}, {**BASE, **options}, steps,
                          options={"pooling_at": "client"})
        for i, table in enumerate(case["tables"]):
            del table["weights"]
            table["seed"] = 100 + i  # of the name otherwise, and names differ between runs
        return case

    def outcome(self, case, *flags, own=False, **table_options):
        """Everything that the case gave, as one list of arrays; its tables get names of their own."""
        case = copy.deepcopy(case)
        names = {t["name"]: parity.table_name() for t in case["tables"]}
        for table in case["tables"]:
            table["name"] = names[table["name"]]
            table.update(table_options)
        for feature in case["features"]:
            # Outputs of a feature on two tables are named by the table: here by the place in the list.
            feature["output"] = f"o{case['features'].index(feature)}"
            feature["table"] = names[feature["table"]]
        for step in case["steps"]:
            sequences = step.get("gradients", {}).get("sequences")
            if sequences:
                step["gradients"]["sequences"] = {self.renamed(case, names, k): v for k, v in sequences.items()}
        case["weights"] = list(names.values())
        result = parity.run(case, *flags, own=own)
        arrays = []
        for step in result["steps"]:
            if step["kind"] != "batch":
                continue
            arrays.append(step["values"])
            for output in step["outputs"]:
                arrays += [output[k] for k in ("sequence", "arg_max") if k in output]
        return arrays + [result["weights"][name][k] for name in names.values() for k in ("rows", "exists")]

    @staticmethod
    def renamed(case, names, output):
        key, _, table = output.partition("@")
        for feature in case["features"]:
            if feature["feature"] == key and (not table or feature["table"] == names[table]):
                return feature["output"]
        raise KeyError(output)

    def assert_same(self, got, wanted, what):
        self.assertEqual(len(got), len(wanted), what)
        for i, (a, b) in enumerate(zip(got, wanted)):
            self.assert_bits(a, b, f"{what}, array {i}")

    def test_message_cuts(self):
        """Calls of many times the least message there is, against the same in one message a server."""
        for options in (BY_ELEMENT[2], BY_ROW[0]):
            with self.subTest(**options):
                case = self.drawn(options, size=64, longest=40, rows=(2000, 3000), dims=(64, 100))
                wanted = self.outcome(case, "--shards", 1, "--message-bytes-max", 16 << 20)
                for shards in (1, 7):
                    self.assert_same(self.outcome(case, "--shards", shards, "--message-bytes-max", 64 << 10), wanted,
                                     f"cut, {shards} shards")

    def test_shards_and_slices(self):
        for options in BY_ELEMENT:
            with self.subTest(**options):
                case = self.drawn(options)
                wanted = self.outcome(case, "--shards", 1)
                dim = min(t["dim"] for t in case["tables"])
                for shards in (3, 24):
                    self.assert_same(self.outcome(case, "--shards", shards), wanted, f"{shards} shards")
                for slices in (2, 4):
                    if slices <= dim:
                        self.assert_same(self.outcome(case, "--shards", 3, "--column-slices", slices), wanted,
                                         f"{slices} column slices")

    def test_whole_row_statistics(self):
        """By shards as ever; each slice a row of its own where the table says so, then by shards of slices."""
        for options in BY_ROW:
            with self.subTest(**options):
                case = self.drawn(options)
                wanted = self.outcome(case, "--shards", 1)
                self.assert_same(self.outcome(case, "--shards", 24), wanted, "24 shards")
                slices = min(4, min(t["dim"] for t in case["tables"]))
                sliced = {"row-statistics": "slice", "column-slices": slices}
                of_slices = self.outcome(case, "--shards", 1, **sliced)
                self.assert_same(self.outcome(case, "--shards", 24, **sliced), of_slices, f"24 shards of {slices} slices")

    def test_servers_and_restarts(self):
        """Clusters of their own: one server, three, little memory; servers killed and stopped between the steps."""
        for options in (BY_ELEMENT[3], BY_ROW[0], BY_ROW[3]):
            with self.subTest(**options):
                case = self.drawn(options)
                wanted = self.outcome(case, "--shards", 1)
                restarted = copy.deepcopy(case)
                restarted["steps"].insert(1, {"restart": "all"})
                restarted["steps"].insert(3, {"restart": "s1", "how": "stop"})
                self.assert_same(self.outcome(restarted, "--servers", 3, "--shards", 24, "--host-bytes", "64MiB", own=True),
                                 wanted, "3 servers, restarted")

    def test_pooling_on_the_servers_is_close(self):
        """Another set of shards is within 1e-6 where the servers pool (N3), and the same set is the same bits."""
        case = self.drawn(BY_ELEMENT[2])
        wanted = self.outcome(case, "--shards", 1)
        for shards in (1, 3, 24):
            got = self.outcome(case, "--shards", shards, "--pooling-at", "server")
            again = self.outcome(case, "--shards", shards, "--pooling-at", "server")
            self.assert_same(again, got, f"{shards} shards, twice")
            for i, (a, b) in enumerate(zip(got, wanted)):
                self.assert_close(a, b, f"{shards} shards, array {i}")


def setUpModule():
    parity.use_cluster(3)


if __name__ == "__main__":
    parity.main()
