"""The Python client of examples/wire, which knows only proto/ and docs/wire.md, under kills of servers, moves,
splits and merges of shards: every push is applied once, so every sum is exact. Needs protoc, python3-grpcio and
python3-protobuf."""

import os
import random
import re
import signal
import subprocess
import sys
import threading
import unittest

import local

STEPS = 60
SPLITS_MAX = 6  # of one test
MERGES_MAX = 6
SEED = int(os.environ.get("WIRE_SEED", "1"))


def load_client(directory):
    """The client's module, over generated classes of the source tree."""
    subprocess.run(["protoc", "-I", local.SOURCE, f"--python_out={directory}",
                    *(os.path.join(local.SOURCE, "proto", f"{name}.proto") for name in ("types", "data", "control"))],
                   check=True)
    sys.path[:0] = [directory, os.path.join(local.SOURCE, "examples", "wire")]
    import hotbed_wire  # pylint: disable=import-outside-toplevel,import-error
    return hotbed_wire


class WireClient(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.directory = local.Directory()
        try:
            cls.wire = load_client(cls.directory.path)
        except ModuleNotFoundError as error:
            raise unittest.SkipTest(f"{error}: install python3-grpcio and python3-protobuf") from None
        cls.up = local.Up(os.path.join(cls.directory.path, "data"), "--servers", 3, "--port", 0,
                          "--host-bytes", "128MiB")
        cls.up.json("rebalance", "off")
        for name, *options in (("bounded", "--rows", 5000, "--shards", 24, "--column-slices", 2),
                               ("hashed", "--rows", 5000, "--hashed", "--shards", 24),
                               ("kept", "--rows", 5000, "--shards", 12, "--durability", "replicated=2"),
                               ("scratch", "--rows", 5000, "--shards", 12, "--durability", "checkpoint")):
            cls.up.json("table", "create", name, "--dim", 4, "--optimizer", "sgd", "--lr", 1, "--init", "zero",
                        *options)
        local.eventually("all shards are active", cls.active)

    @classmethod
    def tearDownClass(cls):
        cls.up.stop()
        cls.directory.__exit__()

    @classmethod
    def active(cls):
        tables = cls.up.json("status")["tables"]
        return all(t["shards_active"] == t["shards"] and t["shards_short_of_replicas"] == 0 for t in tables)

    def test_the_page_and_the_client_mix_alike(self):
        with open(os.path.join(local.SOURCE, "docs", "wire.md"), encoding="utf-8") as page:
            lines = re.findall(r"^\| (\S.*?) \| (0x[0-9a-f]+) \| (\d+) \|$", page.read(), re.M)
        self.assertEqual(len(lines), 4)
        for id_, mixed, bucket in lines:
            position = self.wire.mix(2**64 - 1 if id_ == "2^64 - 1" else int(id_))
            self.assertEqual((position, position >> 48), (int(mixed, 16), int(bucket)))

    def trouble(self, stop, table=None):
        """Moves, splits and merges shards and kills servers, until `stop` is set. With `table`: no kills, and it alone."""
        draw = random.Random(SEED)
        while not stop.is_set():
            if table is not None or draw.random() < 0.7:
                listed = self.up.json("shard", "list", *(() if table is None else ("--table", table)))
                shard = draw.choice(listed)["shard"]
                if self.splits < SPLITS_MAX and draw.random() < 0.5:  # refused with column slices
                    self.splits += self.up.cli("shard", "split", shard)[0] == 0
                    continue
                pairs = self.neighbours(listed)
                if pairs and self.merges < MERGES_MAX and draw.random() < 0.5:
                    lower, upper = draw.choice(pairs)
                    self.merges += self.up.cli("shard", "merge", lower, "--with", upper.split("/")[1])[0] == 0
                    continue
                self.up.cli("shard", "move", shard, "--to", f"s{draw.randrange(3)}")  # refused if it is there
                self.moves += 1
            else:
                running = self.servers()  # `hotbed up` starts a server again, after a moment
                if len(running) < 3:
                    continue
                os.kill(running[f"s{draw.randrange(3)}"], signal.SIGKILL)
                self.kills += 1
                local.eventually("all shards are active again", self.active)

    @staticmethod
    def neighbours(listed):
        """Pairs of shards that can be merged, if their table allows it."""
        shards = sorted((s for s in listed if s["shard"].split("/")[0] in ("hashed", "kept")),
                        key=lambda s: (s["shard"].split("/")[0], s["range"][0]))
        return [(a["shard"], b["shard"]) for a, b in zip(shards, shards[1:])
                if a["range"][1] == b["range"][0] and a["primary"] == b["primary"]
                and sorted(a["members"]) == sorted(b["members"])]

    def servers(self):
        """The servers' present processes, by name; not those that begin or end at this moment."""
        children = subprocess.run(["pgrep", "-P", str(self.up.process.pid), "-a", "hotbed-server"],
                                  capture_output=True, text=True, check=False).stdout
        found = {}
        for line in children.splitlines():
            pid, command = line.split(maxsplit=1)
            name = re.search(r"\bs[0-2]\b", command)
            if name is not None:
                found[name.group(0)] = int(pid)
        return found

    def test_sums_are_exact_over_kills_moves_splits_and_merges(self):
        self.push_under_trouble(("bounded", "hashed", "kept"), lambda: (
            self.kills > 0 and self.moves >= 3 and self.splits >= 3 and self.merges >= 2))

    def test_sums_of_class_checkpoint_are_exact_over_moves_and_splits(self):
        self.push_under_trouble(("scratch",), lambda: self.moves >= 3 and self.splits >= 3, only="scratch")

    def push_under_trouble(self, names, enough, only=None):
        self.kills = self.moves = self.splits = self.merges = 0
        draw = random.Random(SEED + 1)
        client = self.wire.Client(self.up.coordinator, f"wire-test-{names[0]}")
        tables = {name: client.table(name) for name in names}
        sums = {name: {} for name in tables}
        stop = threading.Event()
        trouble = threading.Thread(target=self.trouble, args=(stop, only))
        trouble.start()
        try:
            step = 0
            while step < STEPS or not enough():
                self.assertTrue(trouble.is_alive(), f"the trouble ended by an error; WIRE_SEED={SEED}")
                step += 1
                for name, table in tables.items():
                    ids = draw.sample(range(5000), 40)
                    gradients = {id_: [float(draw.randrange(-3, 4)) for _ in range(4)] for id_ in ids}
                    client.push(table, step, gradients)
                    for id_, gradient in gradients.items():
                        row = sums[name].setdefault(id_, [0.0] * 4)
                        row[:] = [x - g for x, g in zip(row, gradient)]
                    if step % 10 == 0:  # what was acknowledged is read
                        self.assertEqual(client.pull(table, ids), {id_: sums[name][id_] for id_ in ids},
                                         f"table {name}, step {step}; WIRE_SEED={SEED}")
        finally:
            stop.set()
            trouble.join()
        for name, table in tables.items():
            self.assertEqual(client.pull(table, list(sums[name])), sums[name], f"table {name}; WIRE_SEED={SEED}")
        client.close()

    def test_refusals_name_their_reason(self):
        client = self.wire.Client(self.up.coordinator, "wire-refusals")
        bounded = client.table("bounded")
        with self.assertRaisesRegex(self.wire.Refused, "id 5000 is outside"):
            client.pull(bounded, [5000])
        with self.assertRaisesRegex(self.wire.Refused, "NAN_GRADIENT"):
            client.push(bounded, 1, {1: [float("nan")] * 4})
        client.push(bounded, 2, {1: [0.0] * 4})  # the refused sequence is used up, and the chain goes on
        self.wire.Client(self.up.coordinator, "wire-refusals").push(bounded, 3, {1: [0.0] * 4})
        with self.assertRaisesRegex(self.wire.Refused, "FENCED"):
            client.push(bounded, 4, {1: [0.0] * 4})
        client.close()


if __name__ == "__main__":
    unittest.main()
