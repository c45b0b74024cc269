#!/usr/bin/env python3
"""The pods of deploy/kustomize/overlays/serving as processes, under load: started in any order, rolled, a node lost, scaled, upgraded.

  pods_test.py --bin-dir build/bin [--old-bin-dir DIR [--one-way]]
  pods_test.py --bin-dir build/bin --secure      overlays/secure-serving: two coordinators on an etcd, TLS everywhere; started and rolled

Meanwhile lookups by HTTP ask the service of the serving pods for the newest rows and for those of a published version. No call fails, no acknowledged push is lost, no pod is killed by its liveness probe, and no shard has two members on a node. The
longest push is printed. --old-bin-dir: programs of an earlier version, from which the pods are upgraded, and to which
they go back and are upgraded again; with --one-way not, as where the formats of files have changed.
Exit status: 0 all well; 77 no namespaces here.
"""

import argparse
import http.client
import json
import os
import random
import select
import shutil
import ssl
import subprocess
import sys
import tempfile
import threading
import time

SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.append(os.path.join(SOURCE, "tests", "fault"))

import kustomize  # noqa: E402
from cluster import Process, json_of_command, run_command  # noqa: E402
from meter import Table  # noqa: E402
from network import Network, run as execute  # noqa: E402
from pods import PROXY_LAG_SECONDS, USER, Cluster  # noqa: E402
from sandbox import enter  # noqa: E402

SERVER, COORDINATOR, SERVING, LOOKUP = "hotbed-server", "hotbed-coordinator", "hotbed-serving", "hotbed-lookup"
NODES = 3
ROWS, DIM = 40_000, 64
# What the test's machine has instead of the manifest's gigabytes.
HOST_BYTES = "128MiB"
TOKEN = "a token nobody guesses"


class Lookups:
    """One lookup after another by HTTP, as the service of the serving pods passes connections on. Each is on a connection of its own, or
    all are on one that stays open, until its pod says that it closes it."""

    def __init__(self, story, keeps_open=False):
        self.story, self.cluster = story, story.cluster
        self.keeps_open, self.open = keeps_open, None
        self.ended = threading.Event()
        self.answers, self.errors = {"latest": 0, "v1": 0}, []
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def connect(self):
        connection = http.client.HTTPConnection(self.cluster.endpoint(LOOKUP), 7480, timeout=20)
        connection.connect()
        if self.story.tls is not None:
            connection.sock = self.story.tls.wrap_socket(connection.sock, server_hostname=LOOKUP)
        return connection

    def ask(self, version):
        """The answer's document."""
        connection, self.open = self.open, None
        if connection is not None and select.select([connection.sock], [], [], 0)[0]:  # closed meanwhile
            connection.close()
            connection = None
        if connection is None:
            connection = self.connect()
        headers = {} if self.story.tls is None else {"Authorization": f"Bearer {TOKEN}"}
        body = json.dumps({"ids": [0, 17, ROWS - 1], "version": version, "timeout_ms": 10_000})
        try:
            connection.request("POST", "/v1/tables/kept:lookup", body, headers)
            answer = connection.getresponse()
            said = answer.read().decode()
            if answer.status != 200:
                raise RuntimeError(f"{answer.status} {said}")
            if self.keeps_open and not answer.will_close:
                self.open = connection
            return json.loads(said)
        finally:
            if self.open is None:
                connection.close()

    def _run(self):
        while not self.ended.wait(0.05):
            version = random.choice(("latest", "current"))
            try:
                said = self.ask(version)
                if said["exists"] != [True] * 3:
                    raise RuntimeError(f"rows are missing: {said}")
                self.answers[said["version"]] += 1
            except (OSError, RuntimeError, KeyError, http.client.HTTPException) as error:
                self.errors.append(f"{version}: {error!r}")

    def end(self):
        self.ended.set()
        self.thread.join()
        if self.open is not None:
            self.open.close()
            self.open = None

    def check(self, what):
        if self.keeps_open:
            what += ", on connections that stay open"
        self.story.tell(f"{what}: lookups by HTTP: {self.answers}, {len(self.errors)} errors")
        if self.errors or 0 in self.answers.values():
            raise RuntimeError(f"lookups by HTTP: {self.answers}, errors: {self.errors[:3]}")
        trained = [row["weights"] for row in self.story.json("row", "get", "kept", 0, 17, ROWS - 1)]
        deadline = time.monotonic() + 60
        while self.ask("latest")["values"] != trained:
            if time.monotonic() > deadline:
                raise RuntimeError(f"a minute later lookups give other rows than trainers have: {trained}")
            time.sleep(0.1)


