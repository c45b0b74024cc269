#!/usr/bin/env python3
"""Flips one bit at rest under a server that is down: what is damaged is found, told and never served.

  damage_test.py --bin-dir build/bin [--replicas 1|2] [--case log,sst,promises,catalog,identity] [--seed N]

With one replica (class log) the damage is refused and nothing is repaired: with the bit flipped back, every weight is exact. With two
(replicated=2) the replicas are whole again without a person, at the latest when a server that refuses to start comes back with an
empty directory; every weight is exact, on each server alone too. Exit status: 0 all well; anything else a failure.
"""

import os
import random
import shutil
import sys
import time

from cases import Wrong, main
from checker import EXACT, Checker
from cluster import Cluster, json_of_command, run_command

CASES = {  # case: where its file lies in a server's data directory, and what its name ends with
    "log": ("log", ".log"),
    "sst": ("spill", ".sst"),
    "promises": ("", "PROMISES"),
    "catalog": ("", "CATALOG"),
    "identity": ("", "IDENTITY"),
}
HEAL_SECONDS_MAX = 120
# In the words of a server or client that found damage.
TELLING = ("damaged", " is no ", "CORRUPT", "checksum", "corrupt", "Corruption")


def wait_for_replicas(bin_dir, coordinator):
    """Until every shard has two active members: seconds taken."""
    begin = time.monotonic()
    while True:
        shards = json_of_command(bin_dir, coordinator, "shard", "list")
        missing = [s["shard"] for s in shards if not s["active"] or len(s["members"]) < 2]
        if not missing:
            return time.monotonic() - begin
        if time.monotonic() > begin + HEAL_SECONDS_MAX:
            told = "\n".join(run_command(bin_dir, coordinator, *words)[1][-2500:]
                             for words in (("shard", "list"), ("shard", "moves"), ("events",)))
            raise Wrong(f"not two replicas within {HEAL_SECONDS_MAX} s: {', '.join(missing)}\n{told}")
        time.sleep(0.1)


class DamageRun:
    def __init__(self, args, case, seed, directory):
        self.case = case
        self.replicas = args.replicas
        self.directory = directory
        self.random = random.Random(f"{seed} {case}")
        self.cluster = Cluster(args.bin_dir, directory, servers=3, server_flags=("--host-bytes=64MiB", "--log-bytes-max=16MiB"))
        self.bin_dir = args.bin_dir
        self.checker = Checker(args.bin_dir, directory, self.cluster.address, seed, clients=2, rows=40000, dim=64,
                               tables="log" if args.replicas == 1 else "r2")
        self.victim = self.random.choice(self.cluster.servers)
        self.flipped = None  # (path, offset, mask)
        self.flipped_byte = 0

    def file_to_damage(self):
        folder, ending = CASES[self.case]
        root = os.path.join(self.directory, self.victim.name, folder)
        found = [os.path.join(at, name) for at, _, names in os.walk(root) for name in names if name.endswith(ending)]
        found = [path for path in found if os.path.getsize(path) > 0]
        if self.case == "log" and len(found) > 1:
            found.remove(max(found))  # the newest segment may end before its file does
        if not found:
            raise Wrong(f"no file *{ending} below {root}")
        return max(found, key=os.path.getsize)

    def flip(self):
        path = self.file_to_damage()
        size = os.path.getsize(path)
        # The end of a log segment's file may be bytes of an older one, and the last record torn by the kill: stay clear of both.
        offset = self.random.randrange(size // 20, size // 2) if self.case in ("log", "sst") else self.random.randrange(size)
        mask = 1 << self.random.randrange(8)
        with open(path, "r+b") as file:
            file.seek(offset)
            byte = file.read(1)[0]
            file.seek(offset)
            file.write(bytes([byte ^ mask]))
        self.flipped = (path, offset, mask)
        self.flipped_byte = byte ^ mask

    def flip_back(self):
        """Unless a server that got over the damage has deleted the file, or written over it."""
        path, offset, mask = self.flipped
        if not os.path.exists(path):
            return
        with open(path, "r+b") as file:
            file.seek(offset)
            if file.read(1) == bytes([self.flipped_byte]):
                file.seek(offset)
                file.write(bytes([self.flipped_byte ^ mask]))

    def run(self):
        self.cluster.start()
        self.checker.create()
        self.checker.start()
        self.checker.wait_for_steps(1500, 60)
        time.sleep(1.5)  # a flush or two
        self.victim.kill()
        self.flip()
        path, offset, mask = self.flipped
        what = f"{os.path.relpath(path, self.directory)}, offset {offset} of {os.path.getsize(path)}, mask {mask:#04x}"
        if self.replicas == 1:
            return f"{what}: {self.one_replica()}"
        return f"{what}: {self.two_replicas()}"

    def start_victim(self):
        """None, or what it said when it refused to start."""
        try:
            self.victim.start()
            return None
        except RuntimeError as error:
            said = str(error)
        self.victim.kill()
        if not any(word in said for word in TELLING):
            raise Wrong(f"it does not start, and does not say why: {said[-600:]}")
        return said.strip().split("\n")[-1]

    def one_replica(self):
        refused = self.start_victim()
        for worker in self.checker.workers:
            worker.kill()
        if refused is None:
            status, said = self.checker.verify()
            if status == EXACT:
                told = "harmless"
            elif "cells differ" in said or not any(word in said for word in TELLING):
                raise Wrong(f"damage was served, or an error that does not tell of it: {said[-600:]}")
            else:
                told = f"found: {said[:160]}"
        else:
            told = f"refused to start: {refused[-200:]}"
        self.victim.kill()
        self.flip_back()
        self.victim.start()
        status, said = self.checker.verify()
        if status != EXACT:
            raise Wrong(f"with the bit flipped back: {said[-600:]}")
        return f"{told}; flipped back: {said}"

    def two_replicas(self):
        refused = self.start_victim()
        told = "the server starts"
        if refused is not None:
            told = f"refused to start: {refused[-160:]}; came back empty"
            shutil.rmtree(os.path.join(self.directory, self.victim.name))
            self.victim.command = [f"--name={self.victim.name}-again" if a.startswith("--name=") else a
                                   for a in self.victim.command]
            self.victim.start()
        self.checker.wait_for_steps(20, HEAL_SECONDS_MAX)
        seconds = self.wait_for_replicas()
        status, said = self.checker.finish(HEAL_SECONDS_MAX)
        if status != EXACT:
            raise Wrong(said)
        status, said = self.checker.verify()
        if status != EXACT:
            raise Wrong(said)
        for server in self.cluster.servers:
            server.kill()
            status, alone = self.checker.verify("verify-replicas")
            if status != EXACT:
                raise Wrong(f"without {server.name}: {alone}")
            server.start()
            self.wait_for_replicas()
        return f"{told}; two replicas of all again {seconds:.1f} s after; {said}; also without each server"

    def wait_for_replicas(self):
        return wait_for_replicas(self.bin_dir, self.cluster.address)

    def stop(self):
        self.checker.kill()
        self.cluster.stop()

    def evidence(self):
        return f"flipped {self.flipped}; the end of the server's log:\n{self.victim.tail(15)}"


if __name__ == "__main__":
    sys.exit(main(__doc__, CASES, DamageRun, {"--replicas": {"type": int, "choices": [1, 2], "default": 1}}))
