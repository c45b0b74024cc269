#!/usr/bin/env python3
"""The coordinator is killed and its disk is wiped, under load: it is rebuilt from the servers, and every weight is exact.

  lost_metadata_test.py --bin-dir build/bin [--case wipe,backup,cut] [--seed N]

wipe    The servers live on, and clients push all the time; one server comes only after the rebuild. The new coordinator adopts
        the others when told to, and the late one when told so again. A serving server answers all the while, and tells which table
        is served, and its version.
backup  An old backup is restored: replicas have moved, a table was created and sessions were opened since. All servers are
        killed too.
cut     The coordinator is killed again while it writes the rebuilt metadata, of a cluster with so many shards that these are
        several transactions. The next one goes on with what is in its store.
In all, what was acknowledged is in the rows exactly once. Exit status: 0 all well; anything else a failure.
"""

import glob
import json
import os
import random
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request

from cases import Wrong, main
from checker import EXACT, Checker
from cluster import Cluster, json_of_command, run_command
from damage_test import HEAL_SECONDS_MAX

SECONDS = 60


class Run:
    def __init__(self, args, seed, directory):
        self.bin_dir = args.bin_dir
        self.directory = directory
        self.cluster = Cluster(args.bin_dir, directory, servers=3, server_flags=("--host-bytes=64MiB", "--log-bytes-max=16MiB"))
        self.backups = os.path.join(directory, "backups")
        self.cluster.coordinator.command += [f"--backup-dir={self.backups}", "--backup-interval-ms=1000", "--backup-keep=3",
                                             "--refill-wait-ms=10000"]
        self.checker = Checker(args.bin_dir, directory, self.cluster.address, seed, clients=2, rows=5000, dim=32, tables="log,r2")

    def hotbed(self, *command):
        return run_command(self.bin_dir, self.cluster.address, *command)

    def json(self, *command):
        return json_of_command(self.bin_dir, self.cluster.address, *command)

    def steps(self, more):
        self.checker.wait_for_steps(more, SECONDS)

    def wipe(self):
        self.cluster.coordinator.kill()
        shutil.rmtree(os.path.join(self.directory, "coordinator"))

    def rebuild(self, *flags):
        """As soon as the servers ask for their cluster."""
        deadline = time.monotonic() + SECONDS
        while True:
            status, out, err = self.hotbed("metadata", "rebuild", "--from-servers", *flags)
            if status == 0:
                return out
            if time.monotonic() > deadline:
                raise Wrong(f"not within {SECONDS} s: a rebuild: {err}")
            time.sleep(0.1)

    def wait_for_replicas(self):
        deadline = time.monotonic() + HEAL_SECONDS_MAX
        while any(t["shards_short_of_replicas"] or t["shards_active"] < t["shards"] for t in self.json("status")["tables"]):
            if time.monotonic() > deadline:
                raise Wrong(f"not all replicas within {HEAL_SECONDS_MAX} s:\n{self.hotbed('shard', 'list')[1][-2500:]}")
            time.sleep(0.1)

    def wait_for_backups(self):
        """Until the coordinator has written one by itself; it keeps three, and the oldest goes after the newest has come."""
        deadline = time.monotonic() + SECONDS
        while True:
            written = [f for f in glob.glob(os.path.join(self.backups, "*")) if not f.endswith(".tmp")]
            if 1 <= len(written) <= 4:
                return
            if written or time.monotonic() > deadline:
                raise Wrong(f"not 1 to 4 backups in {self.backups}: {written}")
            time.sleep(0.1)

    def end(self):
        status, said = self.checker.finish(HEAL_SECONDS_MAX)
        if status != EXACT:
            raise Wrong(said)
        for mode in ("verify", "verify-replicas"):
            self.wait_for_replicas()
            status, said = self.checker.verify(mode)
            if status != EXACT:
                raise Wrong(f"{mode}: {said}")
        if self.json("status")["in_doubt"]:
            raise Wrong(f"still in doubt: {self.json('status')['in_doubt']}")
        return said

    def stop(self):
        self.checker.kill()
        self.cluster.stop()

    def evidence(self):
        return f"{self.hotbed('events')[1][-2000:]}\n{self.cluster.coordinator.tail(15)}"


