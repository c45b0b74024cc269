#!/usr/bin/env python3
"""The primaries send each row and each change to one copy of a served table, which feeds the others.

  serving_feed_test.py --bin-dir build/bin

With one, two and three copies the bytes that the primaries send for all rows, and for changes, are those of one copy; in parts, each row
goes to its own part alone. When the copy that feeds the others is killed, another one takes its place. In the end all copies have the
rows of the trainers, to the bit. Exit status: 0 all well; anything else a failure.
"""

import argparse
import re
import sys
import urllib.request

from cluster import ClusterTest, run_test
from meter import Table

ROWS = 20_000
DIM = 32
SHARDS = 3  # so that one lies in two parts
ALL_BYTES = ROWS * (8 + 4 * DIM)


class Feed(ClusterTest):
    settle_seconds = 90

    def __init__(self, args, directory):
        super().__init__(args, directory, 2, ["--host-bytes=128MiB"])
        self.serving = [self.cluster.add_serving(f"r{i}") for i in range(3)]

    def copies(self):
        return [copy for table in self.status()["tables"] for copy in table["copies"]]

    def wait_ready(self, count):
        """As the servers say; the coordinator may tell of copies that were there before."""
        self.wait_for(f"{count} copies are ready", lambda: count == sum(
            self.metric(server.admin, "hotbed_serving_ready") for server in self.serving))
        self.wait_for(f"the coordinator knows {count} copies", lambda: [
            copy["state"] for copy in self.copies()] == ["ready"] * count)

    def metric(self, admin, name, labels=""):
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(f"http://{admin}/metrics", timeout=60) as answer:
            lines = answer.read().decode().splitlines()
        return sum(float(line.split()[-1]) for line in lines if re.match(name + "[ {]", line) and labels in line)

    def sent(self, call):
        return sum(self.metric(admin, "hotbed_server_followed_bytes_total", f'call="{call}"') for admin in self.cluster.admin)

    def written(self, servers):
        return [self.metric(server.admin, "hotbed_serving_rows_written_total") for server in servers]

    def push_all(self, servers):
        """Each row once. Bytes of changes that the primaries have sent for it, when all copies have them."""
        sent, before = self.sent("changes"), self.written(servers)
        self.table.meter("fill").result()
        self.wait_for("copies have the changes", lambda: all(
            now - old >= ROWS for now, old in zip(self.written(servers), before)))
        return (self.sent("changes") - sent) / ALL_BYTES

    def wait_for_few(self, what, ratio, least=0.9, most=1.3):
        """A copy that is late once reads from the primaries for a while: a later round must do."""
        rounds = []

        def few():
            rounds.append(round(ratio(), 2))
            print(f"{what}: primaries sent {rounds[-1]} of the bytes of all rows", flush=True)
            return rounds[-1] < most
        self.wait_for(f"{what}: primaries send less than {most} of the bytes of all rows", few)
        if rounds[-1] < least:
            raise RuntimeError(f"{what}: fewer bytes than the rows have: {rounds}")

    def list_all(self, copies, *flags):
        sent = self.sent("list")
        self.command("serve", "add", "t", f"--replicas={copies}", *flags)
        self.wait_ready(copies * (2 if flags else 1))
        return (self.sent("list") - sent) / ALL_BYTES

    def remove(self):
        self.command("serve", "remove", "t")
        self.wait_for("it is not served", lambda: not self.copies())
        for server in self.serving:
            self.wait_for(f"{server.name} has given its rows back",
                          lambda server=server: self.metric(server.admin, "hotbed_serving_memory_bytes") == 0)

    def check(self, copies):
        self.end_checker(self.start_checker("t", "fp32", ROWS, self.settle_seconds, copies))

    def run(self):
        self.cluster.start()
        for server in self.serving:
            server.start()
        self.table = Table(self.args.bin_dir, self.cluster.address, "t", ROWS, DIM, shards=SHARDS)
        self.table.wait_for(replicas=1)
        self.table.meter("fill").result()
        self.wait_for_few("one copy, all rows", lambda: self.list_all(1))
        first = next(copy["server"] for copy in self.copies())
        one = [server for server in self.serving if server.name == first]
        self.wait_for_few("one copy, changes", lambda: self.push_all(one))

        def two_later():
            if len(self.copies()) > 1:
                self.list_all(1)
            return self.list_all(3)
        self.wait_for_few("two copies that come later, all rows", two_later, least=0, most=0.3)
        self.wait_for_few("three copies, changes", lambda: self.push_all(self.serving))
        self.check(copies=3)
        # Another copy feeds the third one, and the killed one reads all rows from it.
        one[0].kill()
        self.wait_for_few("the feeder was killed, changes",
                          lambda: self.push_all([server for server in self.serving if server is not one[0]]))

        def comes_back():
            one[0].kill()
            sent = self.sent("list")
            one[0].start()
            self.wait_ready(3)
            return (self.sent("list") - sent) / ALL_BYTES
        self.wait_for_few("the killed copy comes back, all rows", comes_back, least=0, most=0.3)
        self.check(copies=3)

        def two_at_once():
            self.remove()
            return self.list_all(2)
        self.wait_for_few("two copies at the same time, all rows", two_at_once)

        def in_parts():
            self.remove()
            return self.list_all(1, "--parts=2")
        self.wait_for_few("two parts, all rows", in_parts)
        parts = {copy["server"] for copy in self.copies()}

        def changes_in_parts():
            sent, before = self.sent("changes"), sum(self.written(self.serving))
            self.table.meter("fill").result()
            self.wait_for("the parts have the changes", lambda: sum(self.written(self.serving)) - before >= ROWS)
            return (self.sent("changes") - sent) / ALL_BYTES
        self.wait_for_few(f"two parts on {len(parts)} servers, changes", changes_in_parts)
        self.check(copies=1)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--bin-dir", required=True)
    args = parser.parse_args()
    return run_test(Feed, args, "feed")


if __name__ == "__main__":
    sys.exit(main())
