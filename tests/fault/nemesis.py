"""The faults of a run: each nemesis picks its victims with the run's seeded random numbers, strikes, and says how to undo it.

A victim is struck by one nemesis at a time; several nemeses may be at work at once. heal() undoes all of them.
"""

import heapq
import resource
import time
from collections import namedtuple

from net_cluster import Proxy

SHORT = (0.1, 1.0)
# Longer than the lease of 3 s, so that the others continue without the victim.
LONG = (3.5, 6.0)


# Whom it met (processes, a proxy, or of a cut the pair of hosts), seconds until it is undone, how; for people: more of what.
Strike = namedtuple("Strike", ("victims", "seconds", "undo", "detail"), defaults=("",))


class Nemesis:
    name = ""
    weight = 1.0

    def strike(self, rig, random):
        """Does it. None where there is nothing to strike."""
        raise NotImplementedError


def free(rig, processes):
    return [p for p in processes if p.running() and not p.paused and p not in rig.struck]


def some_time(random, long_share=0.4):
    return random.uniform(*(LONG if random.random() < long_share else SHORT))


class KillServer(Nemesis):
    name, weight = "kill", 4.0

    def processes(self, rig):
        return rig.cluster.servers

    def strike(self, rig, random):
        victims = free(rig, self.processes(rig))
        if not victims:
            return None
        victim = random.choice(victims)
        victim.kill()
        return Strike([victim], random.choice([0.0, random.uniform(*SHORT), some_time(random)]), lambda: rig.begin(victim))


class KillCoordinator(KillServer):
    name, weight = "kill_coordinator", 1.0

    def processes(self, rig):
        return [rig.cluster.coordinator]


class KillClient(KillServer):
    name, weight = "kill_client", 1.0

    def processes(self, rig):
        return rig.checker.workers


class PauseServer(Nemesis):
    name, weight = "pause", 2.0

    def processes(self, rig):
        return rig.cluster.servers

    def strike(self, rig, random):
        victims = free(rig, self.processes(rig))
        if not victims:
            return None
        victim = random.choice(victims)
        victim.pause()
        return Strike([victim], some_time(random), victim.resume)


class PauseCoordinator(PauseServer):
    name, weight = "pause_coordinator", 0.7

    def processes(self, rig):
        return [rig.cluster.coordinator]


class PauseClient(PauseServer):
    name, weight = "pause_client", 0.5

    def processes(self, rig):
        return rig.checker.workers


class Cut(Nemesis):
    """Nothing from one host reaches another, while the way back is open."""

    name, weight = "cut", 2.0

    def strike(self, rig, random):
        hosts = [p.host for p in [*rig.cluster.processes(), *rig.checker.workers]]
        source, target = random.sample(hosts, 2)
        if (source, target) in rig.network.cuts:
            return None
        rig.network.cut(source, target)
        return Strike([(source, target)], some_time(random), lambda: rig.network.heal(source, target))


class Isolate(Nemesis):
    """A server that nobody reaches and that reaches nobody."""

    name, weight = "isolate", 1.0

    def strike(self, rig, random):
        victims = free(rig, rig.cluster.servers)
        if not victims:
            return None
        victim = random.choice(victims)
        others = [h for h in rig.network.hosts if h is not victim.host]
        rig.network.isolate(victim.host, others)

        def heal():
            for other in others:
                rig.network.heal(other, victim.host)
                rig.network.heal(victim.host, other)
        return Strike([victim], some_time(random), heal)


class DiskFull(Nemesis):
    """No file of a server may grow, as on a full disk; then it may again. The server stays up."""

    name, weight = "disk", 1.0
    limit_bytes = 64 << 10

    def strike(self, rig, random):
        victims = free(rig, rig.cluster.servers)
        if not victims:
            return None
        victim = random.choice(victims)
        pid = victim.child.pid

        def limit(soft):
            try:
                resource.prlimit(pid, resource.RLIMIT_FSIZE, (soft, resource.RLIM_INFINITY))
            except ProcessLookupError:  # it was killed at the end of the run
                pass
        limit(self.limit_bytes)
        return Strike([victim], some_time(random), lambda: limit(resource.RLIM_INFINITY))


