"""A network of hosts, each a network namespace with an address of its own, on one bridge. For use inside sandbox.enter().

Cuts are one-way and silent: the receiver drops what comes from the other's address, so that the sender learns nothing.
"""

import ctypes
import os
import subprocess

from sandbox import die_with_parent, libc

PREFIX = "10.55.0"
BRIDGE = "hotbed0"
HOME = f"{PREFIX}.1"  # where the test itself stands
CLONE_NEWNET = 0x40000000


def run(*command):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: {done.stdout.strip()}")


class Host:
    """One network namespace. It lives as long as its idle process, which dies with the test."""

    def __init__(self, network, number):
        self.network = network
        self.address = f"{PREFIX}.{number}"
        self.idle = subprocess.Popen(["unshare", "--net", "sleep", "infinity"], stdout=subprocess.DEVNULL,
                                     preexec_fn=die_with_parent)
        self.pid = self.idle.pid
        self._wait_for_namespace()
        self.link = f"v{number}"
        run("ip", "link", "add", self.link, "type", "veth", "peer", "name", "eth0", "netns", str(self.pid))
        run("ip", "link", "set", self.link, "master", BRIDGE, "up")
        self.run("ip", "link", "set", "lo", "up")
        self.run("ip", "addr", "add", f"{self.address}/24", "dev", "eth0")
        self.run("ip", "link", "set", "eth0", "up")

    def _wait_for_namespace(self):
        own = os.readlink("/proc/self/ns/net")
        while os.readlink(f"/proc/{self.pid}/ns/net") == own or \
                open(f"/proc/{self.pid}/comm", encoding="ascii").read().strip() != "sleep":
            if self.idle.poll() is not None:
                raise RuntimeError("unshare --net failed")

    def enter(self):
        """In a child before its program: the program then runs on this host."""
        fd = os.open(f"/proc/{self.pid}/ns/net", os.O_RDONLY)
        if libc.setns(fd, CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), "setns")
        os.close(fd)

    def close(self):
        run("ip", "link", "delete", self.link)
        self.idle.kill()
        self.idle.wait()

    def run(self, *command):
        run("nsenter", "-t", str(self.pid), "-n", *command)

    def refuse_from(self, other, on):
        self.run("iptables", "-w", "-A" if on else "-D", "INPUT", "-s", other.address, "-j", "DROP")


class Network:
    """One at a time."""

    def __init__(self):
        run("ip", "link", "add", BRIDGE, "type", "bridge")
        run("ip", "addr", "add", f"{HOME}/24", "dev", BRIDGE)
        run("ip", "link", "set", BRIDGE, "up")
        self.hosts = []
        self.cuts = set()

    def close(self):
        for host in self.hosts:
            host.close()
        run("ip", "link", "delete", BRIDGE)

    def host(self):
        host = Host(self, 10 + len(self.hosts))
        self.hosts.append(host)
        return host

    def cut(self, source, target):
        """Nothing that `source` sends arrives at `target`, until it is healed."""
        if (source, target) not in self.cuts:
            target.refuse_from(source, True)
            self.cuts.add((source, target))

    def heal(self, source, target):
        if (source, target) in self.cuts:
            target.refuse_from(source, False)
            self.cuts.remove((source, target))

    def isolate(self, host, others=None):
        """Cuts `host` off from the others (all of them), both ways."""
        for other in self.hosts if others is None else others:
            if other is not host:
                self.cut(host, other)
                self.cut(other, host)

    def heal_all(self):
        for source, target in list(self.cuts):
            self.heal(source, target)
