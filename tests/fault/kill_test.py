#!/usr/bin/env python3
"""Kills servers, coordinator and clients at random under load, then compares every weight exactly.

  kill_test.py --bin-dir build/bin [--seconds 25] [--seed N]

Exit status: 0 exact; 1 a difference was found; 3 the run itself failed. With --expect-failure BUG the servers run with that
planted bug (of --server-binary hotbed-server-planted), and the run passes when the checker finds it within --rounds rounds.
"""

import argparse
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time

from cluster import Cluster, Process
from mover import Mover

VERIFY_SECONDS_MAX = 150
EXACT, DIFFERENT, BROKEN = 0, 1, 3


class KillRun:
    def __init__(self, args, seed, directory):
        self.args = args
        self.random = random.Random(seed)
        self.seed = seed
        self.directory = directory
        self.summary = f"seed {seed}: nothing killed"
        env = {"HOTBED_PLANTED_BUG": args.expect_failure} if args.expect_failure else None
        self.cluster = Cluster(args.bin_dir, directory, args.servers, args.server_binary,
                               args.server_flag, env)
        for server in self.cluster.servers[len(self.cluster.servers) - args.host_servers:]:
            own = [flag for flag in server.command if not flag.startswith("--device")]
            server.command = [*own, "--device=host"]
        self.mover = Mover(self.cluster, seed, args.move_pause) if args.move_pause > 0 else None
        self.checker = os.path.join(args.bin_dir, "hotbed-kill-checker")
        self.workload = [f"--coordinator={self.cluster.address}", f"--clients={args.clients}",
                         f"--rows={args.rows}", f"--dim={args.dim}", f"--seed={seed}"]
        self.workers = [
            Process(f"client {c}",
                    [self.checker, "worker", *self.workload, f"--journal-dir={directory}",
                     f"--client={c}"],
                    f"{directory}/client-{c}.log")
            for c in range(args.clients)
        ]

    def run(self):
        try:
            self.cluster.start()
            subprocess.run([self.checker, "create", *self.workload], check=True, timeout=90)
            for worker in self.workers:
                worker.start(wait_for_serving=False)
            if self.mover is not None:
                self.mover.start()
            found = self.kill_at_random(time.monotonic() + self.args.seconds)
            if self.mover is not None:
                self.mover.stop()
            self.count_kills()
            for worker in self.workers:
                worker.kill()
            return found if found != EXACT else self.verify()
        except (RuntimeError, subprocess.SubprocessError) as error:
            print(error)
            return BROKEN
        finally:
            for worker in self.workers:
                worker.kill()
            self.cluster.stop()

    def choose(self):
        roll = self.random.random()
        if roll < self.args.server_share:
            return self.random.choice(self.cluster.servers)
        if roll < self.args.server_share + (1 - self.args.server_share) * 0.6:
            return self.random.choice(self.workers)
        return self.cluster.coordinator

    def kill_at_random(self, end):
        while time.monotonic() < end:
            time.sleep(self.random.uniform(0.3, self.args.pause_max))
            found = self.worker_status()
            if found != EXACT:
                return found
            victim = self.choose()
            victim.kill()
            time.sleep(self.random.choice([0, self.random.uniform(0, 1.0)]))
            victim.start(wait_for_serving=victim not in self.workers)
        return self.worker_status()

    def worker_status(self):
        """A worker that ended by itself has found something, or could not continue."""
        for worker in self.workers:
            if not worker.running():
                print(f"{worker.name} ended with {worker.child.returncode}:\n{worker.tail()}")
                return worker.child.returncode or BROKEN
        return EXACT

    def verify(self):
        done = subprocess.run(
            [self.checker, "verify", *self.workload, f"--journal-dir={self.directory}"],
            stdout=subprocess.PIPE, text=True, timeout=VERIFY_SECONDS_MAX)
        print(done.stdout, end="")
        return done.returncode

    def count_kills(self):
        """Before the run's own end, which stops everything with a kill."""
        self.summary = (f"seed {self.seed}: {sum(p.kills for p in self.cluster.servers)} servers, "
                        f"{self.cluster.coordinator.kills} coordinators and "
                        f"{sum(w.kills for w in self.workers)} clients killed")
        if self.mover is not None:
            self.summary += f", {self.mover.done} of {self.mover.asked} moves seen done; refused: {dict(self.mover.refused)}"


def one_round(args, seed):
    directory = tempfile.mkdtemp(prefix="hotbed_kill_")
    run = KillRun(args, seed, directory)
    found = run.run()
    print(run.summary, flush=True)
    caught = args.expect_failure and args.or_refusal and any(args.or_refusal in w.tail(15) for w in run.workers)
    if caught and found not in (EXACT, DIFFERENT):
        print(f"a server has found the bug itself: {args.or_refusal}")
        found = DIFFERENT
    if found == EXACT or (args.expect_failure and found == DIFFERENT):
        shutil.rmtree(directory)
    else:
        for process in [*run.cluster.processes(), *run.workers]:
            print(f"--- {process.name}, the end of its log\n{process.tail(15)}")
        print(f"everything is left in {directory}; run again with: "
              f"tests/fault/kill_test.py --bin-dir {args.bin_dir} --seed {seed} --seconds {args.seconds}")
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--bin-dir", required=True)
    parser.add_argument("--server-binary", default="hotbed-server")
    parser.add_argument("--server-flag", action="append", default=[], help="passed on to every server")
    parser.add_argument("--servers", type=int, default=3)
    parser.add_argument("--host-servers", type=int, default=0,
                        help="this many of the servers have their rows in host memory, whatever --server-flag says")
    parser.add_argument("--move-pause", type=float, default=0,
                        help="moves shards meanwhile, about this many seconds apart; 0: no moves")
    parser.add_argument("--clients", type=int, default=3)
    parser.add_argument("--rows", type=int, default=20000)
    parser.add_argument("--dim", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=25)
    parser.add_argument("--server-share", type=float, default=0.6, help="of the kills that hit servers")
    parser.add_argument("--pause-max", type=float, default=2.0, help="seconds from a kill to the next")
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--expect-failure", metavar="BUG", default="")
    parser.add_argument("--or-refusal", metavar="TEXT", default="",
                        help="the bug is found as well if this is the error that ended a client")
    parser.add_argument("--rounds", type=int, default=4, help="tries to find a planted bug")
    args = parser.parse_args()
    args.bin_dir = os.path.abspath(args.bin_dir)
    seed = args.seed if args.seed is not None else random.SystemRandom().randrange(1 << 31)
    print(f"seed {seed}", flush=True)
    if not args.expect_failure:
        return one_round(args, seed)
    for round_number in range(args.rounds):
        begin = time.monotonic()
        found = one_round(args, seed + round_number)
        if found == DIFFERENT:
            print(f"the checker caught {args.expect_failure} in round {round_number + 1}, "
                  f"after {time.monotonic() - begin:.0f} s of it")
            return 0
        if found != EXACT:
            return found
    print(f"the checker did not catch {args.expect_failure} in {args.rounds} rounds")
    return 1


if __name__ == "__main__":
    sys.exit(main())