class Story:
    def __init__(self, args, cluster, tls):
        self.args, self.cluster, self.tls = args, cluster, tls
        self.address = f"{COORDINATOR}:7400"
        self.begin = time.monotonic()
        self.coordinators = []
        self.servers = []
        self.serving = []
        self.table = None
        self.acknowledged = 0  # pushed rows

    def tell(self, text):
        print(f"{time.monotonic() - self.begin:6.1f} s  {text}", flush=True)

    def json(self, *command):
        return json_of_command(self.args.bin_dir, self.address, *command, "--timeout=20s")

    def start_in_any_order(self):
        """Servers before their coordinator, too: all at once, in an order by chance."""
        self.coordinators = [self.cluster.pod(COORDINATOR, i)
                             for i in range(self.cluster.objects["StatefulSet", COORDINATOR]["spec"]["replicas"])]
        replicas = self.cluster.objects["StatefulSet", SERVER]["spec"]["replicas"]
        self.servers = [self.cluster.pod(SERVER, i) for i in range(replicas)]
        self.serving = [self.cluster.pod(SERVING, i) for i in range(self.cluster.objects["StatefulSet", SERVING]["spec"]["replicas"])]
        pods = [*self.coordinators, *self.servers, *self.serving]
        random.shuffle(pods)
        # A pod's address is known once it runs; the coordinator's name stands before anybody asks for it.
        for pod in pods:
            pod.begin()
            time.sleep(random.random())
        for pod in pods:
            pod.wait_ready()
        self.tell(f"started in the order {' '.join(p.name for p in pods)}; all are ready")
        self.json("rebalance", "off")
        self.table = Table(self.args.bin_dir, self.address, "kept", ROWS, DIM, "replicated=2", shards=6)
        self.table.wait_for(replicas=2)
        self.acknowledged = self.table.meter("fill").result()["ids_acknowledged"]
        self.json("serve", "add", "kept", f"--replicas={len(self.serving)}")
        # While all pods load a table, the others are still answered by all.
        loads = True
        while loads:
            loads = any(copy["state"] != "ready" for copy in self.json("serve", "status")["tables"][0]["copies"])
            unready = [p.name for p in self.serving if not p.probe(p.container["readinessProbe"], seconds=20)]
            if unready:
                raise RuntimeError(f"not ready while a table is loaded that came later: {unready}")
        # Servers write into the folders that the command makes.
        done = subprocess.run([os.path.join(self.args.bin_dir, "hotbed"), f"--coordinator={self.address}", "publish", "kept",
                               f"{self.cluster.shared}/versions", "--name=v1", "--timeout=60s"],
                              user=USER, group=USER, capture_output=True, text=True, timeout=120, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"publish ended with {done.returncode}: {done.stderr}{done.stdout}")
        self.tell("served, and published")

    def roll(self, pod):
        """As the controller of a StatefulSet does: the next one is deleted as soon as this one is ready."""
        stopped = pod.delete()
        pod.begin()
        pod.wait_ready()
        self.tell(f"{pod.name} rolled: stopped in {stopped:.1f} s, now at {pod.host.address}")

    def lose_node(self):
        """The node of a server falls silent for good. The pod comes back elsewhere with its volume."""
        primaries = [s["primary"] for s in self.table.shards()]
        pod = max(self.servers, key=lambda p: primaries.count(p.name))
        self.cluster.network.isolate(pod.host)
        pod.kill()
        before = time.monotonic()
        while any(not s["active"] or pod.name in s["members"] for s in self.table.shards()):
            if time.monotonic() > before + 60:
                raise RuntimeError(f"a minute after {pod.node} was lost: {self.table.shards()}")
            time.sleep(0.1)
        self.tell(f"{pod.node} lost: all shards are served by others {time.monotonic() - before:.1f} s later")
        pod.node = "node-spare"
        pod.begin()
        pod.wait_ready()
        self.table.wait_for(replicas=2)
        self.tell(f"{pod.name} is back on {pod.node}; all replicas are there")

    def scale_out(self, count):
        while len(self.servers) < count:
            self.servers.append(self.cluster.pod(SERVER, len(self.servers)))
            self.servers[-1].begin()
        for pod in self.servers:
            pod.wait_ready()
        status, out, err = run_command(self.args.bin_dir, self.address, "plan", "apply", "--timeout=20s", seconds=120)
        if status != 0:
            raise RuntimeError(f"plan apply: {out}{err}")
        held = {m for s in self.table.shards() for m in s["members"]}
        self.tell(f"scaled to {count}: {len(held)} servers hold shards")
        if len(held) < count:
            raise RuntimeError(f"of {count} servers only {sorted(held)} hold shards")

    def scale_in(self, count):
        while len(self.servers) > count:
            pod = self.servers.pop()
            status, said = self.servers[0].execute(["/usr/bin/hotbed", "server", "retire", pod.name, "--drain", "--wait=60s"])
            if status != 0:
                raise RuntimeError(f"retire {pod.name} --drain: {said}")
            stopped = pod.delete()
            del self.cluster.pods[pod.name]
            self.tell(f"{pod.name} drained and stopped in {stopped:.1f} s")
        if any(m not in {p.name for p in self.servers} for s in self.table.shards() for m in s["members"]):
            raise RuntimeError(f"a server that is gone has shards: {self.table.shards()}")

    def check_domains(self):
        nodes = {p.name: p.node for p in self.servers}
        for shard in self.table.shards():
            places = [nodes[m] for m in shard["members"] if m in nodes]
            if len(set(places)) != len(places):
                raise RuntimeError(f"{shard['shard']} has two members on one node: {shard['members']} on {places}")

    def under_load(self, what, push_seconds_max, actions):
        load = self.table.meter("shards", "--seconds=600", "--pace-ms=50", "--ids=4")
        lookups = [Lookups(self), Lookups(self, keeps_open=True)]
        try:
            for action in actions:
                action()
                self.check_domains()
            self.table.wait_for(replicas=2)
        finally:
            for one in lookups:
                one.end()
        pushed = load.stop()
        for one in lookups:
            one.check(what)
        longest = pushed["push_us_p100"] / 1e6
        self.tell(f"{what}: {pushed['pushes']} pushes, {pushed['errors']} errors, the longest {longest * 1e3:.0f} ms "
                  f"(bar {push_seconds_max} s: {'met' if longest <= push_seconds_max else 'MISSED'})")
        self.acknowledged += pushed["ids_acknowledged"]
        if pushed["errors"] != 0 or self.table.sum() != self.acknowledged:
            raise RuntimeError(f"the table holds {self.table.sum()}, pushed were {self.acknowledged}; errors: {pushed['errors']}")
        unready = [name for name in self.cluster.unready if name.startswith(SERVING)]
        if unready:
            raise RuntimeError(f"serving pods that were ready were so no more: {unready}")
        if self.cluster.killed_by_liveness:
            raise RuntimeError(f"liveness probes would have killed {self.cluster.killed_by_liveness}")


