#!/usr/bin/env python3
"""Versions of two tables flip, roll back and are pinned on two serving servers, while a trainer pushes and readers look up and search.

  version_test.py --bin-dir build/bin [--seed N] [--storms N]

One of the tables has column slices. A serving server is killed, paused and cut off from readers and from the coordinator, the
coordinator and the primary are killed, paused or cut off, while versions are taken up and rows are deleted. hotbed-version-checker
trains and reads, and this program reads by HTTP: no answer of a version may have a row of another one or one that was deleted, no call
of the current version by gRPC may fail, and the newest rows come to those of the trainer.
Exit status: 0 all well; anything else a failure.
"""

import argparse
import http.client
import json
import os
import random
import shutil
import subprocess
import sys
import threading
import time

from cluster import ClusterTest, free_ports, run_test
from meter import Table
from net_cluster import Proxy

ROWS = 5000
DIM = 8


def exists(table, number, row):
    """In round `number`; as hotbed-version-checker trains them, like `value`."""
    deleted = table == "a" and number > 1 and row % 8 == number % 8 and row < 1900 + 100 * number
    return row < 2000 + 100 * number and not deleted


def value(number, row, column):
    return number + (row * 31 + column * 17) % 64 / 64


class HttpReader(threading.Thread):
    """Asks one server for rows of both tables, of version `current` and of names. What one answer has is of the round it names.

    The newest rows are looked at in the same way, and must be a mix at times: else no mix could have been found.
    """

    def __init__(self, port, seed):
        super().__init__(daemon=True)
        self.port, self.random = port, random.Random(seed)
        self.names = ["v1"]
        self.ends = threading.Event()
        self.right, self.refused, self.broken, self.error = {"current": 0, "named": 0, "mixed newest": 0}, 0, 0, ""

    def run(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        while not self.error and not self.ends.wait(0.02):
            name = self.random.choice(["latest", "current", *self.names])
            rows = [self.random.randrange(3200) for _ in range(64)]
            asked = {"tables": [{"table": table, "ids": rows} for table in "ab"], "version": name, "timeout_ms": 10_000}
            try:
                connection.request("POST", "/v1/lookup", json.dumps(asked))
                answer = connection.getresponse()
                found = json.loads(answer.read())
            except (OSError, http.client.HTTPException):  # the server was killed or stands still
                connection.close()
                self.broken += 1
                continue
            if answer.status != 200:  # it does not hold the version, nor does it reach a server that does
                self.refused += 1
                continue
            wrong = self.wrong(name, rows, found["tables"])
            if name == "latest":
                self.right["mixed newest"] += bool(wrong)
                continue
            self.error = wrong
            self.right["current" if name == "current" else "named"] += 1
        connection.close()

    def wrong(self, name, rows, tables):
        """Empty, or what is wrong."""
        version = tables[0]["version"]
        if [table["version"] for table in tables] != [version] * 2 or name not in ("current", version):
            return f"{name} was asked for, the answer has {[table['version'] for table in tables]}"
        number = int(tables[1]["values"][0][0]) if name == "latest" else int(version[1:])
        for table, step in (("a", 0.1), ("b", 0)):  # a is in int8; rows of two rounds differ by more than this
            found = tables[0 if table == "a" else 1]
            for row, there, values in zip(rows, found["exists"], found["values"]):
                should = exists(table, number, row)
                expected = [value(number, row, column) if should else 0 for column in range(DIM)]
                if there != should or any(abs(one - other) > step for one, other in zip(values, expected)):
                    return f"row {row} of {table} in {version} by {found['server']} is {values} (exists: {there}), not {expected}"
        return ""


class Versions(ClusterTest):
    def __init__(self, args, directory):
        super().__init__(args, directory, 1, ["--host-bytes=128MiB"])
        self.random = random.Random(args.seed)
        self.place = os.path.join(directory, "versions")
        # Everybody calls the primary by a proxy, and r0 and readers the coordinator by another one.
        primary, to_coordinator = free_ports(2)
        flags = self.cluster.servers[0].command
        listen = next(flag for flag in flags if flag.startswith("--listen=")).rsplit(":", 1)[1]
        flags.append(f"--advertise=127.0.0.1:{primary}")
        self.to_primary = self.proxy("s0", primary, listen)
        self.to_coordinator = self.proxy("coordinator", to_coordinator, self.cluster.address.rsplit(":", 1)[1])
        self.by_proxy = f"127.0.0.1:{to_coordinator}"
        self.proxies, self.readers = [], []
        self.serving = [self.serving_server("r0"), self.serving_server("r1", proxied=True)]
        self.checker = None

    def proxy(self, name, port, to):
        return Proxy(self.args.bin_dir, name, None, "127.0.0.1", port, "127.0.0.1", to, self.args.seed)

    def serving_server(self, name, proxied=False):
        """A proxied one is called, and calls the coordinator, through proxies of its own."""
        if proxied:
            listen, data, coordinator = free_ports(3)
            to = self.cluster.address.rsplit(":", 1)[1]
            self.proxies = [self.proxy(name, at, of) for at, of in ((data, listen), (coordinator, to))]
            server = self.cluster.add_serving(name, f"--advertise=127.0.0.1:{data}", http=True, coordinator=f"127.0.0.1:{coordinator}",
                                              listen=f"127.0.0.1:{listen}")
        else:
            server = self.cluster.add_serving(name, f"--data-dir={self.directory}/{name}", http=True, coordinator=self.by_proxy)
        self.readers.append(HttpReader(int(server.http.rsplit(":", 1)[1]), self.args.seed + len(self.readers)))
        return server

    def refused(self, text, *words):
        status, out, err = self.cluster.run(*words, "--timeout=30s")
        if status == 0 or text not in err:
            raise RuntimeError(f"hotbed {' '.join(words)} ended with {status}, not with \"{text}\": {err or out}")

    def version(self, name):
        return next(v for v in self.status()["versions"] if v["name"] == name)

    def tell(self, line):
        """A command of hotbed-version-checker."""
        self.checker.stdin.write(line + "\n")
        self.checker.stdin.flush()
        answer = self.checker.stdout.readline().strip()
        if not answer:
            raise RuntimeError(f"the checker ended: {self.checker.communicate()[1]}")
        return answer

    def expect(self, line, text):
        answer = self.tell(line)
        if text not in answer:
            raise RuntimeError(f"{line}: {answer}, not {text}")

    def settle(self, number):
        self.expect("settle", f"settled {number}")

    def publish(self, number):
        """Rows of the next round are pushed from the end of the save on."""
        self.settle(number)
        self.command("publish", "a", "b", self.place, f"--name=v{number}", "--no-wait")
        self.tell("go")
        self.name(number)

    def name(self, number):
        self.tell(f"name v{number}")
        for reader in self.readers:
            reader.names.append(f"v{number}")

    def publish_saved(self, number):
        """A checkpoint that has only the rows that have changed; it is published while later rows are pushed."""
        self.settle(number)
        saved = self.json("checkpoint", "save", self.place, f"--name=v{number}", "--incremental")
        self.tell("go")
        said = self.json("publish", "a", "b", self.place, f"--from-checkpoint=v{number}", "--no-wait")
        if not saved["parent"] or said["checkpoint"] != os.path.join(self.place, f"v{number}-folded"):
            raise RuntimeError(f"saved {saved}, published {said}")
        self.name(number)

    def wait_current(self, name):
        self.wait_for(f"{name} is current", lambda: self.version(name)["current"])

    def wait_held(self, name, copies=4):
        self.wait_for(f"{copies} copies of {name}", lambda: sum(c["held"] for c in self.version(name)["copies"]) == copies)

    def begin(self):
        self.cluster.start()
        for server in self.serving:
            server.start()
        for name, shards, slices in (("a", 4, 2), ("b", 1, 1)):
            Table(self.args.bin_dir, self.cluster.address, name, ROWS, DIM, "log", shards=shards, hashed=name == "a",
                  more=("--column-slices", slices)).wait_for(replicas=1)
        self.refused("table a is not served", "publish", "a", self.place, "--name=v0")
        if os.path.exists(self.place):
            raise RuntimeError("something was saved of a table that is not served")
        self.command("serve", "add", "a", "--format=int8", "--replicas=2")
        self.command("serve", "add", "b", "--format=fp32", "--replicas=2")
        self.checker = subprocess.Popen([os.path.join(self.args.bin_dir, "hotbed-version-checker"), self.by_proxy, "a=int8", "b=fp32"],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def run(self):
        self.begin()
        self.tell("go")
        self.settle(1)
        self.expect("ask current", "FAILED_PRECONDITION: no version is current; none is published")
        said = self.json("publish", "a", "b", self.place, "--name=v1")
        if not said["current"]:
            raise RuntimeError(f"publish did not wait: {said}")
        self.expect("ask current", "OK: v1")
        self.expect("ask latest", "OK:")
        self.expect("ask v2", "NOT_FOUND: there is no version \"v2\"; there are: v1")
        self.refused("there is none before it", "serve", "rollback")
        self.tell("go")
        self.tell("read")
        for reader in self.readers:
            reader.start()
        self.publish(2)
        self.wait_current("v2")
        # A version that one server misses is current without it; the server takes it up when it is back.
        self.serving[0].kill()
        self.publish(3)
        self.wait_current("v3")
        self.serving[0].start()
        self.wait_held("v3")
        self.command("serve", "rollback")
        self.wait_current("v2")
        self.refused("v9", "publish", "a", "b", self.place, "--from-checkpoint=v9")
        self.refused("--from-checkpoint publishes one that is there", "publish", "a", self.place, "--from-checkpoint=v2", "--at-step=1")
        self.publish_saved(4)
        self.wait_current("v4")
        self.refused("v4 is current", "serve", "unpublish", "v4")
        # v1 was dropped, and is taken up again from its files; later versions do not take its place.
        if self.version("v1")["kept"]:
            raise RuntimeError(f"v1 is kept: {self.status()}")
        self.expect("ask v1", "version \"v1\" is not held by servers any more; there are: v2, v4")
        self.command("serve", "pin", "v1")
        self.wait_current("v1")
        self.publish(5)
        self.wait_held("v5")
        if not self.version("v1")["current"]:
            raise RuntimeError(f"v1 was pinned: {self.status()}")
        self.cluster.coordinator.kill()
        self.cluster.coordinator.start()
        self.command("serve", "pin", "--off")
        self.wait_current("v5")
        # A version whose files are gone does not become current, and what is served stays.
        shutil.rmtree(os.path.join(self.place, "v2"))
        self.command("serve", "pin", "v2", "--no-wait")
        self.wait_for("trouble is told", lambda: all("v2" in c["trouble"] for c in self.version("v2")["copies"]))
        self.expect("ask current", "OK: v5")
        self.command("serve", "pin", "--off")
        self.command("serve", "unpublish", "v4")
        self.refused("there is no version \"v4\"", "serve", "pin", "v4")
        self.settle(6)
        for storm in range(self.args.storms):
            self.storm(6 + storm * len(self.faults()))
        self.expect("newest", "newest")
        self.end()

    def faults(self):
        """Every one that replicas can have, and one each of the coordinator and the primary."""
        return [self.kill_replica, self.pause_replica, self.cut_replica, self.cut_reports,
                self.random.choice([self.kill_coordinator, self.pause_coordinator, self.cut_coordinator]),
                self.random.choice([self.kill_primary, self.pause_primary, self.cut_primary])]

    def storm(self, first):
        """Each version is taken up, and rows change, while something ends or stands still."""
        faults = self.faults()
        self.random.shuffle(faults)
        for number, fault in enumerate(faults, first):
            print(f"v{number}: {fault.__name__}", flush=True)
            self.publish(number)
            fault()
            self.wait_held(f"v{number}")
            self.wait_current(f"v{number}")
        self.settle(first + len(faults))

    def kill_replica(self):
        server = self.random.choice(self.serving)
        server.kill()
        server.start()

    def pause_replica(self):
        """Readers go to the other one, or wait for it."""
        self.pause(self.random.choice(self.serving))

    def pause(self, process):
        process.pause()
        time.sleep(2)
        process.resume()

    def cut(self, proxy, *commands):
        """Its connections stand still, and then break; new ones are refused for a while."""
        for command in commands:
            proxy.tell(command)
            time.sleep(0.5)
        proxy.tell("clear")

    def cut_replica(self):
        self.cut(self.proxies[0], "stall both", "refuse on", "reset")

    def cut_reports(self):
        """For longer than a server without reports counts as alive: the version may become current without it."""
        self.cut(self.proxies[1], "refuse on", "reset", "stall both", "stall both")

    def kill_coordinator(self):
        self.cluster.coordinator.kill()
        self.cluster.coordinator.start()

    def pause_coordinator(self):
        self.pause(self.cluster.coordinator)

    def cut_coordinator(self):
        """Off from r0, from readers and from the trainer."""
        self.cut(self.to_coordinator, "stall both", "refuse on", "reset")

    def kill_primary(self):
        self.cluster.servers[0].kill()
        self.cluster.servers[0].start()

    def pause_primary(self):
        self.pause(self.cluster.servers[0])

    def cut_primary(self):
        """Off from copies and from the trainer."""
        self.cut(self.to_primary, "stall both", "refuse on", "reset")

    def again(self):
        return f"{super().again()} --seed {self.args.seed}"

    def close(self):
        if self.checker is not None:
            self.checker.kill()
        for proxy in [*self.proxies, self.to_primary, self.to_coordinator]:
            proxy.stop()
        super().close()

    def end_http(self):
        for reader in self.readers:
            reader.ends.set()
            reader.join()
            print(f"by HTTP: right {reader.right}, refused {reader.refused}, broken {reader.broken}", flush=True)
            if reader.error or min(reader.right.values()) < 20:
                raise RuntimeError(f"a reader by HTTP: {reader.error or f'right {reader.right}, too few'}")

    def end(self):
        self.end_http()
        self.checker.stdin.write("end\n")
        out, err = self.checker.communicate(timeout=60)
        if self.checker.returncode != 0:
            raise RuntimeError(f"readers: {err}{out}")
        found = json.loads(out)
        print(found, flush=True)
        if min(found["current"], found["named"]) < 100 or min(found["mixed_newest"], found["searches"], found["deleted"],
                                                                  found["mixed_deleted"]) == 0:
            raise RuntimeError(f"too little was read, or no mix could have been seen: {found}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--bin-dir", required=True)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    parser.add_argument("--storms", type=int, default=1, help="each has every fault once, some 20 s")
    args = parser.parse_args()
    return run_test(Versions, args, "version")


if __name__ == "__main__":
    sys.exit(main())
