"""A Hotbed cluster of real processes on loopback, for the fault tests. Standard library only."""

import glob
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

START_SECONDS_MAX = 30
COMMAND_SECONDS_MAX = 60


def run_command(bin_dir, coordinator, *command, seconds=COMMAND_SECONDS_MAX):
    """The command line program: (exit status, stdout, stderr)."""
    done = subprocess.run([os.path.join(bin_dir, "hotbed"), *map(str, command), f"--coordinator={coordinator}"],
                          capture_output=True, text=True, timeout=seconds, stdin=subprocess.DEVNULL, check=False)
    return done.returncode, done.stdout, done.stderr


def json_of_command(bin_dir, coordinator, *command, seconds=COMMAND_SECONDS_MAX):
    status, out, err = run_command(bin_dir, coordinator, *command, "-o", "json", seconds=seconds)
    if status != 0:
        raise RuntimeError(f"hotbed {' '.join(map(str, command))} ended with {status}: {err.strip()}")
    return json.loads(out)


def server_of(admin):
    """(number, incarnation) of the server with that admin address."""
    with urllib.request.urlopen(f"http://{admin}/api/status", timeout=10) as reply:
        status = json.load(reply)
    return int(status["server"]), int(status["incarnation"])


names_of_ports = []  # held as long as this process lives


def first_port_of_connections():
    """Ports from here on are given to connections by the system: one that is free now may be taken a moment later."""
    with open("/proc/sys/net/ipv4/ip_local_port_range") as file:
        return int(file.read().split()[0])


def free_ports(count):
    """Ports that are free, and stay so until they are listened on: all different, and given to no other run of these tests."""
    ports = []
    while len(ports) < count:
        port = random.SystemRandom().randrange(10240, first_port_of_connections())
        name = socket.socket(socket.AF_UNIX)
        try:
            name.bind(f"\0hotbed-test-port-{port}")
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", port))
        except OSError:
            name.close()
            continue
        names_of_ports.append(name)
        ports.append(port)
    return ports


class Process:
    """One program that is started, killed and started again with the same command line and log file."""

    def __init__(self, name, command, log_path, env=None, host=None):
        """`host`: a network.Host to run on; None: the test's own."""
        self.name = name
        self.command = command
        self.log_path = log_path
        # Ours is none of theirs: they warn of HOTBED_ variables that they do not know.
        self.env = {k: v for k, v in os.environ.items() if not k.startswith("HOTBED_")} | (env or {})
        self.host = host
        self.child = None
        self.said = b""  # on stdout, up to the line that says it serves
        self.paused = False
        self.kills = 0
        self.pauses = 0

    def start(self, wait_for_serving=True):
        """Without `wait_for_serving` its output goes to the log; a later wait_until_serving() waits for nothing."""
        self.said = b""
        with open(self.log_path, "ab") as log:
            self.child = subprocess.Popen(
                self.command,
                stdout=subprocess.PIPE if wait_for_serving else log,
                stderr=log,
                env=self.env,
                preexec_fn=self._before_program,
            )
        if wait_for_serving:
            self.wait_until_serving()

    def begin(self):
        """Starts it and does not wait; serving() tells when it serves."""
        self.said = b""
        with open(self.log_path, "ab") as log:
            self.child = subprocess.Popen(self.command, stdout=subprocess.PIPE, stderr=log, env=self.env,
                                          preexec_fn=self._before_program)
        os.set_blocking(self.child.stdout.fileno(), False)

    def _before_program(self):
        if self.host is not None:
            self.host.enter()
        self.limit()

    def limit(self):
        """Runs in the child before the program; for resource limits."""

    def serving(self):
        """Whether it has said that it serves. RuntimeError: it ended instead."""
        if b"\n" not in self.said:
            self.said += self.child.stdout.read() or b""
            if self.child.poll() is not None:
                raise RuntimeError(
                    f"{self.name} ended with {self.child.returncode} while starting:\n{self.tail()}")
        return b"\n" in self.said

    def wait_until_serving(self, seconds=START_SECONDS_MAX):
        os.set_blocking(self.child.stdout.fileno(), False)
        deadline = time.monotonic() + seconds
        while not self.serving():
            if time.monotonic() > deadline:
                raise RuntimeError(f"{self.name} did not serve within {seconds} s:\n{self.tail()}")
            time.sleep(0.01)

    def running(self):
        return self.child is not None and self.child.poll() is None

    def pause(self):
        """SIGSTOP: silent, and with all its connections open. Returns when each of its threads has stopped."""
        if self.running() and not self.paused:
            self.child.send_signal(signal.SIGSTOP)
            while self.running() and not self.stopped():
                time.sleep(0.001)
            self.paused = True
            self.pauses += 1

    def stopped(self):
        for stat in glob.glob(f"/proc/{self.child.pid}/task/*/stat"):
            try:
                with open(stat) as file:
                    state = file.read().rpartition(")")[2].split()[0]
            except (FileNotFoundError, ProcessLookupError):
                continue  # the thread has ended
            if state not in "TtZX":
                return False
        return True

    def resume(self):
        if self.running() and self.paused:
            self.child.send_signal(signal.SIGCONT)
        self.paused = False

    def kill(self):
        """SIGKILL; nothing is written, nothing is said."""
        if self.running():
            self.child.send_signal(signal.SIGKILL)
            self.kills += 1
        self._collect()

    def stop(self, seconds=START_SECONDS_MAX):
        """SIGTERM; its exit status. RuntimeError: it did not end."""
        if self.child is None:
            return None
        if self.running():
            self.child.send_signal(signal.SIGTERM)
        try:
            status = self.child.wait(seconds)
        except subprocess.TimeoutExpired as error:
            raise RuntimeError(f"{self.name} did not end within {seconds} s of SIGTERM:\n{self.tail()}") from error
        self._collect()
        return status

    def _collect(self):
        self.paused = False
        if self.child is not None:
            self.child.wait()
            if self.child.stdout is not None:
                self.child.stdout.close()
            self.child = None

    def tail(self, lines=40):
        if not os.path.exists(self.log_path):
            return "(never started)"
        with open(self.log_path, errors="replace") as log:
            return "".join(log.readlines()[-lines:])