class WipeRun(Run):
    def serve(self):
        self.serving = self.cluster.add_serving("r0", http=True)
        self.serving.start()
        self.table = self.json("status")["tables"][0]["name"]
        for command in (("serve", "add", self.table, "--format=int8", "--staleness-max=1h"),
                        ("publish", self.table, f"{self.directory}/versions", "--name=v1")):
            status, _, err = self.hotbed(*command)
            if status != 0:
                raise Wrong(f"{' '.join(command)}: {err}")
        self.wait_until_served()

    def wait_until_served(self):
        """The copy is ready, and the version is current."""
        deadline = time.monotonic() + SECONDS
        while True:
            said = self.json("serve", "status")
            states = [c["state"] for t in said["tables"] for c in t["copies"]]
            current = [v["name"] for v in said["versions"] if v["current"]]
            if states == ["ready"] and current == ["v1"] and self.is_ready()[0]:
                return [(t["table"], t["format"], t["replicas"]) for t in said["tables"]]
            if time.monotonic() > deadline:
                raise Wrong(f"not within {SECONDS} s: a served table with a current version: {said}")
            time.sleep(0.1)

    def wait_until_the_serving_server_is_asked(self):
        """By a coordinator without metadata: a rebuild before that would not know of it."""
        deadline = time.monotonic() + SECONDS
        said = ""
        while "does not know cluster" not in said:
            if time.monotonic() > deadline:
                raise Wrong(f"not within {SECONDS} s: the serving server is asked for its records: {said}")
            time.sleep(0.1)
            ready, said = self.is_ready()
            if not ready:
                raise Wrong(f"a serving server that has its tables is not ready without its coordinator: {said}")

    def is_ready(self):
        """What /readyz of the serving server says: whether it is, and the text."""
        try:
            with urllib.request.urlopen(f"http://{self.serving.admin}/readyz", timeout=20) as answer:
                return True, answer.read().decode()
        except urllib.error.HTTPError as error:  # not ready: the text says why
            return False, error.read().decode()

    def rebuild_is_refused_without(self, name):
        """It is refused for other reasons until all other servers have asked, and said what is served."""
        deadline = time.monotonic() + SECONDS
        err = ""
        while f"not asked yet: server {name}" not in err:
            if time.monotonic() > deadline:
                raise Wrong(f"not within {SECONDS} s: a rebuild is refused for want of {name}: {err}")
            status, _, err = self.hotbed("metadata", "rebuild", "--from-servers")
            if status != 1:
                raise Wrong(f"a rebuild without {name}: {status}, {err}")
            time.sleep(0.1)

    def look_up(self, version):
        body = json.dumps({"ids": [1, 2, 3], "version": version}).encode()
        request = urllib.request.Request(f"http://{self.serving.http}/v1/tables/{self.table}:lookup", body)
        with urllib.request.urlopen(request, timeout=20) as answer:
            return json.load(answer)["values"]

    def run(self):
        self.cluster.start()
        self.checker.create()
        self.serve()
        self.checker.start()
        self.steps(50)
        fixed = self.look_up("v1")
        served = self.wait_until_served()
        late = self.cluster.servers[2]
        self.wipe()
        self.steps(20)  # the servers go on
        late.pause()  # it hears of nothing until it is resumed
        self.cluster.coordinator.start()
        self.wait_until_the_serving_server_is_asked()
        self.rebuild_is_refused_without(late.name)
        self.look_up("latest")
        if self.look_up("v1") != fixed:
            raise Wrong("rows of a version changed when the metadata were lost")
        late.resume()
        self.rebuild()
        if self.wait_until_served() != served or self.look_up("v1") != fixed:
            raise Wrong(f"served after the rebuild: {self.json('serve', 'status')}, before: {served}")
        begin = time.monotonic()
        self.steps(50)
        outage = time.monotonic() - begin
        status, _, err = self.hotbed("metadata", "rebuild", "--from-servers")
        if status != 1 or "has asked" not in err:
            raise Wrong(f"a second rebuild: {status}, {err}")
        # The coordinator may end and start again, and servers too.
        self.cluster.coordinator.kill()
        self.cluster.coordinator.start()
        late.kill()
        late.start()
        self.steps(20)
        return f"50 steps {outage:.1f} s after the rebuild; {self.end()}"


