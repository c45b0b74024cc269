"""What goes wrong in a run: each nemesis picks its victims with the run's seeded random numbers, strikes, and says how to undo it.

A victim is struck by one nemesis at a time; several nemeses may be at work at once. heal() undoes all of them.
"""

import heapq
import resource
import time

SHORT = (0.1, 1.0)
# Beyond the lease of 3 s, so that the others go on without the victim.
LONG = (3.5, 6.0)


class Nemesis:
    name = ""
    weight = 1.0

    def strike(self, rig, random):
        """Does it. Returns (victims, seconds until undone, undo), or None where there is nothing to strike."""
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
        return [victim], random.choice([0.0, random.uniform(*SHORT), some_time(random)]), lambda: rig.begin(victim)


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
        return [victim], some_time(random), victim.resume


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
        return [], some_time(random), lambda: rig.network.heal(source, target)


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
        return [victim], some_time(random), heal


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
        return [victim], some_time(random), lambda: limit(resource.RLIM_INFINITY)


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
        return [proxy], 0.0 if command == "reset" else some_time(random), lambda: proxy.tell("clear")


ALL = {n.name: n for n in (KillServer, KillCoordinator, KillClient, PauseServer, PauseCoordinator, PauseClient, Cut, Isolate,
                           DiskFull, BadConnections)}


class Rig:
    """What a run is made of: `network`, `cluster`, `checker`; and what is wrong with it now."""

    def __init__(self, network, cluster, checker, random, nemeses, pause_max):
        self.network = network
        self.cluster = cluster
        self.checker = checker
        self.random = random
        self.nemeses = nemeses
        self.pause_max = pause_max  # seconds from a strike to the next
        self.struck = set()
        self.undos = []  # a heap of (when, number, victims, undo)
        self.starting = {}  # process -> when it has to serve
        self.strikes = dict.fromkeys((n.name for n in nemeses), 0)
        self.number = 0

    def begin(self, process):
        """Starts a process that was killed, and looks after it until it serves."""
        if process in self.checker.workers:
            process.start(wait_for_serving=False)
        else:
            process.begin()
            self.starting[process] = time.monotonic() + 120

    def look_after(self):
        """Undoes what is due. RuntimeError: a process ended by itself, or does not come to serve."""
        now = time.monotonic()
        while self.undos and self.undos[0][0] <= now:
            _, _, victims, undo = heapq.heappop(self.undos)
            undo()
            self.struck.difference_update(victims)
        for process, deadline in list(self.starting.items()):
            if process.child is None or process.serving():
                del self.starting[process]
            elif now > deadline and not process.paused:
                raise RuntimeError(f"{process.name} does not come to serve:\n{process.tail()}")
        for process in self.cluster.processes():
            if process.child is not None and not process.running():
                raise RuntimeError(f"{process.name} ended with {process.child.returncode}:\n{process.tail()}")

    def strike(self):
        if not self.nemeses:
            return
        nemesis = self.random.choices(self.nemeses, [n.weight for n in self.nemeses])[0]
        done = nemesis.strike(self, self.random)
        if done is None:
            return
        victims, seconds, undo = done
        self.strikes[nemesis.name] += 1
        self.struck.update(victims)
        self.number += 1
        heapq.heappush(self.undos, (time.monotonic() + seconds, self.number, victims, undo))

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
        for _, _, _, undo in sorted(self.undos, key=lambda u: u[:2]):
            undo()
        self.undos.clear()
        self.struck.clear()
        self.network.heal_all()
        for process in list(self.starting):
            if process.child is not None:
                process.wait_until_serving(120)
        self.starting.clear()
