#!/usr/bin/env python3
"""A table that no serving server has memory for is served in parts, by several servers, or partly from disk.

  serving_parts_test.py --bin-dir build/bin [--disk]

The table is cut by itself. Lookups by gRPC and HTTP, bags, and a top-k equal the rows that trainers have, to the bit. Then each part has two
servers, one of which is killed while a trainer pushes to a second table, which is cut into parts and joined meanwhile, and readers look it
up: no lookup fails, and none shows less than its age promises. A version becomes current when all parts have it.

--disk: one server with a data directory has the table alone, which outgrows memory while changes are noted and not on disk yet. Stopped
and started again, with a device, it goes on from its disk: it reads no rows again but those that have changed, and lookups find rows in
memory, on the device and on disk. When its files are damaged they are read again, and another table is answered meanwhile. Exit status:
0 all well; anything else a failure.
"""

import argparse
import glob
import json
import os
import re
import subprocess
import sys
import urllib.error
import urllib.request

from cluster import ClusterTest, run_test
from meter import Table

ROWS = 48_000
DIM = 256  # 47 MiB of rows in fp32; a server has 36 for them


class Parts(ClusterTest):
    def __init__(self, args, directory):
        super().__init__(args, directory, 2, ["--host-bytes=192MiB"])
        for name in ("r0", "r1", "r2", "r3"):
            self.cluster.add_serving(name, *([f"--data-dir={directory}/{name}"] if args.disk else []), http=True)
        self.serving = self.cluster.serving

    def wait_ready(self, table, parts):
        """`parts`: the part of each copy."""
        def ready():
            copies = next((t["copies"] for t in self.status()["tables"] if t["table"] == table), [])
            return sorted(c["part"] for c in copies if c["state"] == "ready") == parts
        self.wait_for(f"copies of parts {parts} of {table} are ready", ready)

    def check(self):
        found = self.end_checker(self.start_checker("t", "fp32", ROWS, self.settle_seconds, 1))
        if found["rows"] != ROWS or (found["disk_rows"] > 0) != self.args.disk:
            raise RuntimeError(f"other rows were compared: {found}")

    def metric(self, name):
        """Of r0, over all tables."""
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(f"http://{self.serving[0].admin}/metrics", timeout=60) as answer:
            return sum(float(line.split()[-1]) for line in answer.read().decode().splitlines() if re.match(name + r"[ {]", line))

    def http_post(self, server, path, body):
        address = next(one.http for one in self.serving if one.name == server)
        request = urllib.request.Request(f"http://{address}{path}", json.dumps(body).encode())
        try:
            with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=60) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            raise RuntimeError(f"POST {path} to {server}: {error.code}, {error.read().decode()}") from error

    def check_http(self):
        found = self.http_post("r1", "/v1/tables/t:lookup", {"ids": [0, 1, ROWS - 1], "timeout_ms": 20_000})
        if found["exists"] != [True] * 3 or found["server"] != "r0,r1":
            raise RuntimeError(f"by HTTP: {found['exists']} from {found['server']}")

    def check_top_k(self, *flags):
        """Many rows have equal scores, so that the order of the ids decides."""
        words = ("topk", "t", "--id", ROWS - 1, "--k", 50)
        served, trained = (self.json(*words, *more) for more in (("--served", *flags), ()))
        if served[0]["rows"] != trained[0]["rows"] or len(served[0]["rows"]) != 50:
            raise RuntimeError(f"the nearest rows differ: {served}, of trainers: {trained}")

    def publish(self, copies_in_all):
        place = os.path.join(self.directory, "versions")
        self.command("publish", "t", place, "--name=v1", "--no-wait")
        self.wait_for("v1 is current", lambda: self.status()["versions"][0]["current"])
        copies = self.status()["versions"][0]["copies"]
        if len(copies) != copies_in_all or not all(copy["held"] for copy in copies):
            raise RuntimeError(f"v1 is current, and not held: {copies}")
        self.check_top_k("--version=v1")

    def begin(self, servers, served_before=False):
        self.cluster.start()
        for server in self.serving[:servers]:
            server.start()
        self.wait_for(f"{servers} serving servers report", lambda: len(self.status()["servers"]) == servers)
        table = Table(self.args.bin_dir, self.cluster.address, "t", ROWS, DIM, shards=4)
        table.wait_for(replicas=1)
        if served_before:
            self.command("serve", "add", "t")
            self.wait_ready("t", [0])
        table.meter("fill").result()
        return table

    def check_lock(self):
        """A second process with the name and the directory of r0."""
        second = subprocess.run(self.serving[0].command, capture_output=True, text=True, timeout=60, check=False)
        if second.returncode == 0 or "another serving server has this --data-dir and --name=r0" not in second.stderr:
            raise RuntimeError(f"a second process ended with {second.returncode}: {second.stderr}")

    def damage_disk(self):
        """Zeros in the place of most rows of t. They are deleted and read again by themselves; those of u are answered throughout."""
        folders = [glob.glob(f"{folder}/rows/*.sst") for folder in glob.glob(f"{self.directory}/r0/serving-r0/t*-SERVED_FP32-0of1")]
        files = max(folders, key=lambda paths: sum(map(os.path.getsize, paths)))
        for path in files:
            size = os.path.getsize(path)
            with open(path, "r+b") as file:
                file.seek(size // 8)
                file.write(bytes(size // 2))
        before = self.metric("hotbed_serving_rows_written_total")

        def comes_again():
            body = {"tables": [{"table": "t", "ids": list(range(0, ROWS, 400))}, {"table": "u", "ids": [0, 1]}], "partial": True, "timeout_ms": 500}
            t, u = self.http_post("r0", "/v1/lookup", body)["tables"]
            if u.get("exists") != [True, True] or ("error" not in t and not all(t["exists"])):
                raise RuntimeError(f"beside a damaged disk: {u}, {t.get('error') or t['exists'].count(False)}")
            return self.metric("hotbed_serving_rows_written_total") >= before + ROWS
        self.wait_for(f"the rows of {len(files)} damaged files come again", comes_again)
        self.wait_ready("t", [0])
        self.check()

    def cut(self, table, parts):
        """The parts that it has answer until the others are loaded; both are in the way of no lookup."""
        def cut_of(wanted):
            return next((t["parts"], t.get("beside")) for t in self.status()["tables"] if t["table"] == wanted)
        self.wait_for(f"no former parts of {table} are left", lambda: cut_of(table)[1] is None)
        self.command("serve", "add", table, "--replicas=2", f"--parts={parts}")
        if cut_of(table)[0] == parts and cut_of(table)[1] is None:
            raise RuntimeError(f"{table} is in {parts} parts at once: {self.status()}")
        self.wait_for(f"{table} is in {parts} parts", lambda: cut_of(table)[0] == parts)

    def run_disk(self):
        # It outgrows memory while changes are noted and not on disk yet.
        table = self.begin(1, served_before=True)
        self.check_lock()
        self.check()
        self.check_top_k()
        self.publish(copies_in_all=1)
        self.serving[0].stop()
        table.meter("load", "--seconds=1", "--rate=20", "--ids=64", "--push-flights=1").result()
        self.serving[0].command += ["--device=emulated", "--device-bytes=12MiB"]
        self.serving[0].start()
        self.wait_ready("t", [0])

        def device_has_rows():
            self.check()
            copy = self.status()["tables"][0]["copies"][0]
            return copy["device_rows"] > 0 and self.metric("hotbed_serving_device_hits_total") > 0
        self.wait_for("lookups find rows on the device", device_has_rows)
        self.check_top_k()
        written = self.metric("hotbed_serving_rows_written_total")
        if not 0 < written <= 64 * 20 * 2:
            raise RuntimeError(f"{written} rows were taken after the restart, of {64 * 20} that have changed")
        if not 0 < self.metric("hotbed_serving_memory_rows") < ROWS or self.metric("hotbed_serving_disk_rows_read_total") == 0:
            raise RuntimeError("memory has all rows, or none were read from disk")
        self.wait_for("the version is held again", lambda: self.status()["versions"][0]["copies"][0]["held"])
        small = Table(self.args.bin_dir, self.cluster.address, "u", 100, 8, shards=1)
        small.wait_for(replicas=1)
        small.meter("fill").result()
        self.command("serve", "add", "u")
        self.wait_ready("u", [0])
        self.damage_disk()

    def run(self):
        (self.run_disk if self.args.disk else self.run_parts)()

    def run_parts(self):
        self.begin(2)
        self.command("serve", "add", "t")
        self.wait_ready("t", [0, 1])
        self.check()
        self.check_http()
        self.check_top_k()
        for server in self.serving[2:]:
            server.start()
        self.command("serve", "add", "t", "--replicas=2")
        Table(self.args.bin_dir, self.cluster.address, "w", 1000, 8, shards=2).wait_for(replicas=1)
        self.command("serve", "add", "w", "--replicas=2")
        self.wait_ready("t", [0, 0, 1, 1])
        self.wait_ready("w", [0, 0])
        self.publish(copies_in_all=4)
        watch = self.start_checker("w", "watch", 1000, stdin=subprocess.PIPE)
        self.cut("w", 2)
        self.serving[0].kill()
        self.check()
        self.serving[0].start()
        self.wait_ready("t", [0, 0, 1, 1])
        self.cut("w", 1)
        found = self.end_checker(watch)
        if found["pushes"] < 10 or found["lookups"] < 10:
            raise RuntimeError(f"too little was watched: {found}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--bin-dir", required=True)
    parser.add_argument("--disk", action="store_true", help="one server that has a disk")
    args = parser.parse_args()
    return run_test(Parts, args, "parts")


if __name__ == "__main__":
    sys.exit(main())
