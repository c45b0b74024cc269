#!/usr/bin/env python3
"""Misuse of a cluster of real processes: each gets a clear answer, and the cluster is unharmed.

  misuse_test.py --bin-dir build/bin [-v] [TestClass[.test] ...]

Every test ends with the checker of its cluster: its clients worked all the time, and every weight is exact.
"""

import argparse
import os
import re
import shutil
import signal
import sys
import tempfile
import time
import unittest

from checker import EXACT, Checker
from cluster import Cluster, json_of_command, run_command

BIN = "build/bin"
GET_ON_SECONDS = 30


class MisuseTest(unittest.TestCase):
    """A cluster with clients at work; `servers` and `tables` may differ by class."""

    servers = 3
    tables = "log,r2"
    rows, dim = 4000, 16
    server_flags = ("--host-bytes=64MiB",)

    def setUp(self):
        self.directory = tempfile.mkdtemp(prefix="hotbed_misuse_")
        self.addCleanup(shutil.rmtree, self.directory, ignore_errors=True)
        self.cluster = Cluster(BIN, self.directory, self.servers, server_flags=self.server_flags)
        self.addCleanup(self.cluster.stop)
        self.cluster.start()
        self.checker = Checker(BIN, self.directory, self.cluster.address, 1, clients=2, rows=self.rows, dim=self.dim,
                               tables=self.tables)
        self.addCleanup(self.checker.kill)
        self.checker.create()
        self.checker.start()
        self.gets_on()

    def cli(self, *words):
        return run_command(BIN, self.cluster.address, *words)

    def json(self, *words):
        return json_of_command(BIN, self.cluster.address, *words)

    def refused(self, *words, naming):
        """The command is refused, and its answer names all of `naming`."""
        status, out, err = self.cli(*words)
        self.assertNotEqual(status, 0, f"{words} was carried out: {out}")
        for word in naming:
            self.assertIn(word, err)
        return err

    def gets_on(self):
        return self.checker.wait_for_steps(10, GET_ON_SECONDS)

    def exact(self):
        self.gets_on()
        status, said = self.checker.finish(GET_ON_SECONDS)
        self.assertEqual(status, EXACT, said)
        status, said = self.checker.verify()
        self.assertEqual(status, EXACT, said)
        self.assertEqual(self.checker.progress()["errors"], 0)

    def shards(self):
        return {s["shard"]: s for s in self.json("shard", "list")}

    def wait_until(self, what, condition, seconds=GET_ON_SECONDS):
        end = time.monotonic() + seconds
        while True:
            last = condition()
            if last:
                return last
            self.assertLess(time.monotonic(), end, f"not within {seconds} s: {what}")
            time.sleep(0.1)

    def refuses_to_start(self, server, naming):
        with self.assertRaises(RuntimeError) as caught:
            server.start()
        for word in naming:
            self.assertIn(word, str(caught.exception))


class Moves(MisuseTest):
    tables = "log"

    def test_what_cannot_be_done_is_refused_by_name(self):
        shard = next(iter(self.shards().values()))
        before = self.shards()
        self.refused("shard", "move", shard["shard"], "--to", "s9", naming=["s9", "s0"])
        self.refused("shard", "move", "check_log/999", "--to", "s0", naming=["999"])
        self.refused("shard", "move", "chek_log/0", "--to", "s0", naming=["chek_log", "check_log"])
        self.refused("shard", "drain", "s9", naming=["s9"])
        # To where it is: told so, whether as an error (one shard) or as what is passed over (several).
        _, out, err = self.cli("shard", "move", shard["shard"], "--to", shard["primary"])
        self.assertIn("already", out + err)
        self.assertEqual(self.shards(), before)
        self.exact()

    def test_one_that_moves_already_is_told_by_its_request(self):
        shard = next(iter(self.shards().values()))
        others = [s.name for s in self.cluster.servers if s.name != shard["primary"]]
        self.assertEqual(self.cli("shard", "pause")[0], 0)
        self.assertEqual(self.cli("shard", "move", shard["shard"], "--to", others[0], "--no-wait")[0], 0)
        self.refused("shard", "move", shard["shard"], "--to", others[1], naming=["moving already", shard["shard"]])
        self.assertEqual(self.cli("shard", "resume")[0], 0)
        self.wait_until("it has moved", lambda: self.shards()[shard["shard"]]["primary"] == others[0])
        self.exact()

    def test_a_server_that_is_down_takes_nothing(self):
        victim = self.cluster.servers[2]
        shard = next(s for s in self.shards().values() if s["primary"] != victim.name)
        victim.kill()
        self.wait_until("it is known to be down", lambda: not self.server(victim.name)["live"])
        self.refused("shard", "move", shard["shard"], "--to", victim.name, naming=[victim.name])
        victim.start()
        self.exact()

    def server(self, name):
        return next(s for s in self.json("status")["servers"] if s["name"] == name)


class StoppedTogether(MisuseTest):
    tables = "r2"
    rows, dim = 40000, 64  # so many shards that each server is the primary of some

    def test_nothing_is_handed_over_and_nobody_waits_long(self):
        for server in self.cluster.servers:
            server.child.send_signal(signal.SIGTERM)
        for server in self.cluster.servers:
            self.assertEqual(server.stop(), 0, server.tail())
        self.assertEqual([e for e in self.json("events") if e["kind"] == "switch"], [])
        waits = [int(ms) for s in self.cluster.servers for ms in re.findall(r"not handed over within (\d+) ms", s.tail(400))]
        self.assertTrue(waits, "meant to have replicas that nobody can take over")
        self.assertLess(max(waits), 10000)
        for server in self.cluster.servers:
            server.start()
        self.exact()