def run(args, story):
    story.start_in_any_order()
    rolls = [lambda pod=pod: story.roll(pod)
             for pod in [*reversed(story.servers), *reversed(story.coordinators), *reversed(story.serving)]]
    if args.old_bin_dir:
        ways = (("upgrade", args.bin_dir), ("the way back", args.old_bin_dir), ("upgrade again", args.bin_dir))
        for what, bin_dir in ways[:1] if args.one_way else ways:
            story.cluster.use_programs(bin_dir)
            story.under_load(what, 1.5, rolls)
    story.under_load("every pod rolled", 1.5, rolls)
    if args.secure:
        return
    story.under_load("scaled to 5 and back", 1.5, [lambda: story.scale_out(5), lambda: story.scale_in(3)])
    story.under_load("a lost node", 6, [story.lose_node])


class Secrets:
    """An authority, what the two Secrets hold, and an etcd that wants certificates."""

    def __init__(self, args, directory, network):
        self.directory = os.path.join(directory, "secrets")
        self.hotbed = os.path.join(args.bin_dir, "hotbed")
        self.host = network.host()
        execute(self.hotbed, "cert", "create-ca", f"--dir={self.directory}")
        for name, role in (("hotbed-tls", "server"), ("hotbed-etcd", "server"), ("operator", "operator")):
            execute(self.hotbed, "cert", "create", f"--dir={self.directory}", f"--name={name}", f"--role={role}",
                    f"--host={self.host.address}", "--host=127.0.0.1", f"--host={LOOKUP}")
        execute("chown", "-R", f"{USER}:{USER}", self.directory)
        url, peer = f"https://{self.host.address}:2379", "http://127.0.0.1:2380"
        self.etcd = Process("etcd", ["etcd", "--name=e", f"--data-dir={directory}/etcd", f"--listen-client-urls={url}",
                                     f"--advertise-client-urls={url}", f"--listen-peer-urls={peer}",
                                     f"--initial-advertise-peer-urls={peer}", f"--initial-cluster=e={peer}", "--client-cert-auth",
                                     f"--trusted-ca-file={self.directory}/ca.crt",
                                     f"--cert-file={self.directory}/hotbed-etcd.crt",
                                     f"--key-file={self.directory}/hotbed-etcd.key", "--logger=zap", "--log-level=error"],
                            f"{directory}/etcd.log", host=self.host)
        self.etcd.start(wait_for_serving=False)
        for variable, file in (("CA", "ca.crt"), ("CERT", "operator.crt"), ("KEY", "operator.key")):
            os.environ[f"HOTBED_TLS_{variable}"] = f"{self.directory}/{file}"  # of the test's own calls
        os.environ["GRPC_DNS_RESOLVER"] = "native"

    def add_to(self, objects):
        for name in ("hotbed-tls", "hotbed-etcd"):
            data = {}
            for key, file in (("ca.crt", "ca.crt"), ("tls.crt", f"{name}.crt"), ("tls.key", f"{name}.key")):
                with open(os.path.join(self.directory, file), encoding="ascii") as source:
                    data[key] = source.read()
            objects["Secret", name] = {"stringData": data}
        token = os.path.join(self.directory, "token")
        with open(token, "w", encoding="ascii") as file:
            file.write(TOKEN)
        hashed = subprocess.run([self.hotbed, "cert", "hash-token", token], capture_output=True, text=True, check=True).stdout.strip()
        rules = f"tokens:\n  - name: scorer\n    role: reader\n    sha256: {hashed}\n"
        objects["Secret", "hotbed-access"] = {"stringData": {"access.yaml": rules}}
        for variable in objects["StatefulSet", COORDINATOR]["spec"]["template"]["spec"]["containers"][0]["env"]:
            if variable["name"] == "HOTBED_METADATA":
                variable["value"] = f"etcd://{self.host.address}:2379/hotbed"


