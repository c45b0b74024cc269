#!/usr/bin/env python3
"""Numbers that nobody has given out, sent to a cluster at work by every message that has one: nobody else notices.

  forged_test.py --bin-dir build/bin [--seed N]

Two servers with a table of two replicas, which clients push to, and two synchronous tables of a group of two trainers. Sessions,
incarnations, epochs, steps and servers are forged: among them a hello of each server to the other with incarnation 2^64-1, pushes with
such incarnations of the clients' own sessions, and commits of step 2^44-1. Afterwards the same clients push on without an error, no
replica was lost or switched, the trainers end their last step, and every weight is exact, on each server alone too.
Exit status: 0 all well; anything else a failure.
"""

import os
import subprocess
import sys

import hostile
from cases import Wrong, main
from checker import EXACT, Checker
from cluster import Cluster, Process, json_of_command, server_of

SECONDS = 60
DIM, TRAINERS, STEPS = 16, 2, 80
PAUSE_MS = 50  # so that steps go on while numbers are forged


class Forged:
    def __init__(self, args, seed, directory):
        self.bin_dir = args.bin_dir
        self.cluster = Cluster(args.bin_dir, directory, servers=2, server_flags=("--host-bytes=64MiB",))
        self.checker = Checker(args.bin_dir, directory, self.cluster.address, seed, clients=2, rows=2000, dim=DIM, tables="r2")
        self.trainer = os.path.join(args.bin_dir, "hotbed-step-trainer")
        self.common = [self.cluster.address, "sync", str(TRAINERS), str(STEPS)]
        self.trainers = [Process(f"trainer {k}", [self.trainer, "train", *self.common, str(k), str(PAUSE_MS)],
                                 f"{directory}/trainer-{k}.log") for k in range(TRAINERS)]

    def json(self, *command):
        return json_of_command(self.bin_dir, self.cluster.address, *command)

    def run(self):
        self.cluster.start()
        self.checker.create()
        subprocess.run([self.trainer, "create", *self.common], check=True, timeout=SECONDS)
        self.checker.start()
        for trainer in self.trainers:
            trainer.start(wait_for_serving=False)
        self.checker.wait_for_steps(20, SECONDS)
        events = len(self.json("events", "--limit", 4096))
        sent = self.forge()
        self.checker.wait_for_steps(50, SECONDS)
        for trainer in self.trainers:
            if trainer.child.wait(SECONDS) != 0:
                raise Wrong(f"{trainer.name} ended with {trainer.child.returncode}: {trainer.tail(5)}")
        self.check_steps()
        if new := [e for e in self.json("events", "--limit", 4096)[events:] if e["kind"] not in ("tables_made", "trainer")]:
            raise Wrong(f"events of the forgeries: {new}")
        return f"{sent} forged messages; {self.expect_exact()}"

    def check_steps(self):
        """Every step that a trainer ended is applied once. A trainer that starts late joins at a later step than the first."""
        done = subprocess.run([self.trainer, "verify", *self.common], capture_output=True, text=True, timeout=SECONDS, check=False)
        applied = {tuple(map(int, line.split()[1:3])) for line in done.stdout.splitlines()}
        ended = set()
        for k, trainer in enumerate(self.trainers):
            with open(trainer.log_path, encoding="ascii", errors="replace") as log:
                ended |= {(k, int(line.split()[1])) for line in log if line.startswith("ended ")}
            if (k, STEPS) not in ended:
                raise Wrong(f"{trainer.name} did not end step {STEPS}: {trainer.tail(5)}")
        if done.returncode != 0 or not ended <= applied:
            raise Wrong(f"steps of (trainer, step) {sorted(ended - applied)} were not applied once: {done.stderr}")

    def forge(self):
        """Every forgery once; how many."""
        status = self.json("status")
        processes = [server_of(admin) for admin in self.cluster.admin]
        addresses = {s["name"]: s["address"] for s in status["servers"]}
        numbers = {t["name"]: self.json("table", "describe", t["name"])["id"] for t in status["tables"]}
        peers = {address: hostile.Peer(address) for address in [*addresses.values(), self.cluster.address]}
        answers, messages = b"", []
        for shard in self.json("shard", "list"):
            name, index = shard["shard"].rsplit("/", 1)
            dim = DIM if name.startswith("check") else 4
            of_shard = hostile.forgeries_of_shard(numbers[name], int(index), shard["epoch"], shard["range"][0], dim)
            messages += [(addresses[shard["primary"]], path, body) for path, body in of_shard]
        for (server, _), to, address in zip(processes, reversed(processes), reversed(list(addresses.values()))):
            for forged in (server, hostile.FORGED):
                messages += [(address, *m) for m in hostile.forgeries_of_peer(status["cluster_id"], numbers[name], 0, forged, to)]
        messages += [(self.cluster.address, *m) for m in
                     hostile.forgeries_of_coordinator(numbers[name], 0, [p[0] for p in processes] + [hostile.FORGED])]
        for address, path, body in messages:
            peer = peers[address]
            if peer.await_answer(peer.call(path, body), 10) is None:
                raise Wrong(f"{path}: no answer to a forged message")
            answers += peer.answer
        for text in (b"opened no session", b"asked for, current is", b"a commit of step", b"has committed no step"):
            if text not in answers:
                raise Wrong(f"no forged message was refused with '{text.decode()}'")
        for server in self.cluster.servers:  # what ends a stream comes in its trailers, which hostile.Peer does not read
            if "incarnation 18446744073709551615 here" not in server.tail(400):
                raise Wrong(f"{server.name} has refused no hello: {server.tail(20)}")
        for peer in peers.values():
            peer.close()
        return len(messages)

    def expect_exact(self):
        status, said = self.checker.finish(SECONDS)
        if status == EXACT:
            status, said = self.checker.verify()
        if status == EXACT:
            status, said = self.checker.verify("verify-replicas")
        errors = self.checker.progress()["errors"]
        if status != EXACT or errors:
            raise Wrong(f"{said}; {errors} errors")
        return said

    def stop(self):
        self.checker.kill()
        for trainer in self.trainers:
            trainer.kill()
        self.cluster.stop()

    def evidence(self):
        return "".join(f"{s.name}:\n{s.tail(8)}" for s in self.cluster.servers)


if __name__ == "__main__":
    sys.exit(main(__doc__, {"forged": Forged}, lambda args, case, seed, directory: Forged(args, seed, directory)))
