"""The conserved-sum checker (tests/checker) as processes of a run: its clients, how they are getting on, its verdict."""

import os
import struct
import subprocess
import time

from cluster import Process

EXACT, DIFFERENT, BROKEN = 0, 1, 3
VERIFY_SECONDS_MAX = 300
# As Progress of tests/checker/counts.h, in its order.
PROGRESS = ("steps", "pushes", "indeterminate", "errors", "pulls", "rows_read", "push_max_us", "pull_max_us", "last_ack_ns",
            "retries", "wrong_epoch", "reconnects")


class Found(RuntimeError):
    """A client ended by itself: it found differences (DIFFERENT), or could not continue (BROKEN)."""

    def __init__(self, status, said):
        super().__init__(said)
        self.status = status


class Checker:
    def __init__(self, bin_dir, directory, coordinator, seed, clients=3, rows=20000, dim=64, tables="log,log-hashed",
                 flights=4, hosts=None, slow_ms=0):
        """`hosts`: one network.Host a client. `slow_ms`: calls that take longer are told of (stalls.py)."""
        self.program = os.path.join(bin_dir, "hotbed-kill-checker")
        self.directory = directory
        self.workload = [f"--coordinator={coordinator}", f"--clients={clients}", f"--rows={rows}", f"--dim={dim}",
                         f"--seed={seed}", f"--tables={tables}"]
        self.workers = [
            Process(f"client {c}",
                    [self.program, "worker", *self.workload, f"--journal-dir={directory}", f"--client={c}",
                     f"--flights={flights}", f"--slow-ms={int(slow_ms)}"],
                    f"{directory}/client-{c}.log", host=hosts[c] if hosts else None)
            for c in range(clients)
        ]

    def create(self):
        subprocess.run([self.program, "create", *self.workload], check=True, timeout=120)

    def start(self):
        for worker in self.workers:
            worker.start(wait_for_serving=False)

    def progress(self):
        """Sums over the clients, and the largest of what is a maximum."""
        total = dict.fromkeys(PROGRESS, 0)
        for c in range(len(self.workers)):
            for name, value in self.progress_of(c).items():
                larger = name.endswith(("_max_us", "_ns"))
                total[name] = max(total[name], value) if larger else total[name] + value
        return total

    def progress_of(self, client):
        try:
            with open(f"{self.directory}/client-{client}.counts", "rb") as counts:
                numbers = struct.unpack(f"<{len(PROGRESS)}Q", counts.read(8 * len(PROGRESS)))
        except (FileNotFoundError, struct.error):
            numbers = [0] * len(PROGRESS)
        return dict(zip(PROGRESS, numbers))

    def status(self):
        """A worker that ended by itself has found something, or could not continue: (status, its output)."""
        for worker in self.workers:
            if worker.child is not None and not worker.running():
                return worker.child.returncode or BROKEN, f"{worker.name} ended with {worker.child.returncode}:\n{worker.tail()}"
        return EXACT, ""

    def wait_for_steps(self, more, seconds):
        """Until each client has `more` steps acknowledged: seconds taken. Found: one ended; RuntimeError: not within `seconds`."""
        begin = time.monotonic()
        goals = [self.progress_of(c)["steps"] + more for c in range(len(self.workers))]
        while any(self.progress_of(c)["steps"] < goal for c, goal in enumerate(goals)):
            status, said = self.status()
            if status != EXACT:
                raise Found(status, said)
            if time.monotonic() > begin + seconds:
                done = [self.progress_of(c)["steps"] + more - goal for c, goal in enumerate(goals)]
                raise RuntimeError(f"not within {seconds} s: {more} more steps of each client (done: {done})")
            time.sleep(0.02)
        return time.monotonic() - begin

    def finish(self, seconds):
        """Ends the workers in good order, with everything applied."""
        for worker in self.workers:
            if worker.running():
                worker.child.terminate()
        for worker in self.workers:
            status = worker.stop(seconds)
            if status:
                return status, f"{worker.name} ended with {status}:\n{worker.tail()}"
        return EXACT, ""

    def kill(self):
        for worker in self.workers:
            worker.kill()

    def verify(self, mode="verify"):
        done = subprocess.run([self.program, mode, *self.workload, f"--journal-dir={self.directory}"],
                              stdout=subprocess.PIPE, text=True, timeout=VERIFY_SECONDS_MAX, check=False)
        return done.returncode, done.stdout.strip()