def objects_for_here(overlay):
    objects = kustomize.by_name(kustomize.build(os.path.join(SOURCE, "deploy", "kustomize", "overlays", overlay)))
    for name in (SERVER, SERVING):
        config = objects["ConfigMap", name]["data"]
        for file, text in config.items():
            config[file] = text.replace("host-bytes: 6GiB", f"host-bytes: {HOST_BYTES}")
    hook = objects["StatefulSet", SERVING]["spec"]["template"]["spec"]["containers"][0]["lifecycle"]["preStop"]["exec"]["command"]
    hook[hook.index("--wait-min=5s")] = f"--wait-min={2 * PROXY_LAG_SECONDS}s"
    return objects


def remove(directory):
    """Nothing that is mounted in it is touched."""
    with open("/proc/self/mounts", encoding="utf-8") as file:
        mounted = [line.split()[1] for line in file if line.split()[1].startswith(directory)]
    for path in reversed(mounted):
        execute("umount", path)
    shutil.rmtree(directory, ignore_errors=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--bin-dir", required=True)
    parser.add_argument("--old-bin-dir")
    parser.add_argument("--one-way", action="store_true")
    parser.add_argument("--secure", action="store_true")
    args = parser.parse_args()
    args.bin_dir = os.path.abspath(args.bin_dir)
    if args.secure and shutil.which("etcd") is None:
        print("left out: it needs etcd (Debian: etcd-server)")
        return 77
    enter()
    directory = tempfile.mkdtemp(prefix="hotbed_pods_")
    os.chmod(directory, 0o755)
    network = Network()
    objects = objects_for_here("secure-serving" if args.secure else "serving")
    secrets = tls = None
    if args.secure:
        secrets = Secrets(args, directory, network)
        secrets.add_to(objects)
        tls = ssl.create_default_context(cafile=f"{secrets.directory}/ca.crt")
    cluster = Cluster(objects, args.old_bin_dir or args.bin_dir, directory, network, NODES)
    try:
        run(args, Story(args, cluster, tls))
        return 0
    except RuntimeError as error:
        print(f"FAILED: {error}")
        for pod in cluster.pods.values():
            print(f"--- {pod.name}\n{pod.tail()}")
        return 1
    finally:
        cluster.close()
        if secrets is not None:
            secrets.etcd.kill()
        remove(directory)  # the network goes with the process


if __name__ == "__main__":
    sys.exit(main())
