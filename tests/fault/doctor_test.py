#!/usr/bin/env python3
"""Faults of a cluster and attacks on it, one after the other: `hotbed doctor` and /readyz show each while it lasts.

  doctor_test.py --bin-dir build/bin [--only NAME]

Lost members and copied directories have tests of their own, which ask doctor as well. Exit status: 0 all well; anything else a failure.

  numbers      requests with sessions, steps and servers that nobody has given out
  messages     a message of 4 GiB is begun, at the server and at the coordinator
  unread       answers that fill the budget of lookups, and nobody reads them
  connections  more than the server takes
  port         the server's data port accepts nobody any more (needs CAP_NET_ADMIN, and a kernel that ends sockets)
  lease        the coordinator is silent for longer than a lease
  segment      the newest segment of the log is gone: every shard is refused
  catalog      CATALOG is gone: the server does not start
"""

import argparse
import glob
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

import hostile
from cluster import Cluster, json_of_command, run_command, server_of
from meter import Table

SECONDS = 60
ROWS, DIM = 30_000, 512
UNREAD_ROWS = 3 * 1024  # 6 MiB
CONNECTIONS_MAX = 100


class Patient:
    def __init__(self, args, directory):
        self.bin_dir, self.directory = args.bin_dir, directory
        self.cluster = Cluster(args.bin_dir, directory, 1, server_flags=("--host-bytes=128MiB", f"--connections-max={CONNECTIONS_MAX}"))
        self.server = self.cluster.servers[0]
        self.address = next(f for f in self.server.command if f.startswith("--listen=")).split("=", 1)[1]

    def begin(self):
        self.cluster.start()
        table = Table(self.bin_dir, self.cluster.address, "patient", ROWS, DIM, shards=4)
        table.wait_for(1)
        table.meter("fill", "--ids=1024").result()
        shard = min(table.shards(), key=lambda s: s["shard"])
        self.shard = json_of_command(self.bin_dir, self.cluster.address, "table", "describe", "patient")["id"], \
            int(shard["shard"].rsplit("/", 1)[1]), shard["epoch"], shard["range"][0]

    def doctor(self, check):
        """(verdict, what was found) of one check."""
        _, out, err = run_command(self.bin_dir, self.cluster.address, "doctor", f"--data-dir={self.directory}", "-o", "json",
                                  "--timeout=3s")
        checks = {c["check"]: (c["verdict"], c["found"]) for c in json.loads(out)}
        if check not in checks:
            raise RuntimeError(f"doctor has no check '{check}': {out}{err}")
        return checks[check]

    def ready(self):
        """Status and text of /readyz; (0, reason) if nobody answers."""
        try:
            with urllib.request.urlopen(f"http://{self.cluster.admin[0]}/readyz", timeout=5) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError as error:
            return 0, str(error)

    def await_(self, what, asks):
        """Until asks() is true of what it returns; the last of it is told otherwise."""
        until = time.monotonic() + SECONDS
        while True:
            holds, last = asks()
            if holds:
                return
            if time.monotonic() > until:
                raise RuntimeError(f"not within {SECONDS} s: {what}; the last was {last}")
            time.sleep(0.1)

    def await_doctor(self, check, verdict, *words):
        def asks():
            found = self.doctor(check)
            return found[0] == verdict and all(word in found[1] for word in words), found
        self.await_(f"doctor's {check} is {verdict} and says {words}", asks)

    def await_ready(self, status, *words):
        def asks():
            found = self.ready()
            return found[0] == status and all(word in found[1] for word in words), found
        self.await_(f"/readyz answers {status} and {words}", asks)

    def well(self):
        self.await_ready(200)
        self.await_doctor("kernels", "ok", ", rows are fetched ")
        for check in ("servers", "ready", "data ports", "damage", "memory", "in flight", "open files", "clocks"):
            self.await_doctor(check, "ok")

    # The faults. Each mends what it has broken.

    def numbers(self):
        table, index, epoch, first = self.shard
        status = json_of_command(self.bin_dir, self.cluster.address, "status")
        peer = hostile.Peer(self.address)
        server, incarnation = server_of(self.cluster.admin[0])
        for path, body in hostile.forgeries_of_shard(table, index, epoch, first, DIM) + \
                hostile.forgeries_of_peer(status["cluster_id"], table, index, hostile.FORGED, (server, incarnation)):
            if peer.await_answer(peer.call(path, body), 10) is None:
                raise RuntimeError(f"{path}: no answer to a forged message")
        self.await_doctor("peers", "warning", "nobody has given out: session", "nobody has given out: server")

    def messages(self):
        for address, path in ((self.address, hostile.PUSH), (self.cluster.address, hostile.GET_MAP)):
            try:
                hostile.Peer(address).half_message(path, 0xFFFFFFFF, 1 << 20, 5)
            except OSError:
                pass  # ended, as it must be
        self.await_doctor("peers", "warning", "s0: connections ended or refused for message_bytes",
                          "coordinator: connections ended or refused for message_bytes")

    def unread(self):
        request = hostile.lookup(*self.shard, UNREAD_ROWS)
        peers = []
        for i in range(30):
            if i % 3 == 0:
                peers.append(hostile.Peer(self.address))
            peers[-1].ask(request)
        self.await_doctor("in flight", "warning", "s0: lookup")
        for peer in peers:
            peer.close()

    def connections(self):
        peers = []
        for _ in range(2 * CONNECTIONS_MAX):
            try:
                peers.append(hostile.Peer(self.address))
            except OSError:
                pass  # refused, as most must be
        self.await_doctor("peers", "warning", "s0: connections ended or refused for peer_limit")
        for peer in peers:
            peer.close()

    def port(self):
        host, number = self.address.rsplit(":", 1)
        ended = subprocess.run(["ss", "--kill", "--listening", "--tcp", "--numeric", f"sport = :{number}"], capture_output=True, text=True)
        with socket.socket() as peer:
            if peer.connect_ex((host, int(number))) == 0:
                print(f"port: skipped, this machine does not end listening sockets: {ended.stderr.strip()}")
                return
        self.await_ready(503, "data port: ")
        self.await_doctor("data ports", "FAILED", "s0")
        self.server.kill()
        self.server.start()

    def lease(self):
        self.cluster.coordinator.pause()
        self.await_ready(503, "lease: ran out")
        self.await_doctor("coordinator", "FAILED")
        self.cluster.coordinator.resume()

    def segment(self):
        self.server.kill()
        newest = max(glob.glob(os.path.join(self.directory, "s0", "log", "*.log")))
        os.rename(newest, newest + ".away")
        self.server.start()
        self.await_ready(503, "refused", os.path.basename(newest))
        self.await_doctor("ready", "FAILED", "refused", os.path.basename(newest))
        self.await_doctor("damage", "FAILED", "s0: ")
        self.server.kill()
        os.rename(newest + ".away", newest)
        self.server.start()

    def catalog(self):
        self.server.kill()
        path = os.path.join(self.directory, "s0", "CATALOG")
        os.rename(path, path + ".away")
        try:
            self.server.start()
        except RuntimeError as error:
            if path not in str(error):
                raise RuntimeError(f"the refusal does not name {path}") from error
        else:
            raise RuntimeError("a server without its CATALOG was let in")
        self.server.kill()
        self.await_doctor("servers", "FAILED", "down: s0")
        os.rename(path + ".away", path)
        self.server.start()


FAULTS = ["numbers", "messages", "unread", "connections", "port", "lease", "segment", "catalog"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--bin-dir", required=True)
    parser.add_argument("--only", choices=FAULTS)
    args = parser.parse_args()
    args.bin_dir = os.path.abspath(args.bin_dir)
    directory = tempfile.mkdtemp(prefix="hotbed_doctor_")
    patient = Patient(args, directory)
    try:
        patient.begin()
        patient.well()
        for fault in [args.only] if args.only else FAULTS:
            begin = time.monotonic()
            getattr(patient, fault)()
            patient.well()
            print(f"{fault}: shown, and mended, in {time.monotonic() - begin:.1f} s", flush=True)
        return 0
    finally:
        patient.cluster.stop()
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