class LastServer(MisuseTest):
    servers = 1
    tables = "log"

    def test_the_last_server_is_not_drained(self):
        self.refused("shard", "drain", "s0", naming=["s0", "last", "add another"])
        self.exact()

    def test_replicas_need_a_second_host(self):
        err = self.refused("table", "create", "replicas", "--rows", 1000, "--dim", 8, "--durability", "replicated=2",
                           naming=["replicas", "2"])
        self.assertNotIn("replicas", [t["name"] for t in self.json("table", "list")], err)
        self.exact()


class FullServer(MisuseTest):
    tables = "log"
    servers = 2

    def test_a_server_whose_disk_is_full_takes_nothing(self):
        small = self.cluster.add_server(flags=("--spill-bytes-max=1MiB",))
        small.start()
        everything = sorted(self.shards())
        status, out, err = self.cli("shard", "move", *everything, "--to", small.name, "--timeout=20s")
        # Either the move is refused before anything moves, or shards that do not fit stay where they are; pushes continue.
        self.gets_on()
        if status != 0:
            self.assertIn(small.name, out + err)
        self.cli("shard", "abort")
        self.cli("shard", "drain", small.name)
        self.exact()


class Directories(MisuseTest):
    def test_an_old_directory_is_refused_and_a_new_server_takes_its_place(self):
        """Replicated tables: nothing is lost, and a server with an empty directory makes them whole again."""
        victim = self.cluster.servers[0]
        path = f"{self.directory}/s0"
        victim.kill()
        shutil.copytree(path, f"{self.directory}/old")
        victim.start()
        self.gets_on()
        # Only tables with replicas: the other ones' newest data is in the directory that is taken away.
        self.checker.kill()
        self.checker = Checker(BIN, self.directory + "/again", self.cluster.address, 2, clients=2, rows=4000, dim=16, tables="r3")
        os.mkdir(self.directory + "/again")
        self.addCleanup(self.checker.kill)
        self.checker.create()
        self.checker.start()
        self.gets_on()
        victim.kill()
        shutil.rmtree(path)
        os.rename(f"{self.directory}/old", path)
        self.refuses_to_start(victim, ["copy or a restored backup", "another --name and an empty --data-dir"])
        self.cluster.add_server().start()
        self.cluster.servers.remove(victim)
        self.gets_on()
        def whole():
            return all(len(s["members"]) == 3 and s["active"] for n, s in self.shards().items() if n.startswith("check_r3"))
        self.wait_until("three members again", whole, 60)
        self.exact()
        for server in self.cluster.servers:
            server.kill()
            status, said = self.checker.verify("verify-replicas")
            self.assertEqual(status, EXACT, said)
            server.start()
            self.wait_until("three members again", whole, 60)  # the next one may be the last that has everything

    def test_another_clusters_directory_is_refused(self):
        other = Cluster(BIN, tempfile.mkdtemp(dir=self.directory), 1, server_flags=self.server_flags)
        self.addCleanup(other.stop)
        other.start()
        other.stop()
        stranger = self.cluster.add_server(data_dir=f"{other.directory}/s0")
        self.refuses_to_start(stranger, ["cluster", "another"])
        self.exact()

    def test_two_servers_of_one_name(self):
        second = self.cluster.add_server(name="s0", data_dir=f"{self.directory}/second")
        self.refuses_to_start(second, ["s0", "belongs to", "choose another name"])
        self.exact()

    def test_two_servers_with_one_directory(self):
        second = self.cluster.add_server(name="s7", data_dir=f"{self.directory}/s0")
        self.refuses_to_start(second, [f"{self.directory}/s0"])
        self.exact()


class Coordinators(MisuseTest):
    tables = "log"

    def test_a_second_one_on_the_same_directory(self):
        """As an older one that somebody forgot to stop would be."""
        second = Cluster(BIN, self.directory, 0).coordinator  # same directory, other ports
        second.log_path = f"{self.directory}/second.log"
        self.refuses_to_start(second, [f"{self.directory}/coordinator"])
        self.exact()

    def test_one_that_is_older_than_the_store(self):
        """It refuses a format that it does not know, and leaves it as it is."""
        coordinator = self.cluster.coordinator
        path = f"{self.directory}/coordinator/VERSION"
        coordinator.kill()
        with open(path, encoding="ascii") as file:
            ours = file.read()
        with open(path, "w", encoding="ascii") as file:
            file.write("hotbed-metadata 99\n")
        self.refuses_to_start(coordinator, ["hotbed-metadata 99", "use the program that wrote it"])
        coordinator.kill()
        with open(path, "w", encoding="ascii") as file:
            file.write(ours)
        coordinator.start()
        self.exact()

    def test_one_with_the_store_of_long_ago(self):
        """Its records are older than what the servers promised: it may say what it wants, nothing acknowledged is lost."""
        coordinator = self.cluster.coordinator
        path = f"{self.directory}/coordinator"
        coordinator.kill()
        shutil.copytree(path, f"{self.directory}/long-ago")
        coordinator.start()
        # Epochs advance: a server dies and comes back.
        self.cluster.servers[1].kill()
        self.cluster.servers[1].start()
        self.gets_on()
        coordinator.kill()
        os.rename(path, f"{self.directory}/newest")
        os.rename(f"{self.directory}/long-ago", path)
        coordinator.start()
        time.sleep(4)  # longer than a lease
        # Back to the newest: everything is as it was.
        coordinator.kill()
        shutil.rmtree(path)
        os.rename(f"{self.directory}/newest", path)
        coordinator.start()
        self.exact()


def main():
    global BIN
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--bin-dir", required=True)
    args, rest = parser.parse_known_args()
    BIN = os.path.abspath(args.bin_dir)
    unittest.main(argv=[sys.argv[0], *rest], verbosity=2)


if __name__ == "__main__":
    main()
