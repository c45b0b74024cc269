"""Shared by the scripts that measure: how they begin and end, a table, hotbed-load-meter, numbers against their bars."""

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
import urllib.request

from cluster import Cluster, Process, json_of_command, run_command

NS = 1e9
ACTIVE_SECONDS_MAX = 60


def arguments_of(documentation):
    """The parser of a script that measures the programs of --bin-dir."""
    parser = argparse.ArgumentParser(description=documentation, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--bin-dir", required=True, type=os.path.abspath)
    return parser


def run(measure, args, name):
    """The exit status: that of measure(args, directory), 3 when it could not measure. The directory is deleted at the end."""
    directory = tempfile.mkdtemp(prefix=f"hotbed_{name}_")
    try:
        return measure(args, directory)
    except (RuntimeError, OSError, ValueError, subprocess.SubprocessError) as error:
        print(error)
        return 3
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def run_on_cluster(measure, args, name, servers, *flags, new_cluster=Cluster):
    """The same of measure(args, cluster). The cluster is not started yet; the ends of its logs are printed after an error."""
    def on_cluster(args, directory):
        cluster = new_cluster(args.bin_dir, directory, servers, server_flags=flags)
        try:
            return measure(args, cluster)
        except Exception:
            for process in cluster.processes():
                print(f"--- {process.name}\n{process.tail(12)}")
            raise
        finally:
            cluster.stop()
    return run(on_cluster, args, name)


def now_ns():
    """The clock of the meter's numbers."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def quantile(values, q):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(q * len(ordered)))] if ordered else 0.0


class Bars:
    """Measured values against what they have to be; prints each, and remembers what was missed."""

    def __init__(self):
        self.missed = 0
        self.values = {}

    def at_most(self, name, value, bar, unit=""):
        self._told(name, value, bar, unit, "at most", value <= bar)

    def at_least(self, name, value, bar, unit=""):
        self._told(name, value, bar, unit, "at least", value >= bar)

    def _told(self, name, value, bar, unit, word, met):
        self.missed += not met
        self.values[name] = value
        print(f"{name}: {value:.4g}{unit}, bar {word} {bar:g}{unit}: {'met' if met else 'MISSED'} "
              f"(ratio {value / bar if bar else value:.3g})", flush=True)

    def status(self):
        return 1 if self.missed else 0


class Table:
    """A table of zeros, bounded or hashed (sgd, learning rate 1) on a cluster, as hotbed-load-meter wants it."""

    def __init__(self, bin_dir, coordinator, name, rows, dim, durability="log", shards=0, more=(), hashed=False):
        self.bin_dir = bin_dir
        self.coordinator = coordinator
        self.name = name
        flags = [*(["--hashed"] if hashed else ["--rows", rows]), "--dim", dim, "--optimizer", "sgd", "--learning-rate", 1, "--init", "zero",
                 "--durability", durability]
        flags += more
        if shards:
            flags += ["--shards", shards]
        status, _, err = run_command(bin_dir, coordinator, "table", "create", name, *flags, "--timeout=60s", seconds=120)
        if status != 0:
            raise RuntimeError(f"table create {name}: {err}")

    def shards(self):
        return json_of_command(self.bin_dir, self.coordinator, "shard", "list", "--table", self.name, "--timeout=30s")

    def wait_for(self, replicas, seconds=ACTIVE_SECONDS_MAX):
        """Until all shards are active with so many members: seconds taken."""
        begin = time.monotonic()
        while True:
            missing = [s["shard"] for s in self.shards() if not s["active"] or len(s.get("members", [0])) < replicas]
            if not missing:
                return time.monotonic() - begin
            if time.monotonic() > begin + seconds:
                raise RuntimeError(f"{len(missing)} shards are not active with {replicas} replicas after {seconds} s: {missing[:5]}")
            time.sleep(0.1)

    def meter(self, mode, *flags, seed=1, host=None):
        return Meter(self, mode, flags, seed, host)

    def sum(self):
        return self.meter("sum").result()["sum"]


class Meter:
    """A running hotbed-load-meter."""

    def __init__(self, table, mode, flags, seed, host):
        # Without a name: processes in namespaces of their own have equal process ids.
        self.log = tempfile.TemporaryFile()
        command = [os.path.join(table.bin_dir, "hotbed-load-meter"), mode, f"--coordinator={table.coordinator}",
                   f"--table={table.name}", f"--seed={seed}", *map(str, flags)]
        self.child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=self.log, text=True,
                                      preexec_fn=host.enter if host else None)

    def push_now(self):
        """Mode shards: the next push to each shard is due."""
        self.child.send_signal(signal.SIGUSR1)

    def stop(self):
        """Ends it now; its result."""
        self.child.terminate()
        return self.result()

    def result(self):
        out, _ = self.child.communicate()
        self.log.seek(0)
        said = self.log.read().decode(errors="replace")
        self.log.close()
        if self.child.returncode != 0:
            raise RuntimeError(f"hotbed-load-meter ended with {self.child.returncode}: {said}")
        return json.loads(out)


def rate(result, which, begin_ns, end_ns):
    """Calls a second of `pushes` or `pulls` in that time, by whole buckets."""
    bucket_ns = result["bucket_ms"] * 1e6
    first = int((begin_ns - result["begin_ns"]) / bucket_ns) + 1
    last = int((end_ns - result["begin_ns"]) / bucket_ns)
    counts = result[f"{which}_over_time"][first:last]
    return sum(counts) / ((last - first) * bucket_ns / NS) if last > first else 0.0


def resident_bytes(process: Process):
    with open(f"/proc/{process.child.pid}/status", encoding="ascii") as status:
        return next(int(line.split()[1]) << 10 for line in status if line.startswith("VmRSS:"))


def processor_seconds(process: Process):
    """The processor time of all its threads, user and system, since it started."""
    with open(f"/proc/{process.child.pid}/stat", encoding="ascii") as stat:
        fields = stat.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def written_bytes(process: Process):
    """The bytes that it had written to disk since it started, pages that the system still keeps included."""
    with open(f"/proc/{process.child.pid}/io", encoding="ascii") as io:
        return next(int(line.split()[1]) for line in io if line.startswith("write_bytes:"))


def metric(admin, name):
    """The sum of a metric's samples at an admin address."""
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(f"http://{admin}/metrics", timeout=10) as reply:
        text = reply.read().decode()
    return sum(float(value) for value in re.findall(rf"^{name}(?:{{[^}}]*}})? (\S+)$", text, re.MULTILINE))