class BadConnections(Nemesis):
    """Delays, resets, loss of connections, half-open ones and refusals, through the proxies of a server."""

    name, weight = "proxy", 2.0

    def strike(self, rig, random):
        proxies = [proxy for server in rig.cluster.servers for proxy in server.proxies
                   if proxy not in rig.struck]
        if not proxies:
            return None
        proxy = random.choice(proxies)
        command = random.choice(["reset", "delay 3 3", "delay 30 20", "loss 0.02", "stall up", "stall down", "stall both",
                                 "refuse on"])
        proxy.tell(command)
        if command.startswith("refuse"):
            proxy.tell("reset")
        return Strike([proxy], 0.0 if command == "reset" else some_time(random), lambda: proxy.tell("clear"), command)


ALL = {n.name: n for n in (KillServer, KillCoordinator, KillClient, PauseServer, PauseCoordinator, PauseClient, Cut, Isolate,
                           DiskFull, BadConnections)}


class Rig:
    """The parts of a run: `network`, `cluster`, `checker`; and its present faults."""

    def __init__(self, network, cluster, checker, random, nemeses, pause_max, chronicle):
        self.network = network
        self.chronicle = chronicle
        self.cluster = cluster
        self.checker = checker
        self.random = random
        self.nemeses = nemeses
        self.pause_max = pause_max  # seconds from a strike to the next
        self.struck = set()
        self.undos = []  # a heap of (when, number, its Strike, its Fault)
        self.down = {}  # process that was killed -> its Fault, until it serves again
        self.starting = {}  # process -> when it has to serve
        self.strikes = dict.fromkeys((n.name for n in nemeses), 0)
        self.number = 0

    def begin(self, process):
        """Starts a process that was killed, and looks after it until it serves."""
        if process in self.checker.workers:
            process.start(wait_for_serving=False)
            self._serves(process)
        else:
            process.begin()
            self.starting[process] = time.monotonic() + 120

    def _serves(self, process):
        if process in self.down:
            self.chronicle.end(self.down.pop(process))

    def _undo(self, strike, fault):
        strike.undo()
        self.struck.difference_update(strike.victims)
        if fault not in self.down.values():
            self.chronicle.end(fault)

    def _names_of(self, victim):
        if isinstance(victim, tuple):
            named = {p.host: p.name for p in [*self.cluster.processes(), *self.checker.workers]}
            return [named[host] for host in victim]
        return [victim.server if isinstance(victim, Proxy) else victim.name]

    def look_after(self):
        """Undoes what is due. RuntimeError: a process ended by itself, or does not come to serve."""
        now = time.monotonic()
        while self.undos and self.undos[0][0] <= now:
            self._undo(*heapq.heappop(self.undos)[2:])
        for process, deadline in list(self.starting.items()):
            if process.child is None or process.serving():
                del self.starting[process]
                if process.child is not None:
                    self._serves(process)
            elif now > deadline and not process.paused:
                raise RuntimeError(f"{process.name} does not come to serve:\n{process.tail()}")
        for process in self.cluster.processes():
            if process.child is not None and not process.running():
                raise RuntimeError(f"{process.name} ended with {process.child.returncode}:\n{process.tail()}")

    def strike(self):
        if not self.nemeses:
            return
        nemesis = self.random.choices(self.nemeses, [n.weight for n in self.nemeses])[0]
        strike = nemesis.strike(self, self.random)
        if strike is None:
            return
        self.strikes[nemesis.name] += 1
        self.struck.update(strike.victims)
        self.number += 1
        fault = self.down.get(strike.victims[0])  # killed again before it served: that lasts on
        if fault is None or not isinstance(nemesis, KillServer):
            fault = self.chronicle.begin(nemesis.name, self._names_of(strike.victims[0]), strike.detail)
        if isinstance(nemesis, KillServer):
            self.down[strike.victims[0]] = fault
        heapq.heappush(self.undos, (time.monotonic() + strike.seconds, self.number, strike, fault))

    def wait(self, seconds):
        end = time.monotonic() + seconds
        while True:
            self.look_after()
            left = end - time.monotonic()
            if left <= 0:
                return
            time.sleep(min(left, 0.05))

    def work(self, seconds, each=lambda: None):
        """Strikes for so long; `each` is called between strikes, and ends the run by an exception."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.wait(min(self.random.uniform(0.1, self.pause_max), max(0.0, end - time.monotonic())))
            each()
            self.strike()

    def heal(self):
        """Everything runs and is reachable again when it returns."""
        for _, _, strike, fault in sorted(self.undos, key=lambda u: u[:2]):
            self._undo(strike, fault)
        self.undos.clear()
        self.struck.clear()
        self.network.heal_all()
        for process in list(self.starting):
            if process.child is not None:
                process.wait_until_serving(120)
                self._serves(process)
        self.starting.clear()
