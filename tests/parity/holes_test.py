"""Holes of other parameter servers, each with its number in the list of peers: H1 gradients for rows that are not resident or
not there, mixed with present ones; H9 rows that come back from the spill tier while they are updated and the server dies."""

import os
import random
import sys
import tempfile
import threading

import parity
from parity import np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "fault"))
from cluster import Cluster  # noqa: E402

# 64 MiB are the least that a server takes: about 37 MiB of them hold rows, of 4 KiB each. So half of these are evicted.
ROWS, DIM = 18000, 1024
SMALL = ("--host-bytes", "64MiB", "--server-flag=--log-bytes-max=16MiB")


class Holes(parity.SeededTest):
    def test_h1_absent_ids_mixed_with_present_ones(self):
        """A hashed table: half of the ids of each push were never seen. Sums of integers per row are exact."""
        table = parity.table_name()
        known = self.random.integers(0, 2**64, 400, dtype=np.uint64)
        sums = {}
        steps = []
        for step in range(6):
            present = self.random.choice(known[:200] if step else known, 150)
            absent = self.random.integers(0, 2**64, 150, dtype=np.uint64)
            thousand = np.repeat(known[step], 1000)  # and one id a thousand times
            ids = self.random.permutation(np.concatenate([present, absent, thousand]))
            gradients = self.random.integers(-8, 9, (len(ids), 3)).astype(np.float32)
            for i, g in zip(ids, gradients):
                sums[int(i)] = sums.get(int(i), 0) + g.astype(np.float64)
            steps.append({"push": {"table": table, "ids": ids, "gradients": gradients}})
        ids = np.array(sorted(sums), "<u8")
        stranger = self.random.integers(0, 2**64, 50, dtype=np.uint64)
        steps.append({"pull": [{"table": table, "ids": ids}, {"table": table, "ids": stranger}]})
        pull = parity.run({"tables": [{"name": table, "hashed": True, "dim": 3, "optimizer": "sgd", "lr": 1.0,
                                       "shards": 5}], "steps": steps})["steps"][-1]["pull"]
        self.assert_bits(pull[0]["rows"], 0 - np.array([sums[int(i)] for i in ids], np.float32), "sums")
        self.assertTrue(pull[0]["exists"].all())
        self.assertFalse(pull[1]["exists"].any())

    def test_h1_evicted_rows_mixed_with_resident_ones(self):
        """Twice as many rows as memory; each push names rows of all ages. A restart in between changes nothing."""
        table = parity.table_name()
        first = self.random.integers(-4, 5, (ROWS, DIM)).astype(np.float32)
        wanted = first.copy()
        steps = []
        for step in range(5):
            ids = self.random.integers(0, ROWS, 600)
            ids[:200] = ids[0]
            gradients = self.random.integers(-8, 9, (600, DIM)).astype(np.float32)
            np.subtract.at(wanted, ids, gradients)
            steps.append({"push": {"table": table, "ids": ids, "gradients": gradients}})
            if step == 2:
                steps.append({"restart": "s0"})
        result = parity.run({"tables": [{"name": table, "rows": ROWS, "dim": DIM, "optimizer": "sgd", "lr": 1.0,
                                         "weights": first}], "steps": steps, "weights": [table],
                             "options": {"deadline_ms": 60000}}, *SMALL, own=True)
        self.assert_bits(result["weights"][table]["rows"], wanted, "sums")

    def test_memory_changes_no_bit(self):
        """Random floats under row-wise Adagrad and Adam: with all rows in memory, and with a third of them evicted."""
        rows = 14000
        drawn = self.random.standard_normal((1400, DIM), dtype=np.float32)
        for options in ({"optimizer": "rowwise-adagrad"}, {"optimizer": "adam", "weight-type": "bf16", "state-type": "bf16"}):
            with self.subTest(**options):
                steps = []
                for step in range(12):
                    # Each row once, then again rows of all ages, some of them several times.
                    ids = np.arange(step * 1400, (step + 1) * 1400) if step < 10 else self.random.integers(0, rows, 1400)
                    steps.append({"push": {"table": "T", "ids": ids, "gradients": drawn * np.float32(1 + step)}})
                probe = self.random.integers(0, rows, 2000)
                seen = []
                for flags in (("--host-bytes", "512MiB"), SMALL):
                    result = parity.run({"tables": [{"name": "T", "rows": rows, "dim": DIM, "lr": 0.1, "shards": 3, "seed": 5,
                                                     "init": "normal:0,0.1", **options}], "steps": steps,
                                         "weights": {"T": probe}, "options": {"deadline_ms": 60000}}, *flags, own=True)
                    seen.append(result["weights"]["T"]["rows"])
                self.assert_bits(seen[1], seen[0], "rows under 64 MiB and under 512 MiB")

    def test_h9_killed_while_rows_come_back_from_the_spill(self):
        """Pushes of integers to a table twice the memory while its server is killed again and again: sums are exact."""
        chance = random.Random(self.seed)
        table = parity.table_name()
        wanted = np.zeros((ROWS, DIM), np.float32)
        steps = []
        for _ in range(120):
            ids = self.random.integers(0, ROWS, 300)
            gradients = self.random.integers(-8, 9, (300, 1)).repeat(DIM, 1).astype(np.float32)
            np.subtract.at(wanted, ids, gradients)
            steps.append({"push": {"table": table, "ids": ids, "gradients": gradients}})
        case = {"tables": [{"name": table, "rows": ROWS, "dim": DIM, "optimizer": "sgd", "lr": 1.0}], "steps": steps,
                "weights": [table], "options": {"deadline_ms": 90000}}
        with tempfile.TemporaryDirectory(prefix="hotbed-holes-") as directory:
            cluster = Cluster(parity.BIN, directory, 1, server_flags=("--host-bytes=64MiB", "--log-bytes-max=16MiB"))
            cluster.start()
            # A table is made while its server lives: the coordinator notices a kill at once.
            parity.run(dict(case, steps=[], weights=[]), "--coordinator", cluster.address, "--keep", own=True)
            case["tables"] = [dict(case["tables"][0], existing=True)]
            done = threading.Event()
            killer = threading.Thread(target=self.kill_until, args=(cluster.servers[0], done, chance))
            killer.start()
            try:
                result = parity.run(case, "--coordinator", cluster.address, own=True)
            finally:
                done.set()
                killer.join()
                kills = cluster.servers[0].kills
                cluster.stop()
        self.assertGreaterEqual(kills, 2, "the run ended before the server was killed twice")
        self.assert_bits(result["weights"][table]["rows"], wanted, f"sums after {kills} kills")

    @staticmethod
    def kill_until(server, done, chance):
        while not done.wait(chance.uniform(0.1, 0.5)):
            server.kill()
            server.start()


def setUpModule():
    parity.use_cluster()


if __name__ == "__main__":
    parity.main()