def start_etcd_members(directory, members):
    """(processes, client ports) of an etcd with so many members."""
    ports = free_ports(2 * members)
    clients, peers = ports[:members], ports[members:]
    cluster = ",".join(f"e{i}=http://127.0.0.1:{peer}" for i, peer in enumerate(peers))
    started = []
    for i, (client, peer) in enumerate(zip(clients, peers)):
        url = f"http://127.0.0.1:{client}"
        started.append(Process(f"etcd{i}", ["etcd", f"--name=e{i}", f"--data-dir={directory}/etcd{i}", f"--listen-client-urls={url}",
                                            f"--advertise-client-urls={url}", f"--listen-peer-urls=http://127.0.0.1:{peer}",
                                            f"--initial-advertise-peer-urls=http://127.0.0.1:{peer}",
                                            f"--initial-cluster={cluster}", "--logger=zap", "--log-level=error"],
                               f"{directory}/etcd{i}.log"))
        started[-1].start(wait_for_serving=False)
    return started, clients


def start_etcd(directory):
    """(process, port) of an etcd with one member."""
    (etcd,), (client,) = start_etcd_members(directory, 1)
    return etcd, client


class ServingServer(Process):
    """`http`: it answers lookups by HTTP, too. `coordinator` and `listen`: other addresses than the cluster's and a free one."""

    def __init__(self, cluster, name, flags, http=False, host_bytes="64MiB", coordinator=None, listen=None):
        data_port, admin_port, http_port = free_ports(3)
        self.admin, self.http = f"127.0.0.1:{admin_port}", f"127.0.0.1:{http_port}"
        super().__init__(name, [os.path.join(cluster.bin_dir, "hotbed-server"), "--role=serving", f"--name={name}",
                                f"--coordinator={coordinator or cluster.address}", f"--listen={listen or f'127.0.0.1:{data_port}'}",
                                f"--admin-listen={self.admin}", f"--host-bytes={host_bytes}",
                                *([f"--http-listen={self.http}"] if http else []), *flags], f"{cluster.directory}/{name}.log")


