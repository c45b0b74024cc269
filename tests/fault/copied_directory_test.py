#!/usr/bin/env python3
"""A data directory that is there twice, and one from which a part is gone, under load and by real processes.

  copied_directory_test.py --bin-dir build/bin [--case copy,adopt] [--seed N]

copy   A server's directory is copied while it works. The copy is refused while the original lives, after the original has started
       again, and in the original's place, where its log is damaged as well: no client takes that for the last word. An event names
       both addresses, the clients go on, and at the end every weight is exact.
adopt  Of two replicas, one server is killed and loses its log. It refuses to start and names the log; with --adopt-incomplete it
       starts without its data, an event tells of it, both replicas are whole again, and every weight is exact.
Exit status: 0 all well; anything else a failure.
"""

import json
import os
import shutil
import sys

from cases import Wrong, main
from checker import EXACT, Checker
from cluster import Cluster, Process, free_ports, json_of_command, run_command
from damage_test import HEAL_SECONDS_MAX, wait_for_replicas


class Run:
    def __init__(self, args, seed, directory, servers, tables):
        self.args = args
        self.directory = directory
        self.cluster = Cluster(args.bin_dir, directory, servers=servers,
                               server_flags=("--host-bytes=64MiB", "--log-bytes-max=16MiB"))
        self.checker = Checker(args.bin_dir, directory, self.cluster.address, seed, clients=2, rows=10000, dim=32, tables=tables)
        self.victim = self.cluster.servers[0]
        self.data = os.path.join(directory, "s0")

    def begin(self):
        self.cluster.start()
        self.checker.create()
        self.checker.start()
        self.checker.wait_for_steps(100, 60)

    def end(self):
        status, said = self.checker.finish(HEAL_SECONDS_MAX)
        if status != EXACT:
            raise Wrong(said)
        status, said = self.checker.verify()
        if status != EXACT:
            raise Wrong(said)
        return said

    def events(self, kind):
        events = json_of_command(self.args.bin_dir, self.cluster.address, "events", "--limit", 4096)
        return [e["text"] for e in events if e["kind"] == kind]

    def expect_refusal(self, process, *words):
        """It ends by itself and says why."""
        try:
            process.start()
        except RuntimeError as error:
            said = str(error)
            process.kill()
            missing = [word for word in words if word not in said]
            if missing:
                raise Wrong(f"{process.name} ended without a word of {missing}: {said[-800:]}") from error
            return
        process.kill()
        raise Wrong(f"{process.name} was let in")

    def stop(self):
        self.checker.kill()
        self.cluster.stop()

    def evidence(self):
        return f"the end of the server's log:\n{self.victim.tail(15)}"


class CopyRun(Run):
    def __init__(self, args, seed, directory):
        super().__init__(args, seed, directory, servers=1, tables="log")
        listen, admin = free_ports(2)
        self.copied = os.path.join(directory, "copied")
        self.address = f"127.0.0.9:{listen}"
        command = [a for a in self.victim.command if not a.startswith(("--listen", "--admin-listen", "--data-dir"))]
        self.copy = Process("copy", [*command, f"--listen={self.address}", f"--admin-listen=127.0.0.1:{admin}",
                                     f"--data-dir={self.copied}"], f"{directory}/copy.log")
        self.original = next(a for a in self.victim.command if a.startswith("--listen")).split("=")[1]

    def damage_log(self):
        """Cuts the longest segment of the log at the original's place in half."""
        log = os.path.join(self.data, "log")
        segment = max((os.path.join(log, name) for name in os.listdir(log)), key=os.path.getsize)
        os.truncate(segment, os.path.getsize(segment) // 2)

    def run(self):
        self.begin()
        self.victim.pause()
        shutil.copytree(self.data, self.copied)
        self.victim.resume()
        self.expect_refusal(self.copy, "copy", self.address, self.original)
        self.checker.wait_for_steps(50, 60)
        self.victim.kill()
        self.victim.start()
        self.expect_refusal(self.copy, "copy", self.address, self.original)
        self.checker.wait_for_steps(50, 60)
        # A backup of it, restored in its place.
        self.victim.kill()
        os.rename(self.data, self.data + ".away")
        shutil.copytree(self.copied, self.data)
        self.damage_log()
        self.expect_refusal(self.victim, "is damaged at offset", "copy")
        shutil.rmtree(self.data)
        os.rename(self.data + ".away", self.data)
        self.victim.start()
        self.checker.wait_for_steps(50, 60)
        told = self.events("server_refused")
        if len(told) < 3 or not all(self.original in text for text in told) or self.address not in told[0]:
            raise Wrong(f"the events do not tell of it: {told}")
        _, out, _ = run_command(self.args.bin_dir, self.cluster.address, "doctor", f"--data-dir={self.directory}")
        if "directories" not in out or "3 refused or given up lately" not in out:
            raise Wrong(f"doctor does not tell of it: {out}")
        said = self.end()
        if lost := self.checker.progress()["indeterminate"]:
            raise Wrong(f"{lost} pushes ended as indeterminate, though the original has answered all of them since")
        return f"refused three times; {said}"


class AdoptRun(Run):
    def __init__(self, args, seed, directory):
        super().__init__(args, seed, directory, servers=3, tables="r2")

    def salvage(self):
        """What is left is listed and written out: the rows, and not the log."""
        rows = os.path.join(self.directory, "rows")
        report = json_of_command(self.args.bin_dir, self.cluster.address, "salvage", self.data, "--out", rows)
        troubles = {file["file"]: file["trouble"] for file in report["files"]}
        if not troubles["log"] or troubles["spill/rows"] or troubles["CATALOG"]:
            raise Wrong(f"salvage tells of other troubles than the missing log: {troubles}")
        for shard in report["shards"]:
            with open(shard["out"]) as lines:
                written = [json.loads(line) for line in lines]
            if len(written) != shard["rows"] or any(len(row["weights"]) != 32 for row in written):
                raise Wrong(f"salvage wrote {len(written)} rows and tells of {shard}")
        if not report["shards"] or sum(shard["rows"] for shard in report["shards"]) == 0:
            raise Wrong(f"salvage found no rows: {report['shards']}")

    def run(self):
        self.begin()
        self.victim.stop()  # writes its rows back
        self.victim.start()
        self.checker.wait_for_steps(50, 60)
        self.victim.kill()
        log = os.path.join(self.data, "log")
        shutil.rmtree(log)
        self.expect_refusal(self.victim, log, "missing", "--adopt-incomplete")
        self.salvage()
        self.victim.command = [*self.victim.command, "--adopt-incomplete"]
        self.victim.start()
        seconds = wait_for_replicas(self.args.bin_dir, self.cluster.address)
        if not any(log in text for text in self.events("data_given_up")):
            raise Wrong(f"no event tells that the data was given up: {self.events('data_given_up')}")
        self.checker.wait_for_steps(20, HEAL_SECONDS_MAX)
        said = self.end()
        for server in self.cluster.servers[1:]:
            server.kill()
            status, alone = self.checker.verify("verify-replicas")
            if status != EXACT:
                raise Wrong(f"without {server.name}: {alone}")
            server.start()
            wait_for_replicas(self.args.bin_dir, self.cluster.address)
        return f"two replicas of all again {seconds:.1f} s after; {said}"


CASES = {"copy": CopyRun, "adopt": AdoptRun}


if __name__ == "__main__":
    sys.exit(main(__doc__, CASES, lambda args, case, seed, directory: CASES[case](args, seed, directory)))