class BackupRun(Run):
    def run(self):
        self.cluster.start()
        file = os.path.join(self.directory, "old.backup")
        self.json("metadata", "backup", file)
        self.checker.create()
        self.checker.start()
        self.steps(50)
        # Of two replicas each: s0 gives away all that it has, so no record of before holds.
        status, _, err = self.hotbed("shard", "drain", "s0")
        if status != 0:
            raise Wrong(f"drain: {err}")
        self.steps(20)
        self.wait_for_backups()
        self.wipe()
        for server in self.cluster.servers:
            server.kill()
        self.cluster.coordinator.command.append(f"--restore={file}")
        self.cluster.coordinator.start()
        for server in self.cluster.servers:
            server.begin()
        self.rebuild()
        for server in self.cluster.servers:
            server.wait_until_serving()
        self.steps(20)
        return self.end()


class CutRun(Run):
    """The kill hits the middle in about every second round, on a busy machine in fewer. The coordinator's unit tests cut a
    rebuild behind each of its transactions; here the rows have to be exact wherever it was cut."""
    ROUNDS_MAX = 8

    def __init__(self, args, seed, directory):
        super().__init__(args, seed, directory)
        self.random = random.Random(seed)

    def store_bytes(self):
        return sum(os.path.getsize(f) for f in glob.glob(os.path.join(self.directory, "coordinator", "**", "*.log"), recursive=True))

    def kill_while_rebuilding(self):
        """A moment after the first write."""
        before = self.store_bytes()
        command = [os.path.join(self.bin_dir, "hotbed"), "metadata", "rebuild", "--from-servers",
                   f"--coordinator={self.cluster.address}"]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as rebuild:
            while self.store_bytes() == before and rebuild.poll() is None:
                pass
            time.sleep(self.random.uniform(0, 0.0005))
            self.cluster.coordinator.kill()
            rebuild.wait(SECONDS)

    def wait_until_nothing_is_missing(self):
        deadline = time.monotonic() + SECONDS
        while True:
            plan = json.loads(self.rebuild("--dry-run", "-o", "json"))
            if not plan["servers_missing"] and not plan["serving_missing"]:
                return
            if time.monotonic() > deadline:
                raise Wrong(f"not within {SECONDS} s: all servers ask: {plan}")
            time.sleep(0.1)

    def was_cut(self):
        """Whether the store has a part of the rebuild: it begins with the generation and ends with the servers."""
        file = os.path.join(self.directory, "cut.backup")
        self.json("metadata", "backup", file)
        with open(file, "rb") as backup:
            records = backup.read()
        os.remove(file)
        return b"/hotbed/generation" in records and b"/hotbed/servers/" not in records

    def adopt_all(self):
        deadline = time.monotonic() + SECONDS
        while len(self.json("status")["servers"]) < 3:
            _, _, err = self.hotbed("metadata", "rebuild", "--from-servers")
            if time.monotonic() > deadline:
                raise Wrong(f"not within {SECONDS} s: three servers adopted: {err}\n{self.hotbed('status')[1]}")
            time.sleep(0.1)

    def run(self):
        self.cluster.start()
        self.checker.create()
        self.json("table", "create", "many", "--rows=3000", "--dim=4", "--shards=300", "--durability=replicated", "--replicas=2")
        self.checker.start()
        self.steps(20)
        cut = False
        rounds = 0
        while not cut and rounds < self.ROUNDS_MAX:
            rounds += 1
            self.wipe()
            self.cluster.coordinator.start()
            self.wait_until_nothing_is_missing()
            self.kill_while_rebuilding()
            self.cluster.coordinator.start()
            cut = self.was_cut()
            self.adopt_all()
            self.steps(20)
            self.wait_for_replicas()  # a rebuild refuses shards that are short of replicas
        tables = sorted(table["name"] for table in self.json("status")["tables"])
        if "many" not in tables or len(tables) != 3:
            raise Wrong(f"tables after the rebuilds: {tables}")
        return f"rebuilds: {rounds}, the last one {'cut short' if cut else 'not cut short either'}; {self.end()}"


CASES = {"wipe": WipeRun, "backup": BackupRun, "cut": CutRun}


if __name__ == "__main__":
    sys.exit(main(__doc__, CASES, lambda args, case, seed, directory: CASES[case](args, seed, directory)))
