#!/usr/bin/env python3
"""Trainers of one group as real processes: killed, restarted, joining and leaving; nobody hangs, the tables are right.

  steps_test.py --bin-dir build/bin (--sync | --staleness N) [--seed N]

Exit status: 0 all is right; 1 it is not; 3 the run itself failed.
"""

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "fault"))
from cluster import Cluster, Process  # noqa: E402

TRAINERS = 3
SECONDS_MAX = 150
LEASE_MS = 1500


class Wrong(Exception):
    pass


class Run:
    def __init__(self, args, directory):
        self.random = random.Random(args.seed)
        self.directory = directory
        self.staleness = args.staleness
        self.steps = args.steps
        self.binary = os.path.join(args.bin_dir, "hotbed-step-trainer")
        self.cluster = Cluster(args.bin_dir, directory, 2, server_flags=("--host-bytes=64MiB",))
        self.cluster.coordinator.command.append(f"--trainer-lease-ms={LEASE_MS}")
        self.killed = []  # (nanoseconds, trainer)
        self.common = [self.cluster.address, "sync" if args.sync else str(args.staleness), str(TRAINERS),
                       str(args.steps)]
        self.trainers = [self.trainer(k) for k in range(TRAINERS)]

    def trainer(self, k):
        # The first is the fastest.
        pause_ms = 5 if k == 0 else 40
        return Process(f"trainer {k}", [self.binary, "train", *self.common, str(k), str(pause_ms)],
                       f"{self.directory}/trainer-{k}.log")

    def kill(self, k):
        self.trainers[k].kill()
        # On the trainers' clock: what it wrote before it died is older.
        self.killed.append((time.clock_gettime_ns(time.CLOCK_BOOTTIME), k))

    def lines(self, k):
        with open(self.trainers[k].log_path, errors="replace") as log:
            return [line.split() for line in log if line.endswith("\n")]

    def ended(self, k):
        return max((int(line[1]) for line in self.lines(k) if line[0] == "ended"), default=0)

    def wait_until(self, what, condition, deadline):
        while not condition():
            if time.monotonic() > deadline:
                tails = "\n".join(f"{t.name}:\n{t.tail(5)}" for t in self.trainers)
                raise Wrong(f"{what} within {SECONDS_MAX} s; the trainers said last:\n{tails}")
            time.sleep(0.02)

    def kills(self, deadline):
        part = self.steps // 6
        self.wait_until("steps go on", lambda: self.ended(0) > part, deadline)
        print(f"killing trainer 1 at step {self.ended(1)}")
        self.kill(1)
        at = self.ended(0)
        self.wait_until("the others go on without it", lambda: self.ended(0) > at + part, deadline)
        print(f"killing server 0 at step {self.ended(0)}")
        self.cluster.servers[0].kill()
        time.sleep(self.random.random())
        self.cluster.servers[0].start()
        at = self.ended(0)
        self.wait_until("steps go on after the server's death", lambda: self.ended(0) > at + 2, deadline)
        print(f"trainer 1 comes back at step {self.ended(0)}")
        self.trainers[1].start(wait_for_serving=False)
        at = self.ended(0)
        self.wait_until("it joins", lambda: self.ended(1) > at, deadline)
        print(f"killing the coordinator at step {self.ended(0)}")
        self.cluster.coordinator.kill()
        time.sleep(self.random.random())
        self.cluster.coordinator.start()
        # Restarted while the others work: its earlier life's lease has not ended.
        print(f"restarting trainer 2 at step {self.ended(2)}")
        self.kill(2)
        self.trainers[2].start(wait_for_serving=False)

    def verify(self):
        done = subprocess.run([self.binary, "verify", *self.common], capture_output=True, text=True,
                              timeout=60)
        if done.returncode != 0:
            raise Wrong(done.stderr)
        applied = {tuple(map(int, line.split()[1:])) for line in done.stdout.splitlines()}
        for k in range(TRAINERS):
            for line in self.lines(k):
                if line[0] == "ended" and (k, int(line[1])) not in applied:
                    raise Wrong(f"trainer {k} was told that step {line[1]} is applied, and it is not")
        if len(applied) < self.steps * TRAINERS // 3:
            raise Wrong(f"only {len(applied)} pushes were applied")
        print(f"{len(applied)} of {self.steps * TRAINERS} pushes are in both tables, each once")

    def check_staleness(self):
        """When a trainer begins step t, each that is in the group then has come to end step t - 1 - staleness."""
        events = []
        for k in range(TRAINERS):
            for line in self.lines(k):
                if line[0] in ("begin", "ending", "joined", "done", "aborted") and len(line) == 3:
                    events.append((int(line[2]), k, line[0], int(line[1])))
        events += [(ns, k, "killed", 0) for ns, k in self.killed]
        clock = {}  # of the trainers that live: a dead one's says nothing until it joins again
        ahead = 0
        for _, k, what, step in sorted(events):
            if what == "joined":
                clock[k] = step - 1
            elif what == "ending":
                clock[k] = step
            elif what in ("done", "aborted", "killed"):
                clock.pop(k, None)
            elif what == "begin":
                for other, ended in clock.items():
                    if other == k:
                        continue
                    ahead = max(ahead, step - 1 - ended)
                    if ended < step - 1 - self.staleness:
                        raise Wrong(f"trainer {k} began step {step} when trainer {other} had ended {ended}, "
                                    f"and the staleness is {self.staleness}")
        print(f"nobody was more than {ahead} steps ahead; allowed are {self.staleness}")
        if ahead == 0 and self.staleness > 0:
            raise Wrong("nobody was ahead at all: nothing is shown")

    def run(self, kills):
        deadline = time.monotonic() + SECONDS_MAX
        try:
            self.cluster.start()
            subprocess.run([self.binary, "create", *self.common], check=True, timeout=60)
            for trainer in self.trainers:
                trainer.start(wait_for_serving=False)
            begun = time.monotonic()
            if kills:
                self.kills(deadline)
            self.wait_until("all trainers end", lambda: all(not t.running() for t in self.trainers), deadline)
            for trainer in self.trainers:
                if trainer.child.returncode != 0:
                    raise Wrong(f"{trainer.name} ended with {trainer.child.returncode}:\n{trainer.tail(5)}")
            print(f"{self.steps} steps in {time.monotonic() - begun:.1f} s")
            self.verify()
            if self.staleness is not None:
                self.check_staleness()
            return 0
        except Wrong as error:
            print(error)
            return 1
        except (RuntimeError, subprocess.SubprocessError) as error:
            print(error)
            return 3
        finally:
            for trainer in self.trainers:
                trainer.kill()
            self.cluster.stop()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin-dir", required=True)
    parser.add_argument("--sync", action="store_true")
    parser.add_argument("--staleness", type=int)
    parser.add_argument("--steps", type=int, default=90)
    parser.add_argument("--no-kills", action="store_true")
    parser.add_argument("--seed", type=int, default=int(os.environ.get("HOTBED_TEST_SEED", "1")))
    args = parser.parse_args()
    print(f"seed {args.seed}; replay: {' '.join(sys.argv)} --seed {args.seed}")
    with tempfile.TemporaryDirectory(prefix="hotbed-steps-") as directory:
        return Run(args, directory).run(not args.no_kills)


if __name__ == "__main__":
    sys.exit(main())
