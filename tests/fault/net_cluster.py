"""A Hotbed cluster of real processes on a network of hosts (network.py), with TCP proxies of ours in the way where asked for."""

import json
import os
import signal
import subprocess
import time
import urllib.error
import urllib.request

from cluster import COMMAND_SECONDS_MAX, Process, json_of_command, run_command
from sandbox import die_with_parent

COORDINATOR_PORT, COORDINATOR_ADMIN_PORT = 7400, 7401
DATA_PORT, ADMIN_PORT = 7500, 7501
PROXIED_DATA_PORT, PROXIED_COORDINATOR_PORT = 7510, 7410


class Proxy:
    """hotbed-fault-proxy on a server's host, or on the test's own (None); it answers each command."""

    def __init__(self, bin_dir, server, host, listen, port, target, target_port, seed):
        self.server = server  # before which it stands, by name
        self.child = subprocess.Popen(
            [os.path.join(bin_dir, "hotbed-fault-proxy"), listen, str(port), target, str(target_port), str(seed)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            preexec_fn=lambda: (host and host.enter(), die_with_parent()))
        if self.child.stdout.readline().strip() != "serving":
            raise RuntimeError("hotbed-fault-proxy does not serve")

    def tell(self, command):
        self.child.stdin.write(command + "\n")
        self.child.stdin.flush()
        answer = self.child.stdout.readline().strip()
        if answer != "ok" and command != "stats":
            raise RuntimeError(f"proxy: {command}: {answer}")
        return answer

    def stop(self):
        self.child.kill()
        self.child.wait()


class Server(Process):
    """A shard server on a host of its own."""

    def __init__(self, cluster, number, data_dir, flags, env):
        host = cluster.network.host()
        self.data_dir = data_dir
        self.admin = f"{host.address}:{ADMIN_PORT}"
        self.proxies = []
        coordinator = cluster.address
        flags = list(flags)
        self.proxied = number >= cluster.proxied_from
        if self.proxied:
            coordinator = f"127.0.0.1:{PROXIED_COORDINATOR_PORT}"
            flags.append(f"--advertise={host.address}:{PROXIED_DATA_PORT}")
        super().__init__(
            f"s{number}",
            [os.path.join(cluster.bin_dir, cluster.server_binary), f"--name=s{number}", f"--coordinator={coordinator}",
             f"--listen={host.address}:{DATA_PORT}", f"--admin-listen={self.admin}", f"--data-dir={data_dir}",
             "--secure=off-beyond-loopback", *flags],
            f"{cluster.directory}/s{number}.log", env=env, host=host)

    def limit(self):
        # Ignored, it leaves an error of the write where a file may grow no more (nemesis DiskFull).
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)

    def add_proxies(self, cluster, seed):
        """Between it and who calls it, and between it and the coordinator."""
        address = self.host.address
        self.proxies = [
            Proxy(cluster.bin_dir, self.name, self.host, address, PROXIED_DATA_PORT, address, DATA_PORT, seed),
            Proxy(cluster.bin_dir, self.name, self.host, "127.0.0.1", PROXIED_COORDINATOR_PORT,
                  cluster.coordinator.host.address, COORDINATOR_PORT, seed + 1)]


class NetCluster:
    """One coordinator and shard servers, each on a host of its own, with their data below `directory`."""

    def __init__(self, bin_dir, directory, network, servers, server_binary="hotbed-server", server_flags=(),
                 coordinator_flags=(), server_env=None, proxied_from=1 << 30, seed=1):
        """Servers from number `proxied_from` on are called, and call, through proxies."""
        self.bin_dir = bin_dir
        self.directory = directory
        self.network = network
        self.server_binary = server_binary
        self.server_flags = tuple(server_flags)
        self.server_env = server_env
        self.proxied_from = proxied_from
        self.seed = seed
        host = network.host()
        self.address = f"{host.address}:{COORDINATOR_PORT}"
        self.coordinator_admin = f"{host.address}:{COORDINATOR_ADMIN_PORT}"
        self.coordinator = Process(
            "coordinator",
            [os.path.join(bin_dir, "hotbed-coordinator"), f"--listen={self.address}",
             f"--admin-listen={self.coordinator_admin}", f"--data-dir={directory}/coordinator",
             "--secure=off-beyond-loopback", *coordinator_flags],
            f"{directory}/coordinator.log", host=host)
        self.servers = []
        for _ in range(servers):
            self.add_server()

    def add_server(self, data_dir=None, flags=()):
        """One more, not started yet."""
        number = len(self.servers)
        server = Server(self, number, data_dir or f"{self.directory}/s{number}", (*self.server_flags, *flags),
                        self.server_env)
        if server.proxied:
            server.add_proxies(self, self.seed + 10 * number)
        self.servers.append(server)
        return server

    def processes(self):
        return [self.coordinator, *self.servers]

    def start(self):
        for process in self.processes():
            process.start()

    def stop(self):
        for process in self.processes():
            process.kill()
        for server in self.servers:
            for proxy in server.proxies:
                proxy.stop()

    def run(self, *command, seconds=COMMAND_SECONDS_MAX):
        """The command line program: (exit status, stdout, stderr)."""
        return run_command(self.bin_dir, self.address, *command, seconds=seconds)

    def json(self, *command, seconds=COMMAND_SECONDS_MAX):
        return json_of_command(self.bin_dir, self.address, *command, seconds=seconds)

    def status_of(self, admin, seconds=5):
        """The status that a process reports on its admin port. OSError: it does not answer."""
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(f"http://{admin}/api/status", timeout=seconds) as answer:
            return json.load(answer)

    def ready(self, admin):
        """Empty, or why it is not."""
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(f"http://{admin}/readyz", timeout=2):
                return ""
        except urllib.error.HTTPError as error:
            return error.read().decode(errors="replace").strip() or str(error)
        except OSError as error:
            return str(error)

    def wait_ready(self, seconds):
        """Until every process that runs says that it is ready: seconds taken. RuntimeError: not within `seconds`."""
        begin = time.monotonic()
        waiting = {self.coordinator_admin: "", **{s.admin: "" for s in self.servers if s.running()}}
        while waiting:
            waiting = {admin: why for admin in waiting if (why := self.ready(admin))}
            if waiting and time.monotonic() > begin + seconds:
                told = "; ".join(f"{admin}: {why}" for admin, why in waiting.items())
                raise RuntimeError(f"not ready within {seconds} s: {told}\n{self.run('shard', 'list')[1]}")
            if waiting:
                time.sleep(0.05)
        return time.monotonic() - begin

    def wait_for_replicas(self, seconds):
        """Until every shard is active with as many members as its table wants: seconds taken. RuntimeError: not within `seconds`."""
        begin = time.monotonic()
        wanted = {t["name"]: t.get("replicas", 1) for t in self.json("table", "list")}
        while True:
            missing = [s for s in self.json("shard", "list")
                       if not s["active"] or len(s["members"]) < wanted[s["shard"].rpartition("/")[0]]]
            if not missing:
                return time.monotonic() - begin
            if time.monotonic() > begin + seconds:
                raise RuntimeError(f"{len(missing)} shards lack replicas after {seconds} s: {missing[:8]}\n"
                                   f"{self.run('shard', 'moves')[1]}\n{self.run('events')[1][-3000:]}")
            time.sleep(0.1)