class Cluster:
    """One coordinator and `servers` shard servers below `directory`, and serving servers that are added."""

    def __init__(self, bin_dir, directory, servers, server_binary="hotbed-server", server_flags=(),
                 server_env=None, server_data=None):
        """`server_data`: the data directory of a single server, when it is not below `directory`."""
        self.bin_dir = bin_dir
        self.directory = directory
        self.server_binary = server_binary
        self.server_flags = tuple(server_flags)
        self.server_env = server_env
        ports = free_ports(2)
        self.address = f"127.0.0.1:{ports[0]}"
        self.coordinator_admin = f"127.0.0.1:{ports[1]}"
        self.coordinator = Process(
            "coordinator",
            [os.path.join(bin_dir, "hotbed-coordinator"),
             f"--listen={self.address}",
             f"--admin-listen={self.coordinator_admin}",
             f"--data-dir={directory}/coordinator"],
            f"{directory}/coordinator.log")
        self.servers, self.serving = [], []
        self.admin = []
        for _ in range(servers):
            self.add_server(server_data)

    def add_server(self, data_dir=None, flags=(), name=None):
        """One more, not started yet. Each has a loopback address, and so a failure domain, of its own."""
        number = len(self.servers)
        name = name or f"s{number}"
        listen, admin = free_ports(2)
        self.admin.append(f"127.0.0.1:{admin}")
        self.servers.append(Process(
            name,
            [os.path.join(self.bin_dir, self.server_binary),
             f"--name={name}",
             f"--coordinator={self.address}",
             f"--listen=127.0.0.{number + 1}:{listen}",
             f"--admin-listen=127.0.0.1:{admin}",
             f"--data-dir={data_dir or f'{self.directory}/s{number}'}",
             *self.server_flags,
             *flags],
            f"{self.directory}/s{number}.log",
            env=self.server_env))
        return self.servers[-1]

    def add_serving(self, name, *flags, **more):
        """A serving server, not started yet; start() leaves it alone. `more` as ServingServer has it."""
        self.serving.append(ServingServer(self, name, flags, **more))
        return self.serving[-1]

    def run(self, *command, seconds=COMMAND_SECONDS_MAX):
        return run_command(self.bin_dir, self.address, *command, seconds=seconds)

    def json(self, *command, seconds=COMMAND_SECONDS_MAX):
        return json_of_command(self.bin_dir, self.address, *command, seconds=seconds)

    def processes(self):
        return [self.coordinator, *self.servers, *self.serving]

    def start(self):
        for process in [self.coordinator, *self.servers]:
            process.start()

    def stop(self):
        for process in reversed(self.processes()):
            process.kill()


class ClusterTest:
    """A test of one cluster. A subclass has run(), and close() where there is more to be stopped than the cluster."""

    settle_seconds = 60

    def __init__(self, args, directory, servers, server_flags=()):
        self.args, self.directory = args, directory
        self.cluster = Cluster(args.bin_dir, directory, servers, server_flags=server_flags)

    def command(self, *words):
        status, out, err = self.cluster.run(*words, "--timeout=30s")
        if status != 0:
            raise RuntimeError(f"hotbed {' '.join(map(str, words))} ended with {status}: {err or out}")
        return out

    def json(self, *words):
        return json.loads(self.command(*words, "-o", "json"))

    def status(self):
        """The state of serving."""
        return self.json("serve", "status")

    def wait_for(self, what, holds):
        deadline = time.monotonic() + self.settle_seconds
        while not holds():
            if time.monotonic() > deadline:
                raise RuntimeError(f"not within {self.settle_seconds} s: {what}; {self.cluster.run('serve', 'status')[1]}")
            time.sleep(0.1)

    def start_checker(self, *words, **more):
        """A running hotbed-serving-checker; end_checker() waits for it."""
        return subprocess.Popen([os.path.join(self.args.bin_dir, "hotbed-serving-checker"), self.cluster.address, *map(str, words)],
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **more)

    def end_checker(self, checker):
        """Closes its input, if it has one; its counts."""
        out, err = checker.communicate(timeout=180)
        if checker.returncode != 0:
            raise RuntimeError(f"hotbed-serving-checker: {err}{out}")
        print(out.strip(), flush=True)
        return json.loads(out)

    def again(self):
        """The command line that runs the same test."""
        return " ".join(sys.argv)

    def close(self):
        self.cluster.stop()


def run_test(test_class, args, name):
    """The exit status. The test has a directory of its own. If it fails, the ends of all logs are printed."""
    args.bin_dir = os.path.abspath(args.bin_dir)
    directory = tempfile.mkdtemp(prefix=f"hotbed_{name}_", dir=os.environ.get("TEST_TMPDIR"))
    test = test_class(args, directory)
    try:
        test.run()
        return 0
    except RuntimeError as error:
        print(error)
        for process in test.cluster.processes():
            print(process.name, process.tail(30))
        print(f"again: {test.again()}")
        return 1
    finally:
        test.close()
        shutil.rmtree(directory, ignore_errors=True)
