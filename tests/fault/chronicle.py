"""The faults of a cluster and the holders of each shard, over the time of a run: for stalls.py.

Times are seconds of CLOCK_BOOTTIME, as those of the checker's clients.
"""

import threading
import time

LOOK_SECONDS = 0.5
ANSWER_SECONDS_MAX = 2.0


def now():
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Fault:
    """`kind` of a nemesis, upon `names` of processes; a cut: from whom, to whom. `end` None: it lasts."""

    def __init__(self, kind, names, detail=""):
        self.kind = kind
        self.names = tuple(names)
        self.detail = detail
        self.begin = now()
        self.end = None

    def lasts(self, at):
        return self.begin <= at and (self.end is None or at < self.end)

    def __str__(self):
        return " ".join([self.kind, *self.names, self.detail]).strip()


class Record:
    """The holders of a shard from `since` on, by the names of servers."""

    def __init__(self, since, shard, names):
        name = lambda member: f"{names.get(member['server'], member['server'])}/{member['incarnation']}"
        server = lambda member: names.get(member["server"], member["server"])
        self.since = since
        self.epoch = int(shard["epoch"])
        self.active = shard["active"]
        self.primary = server(shard["primary"])
        self.members = [server(m) for m in shard["members"]]
        self.learners = [server(m) for m in shard["learners"]]
        self.text = (f"epoch {self.epoch}{'' if self.active else ' not active'}, primary {name(shard['primary'])}, "
                     f"members {' '.join(map(name, shard['members']))}, "
                     f"learners {' '.join(map(name, shard['learners'])) or '-'}")


class Chronicle:
    """begin() and end() from one thread; the coordinator is looked at by one of its own between start() and stop()."""

    def __init__(self, cluster):
        self.cluster = cluster
        self.faults = []
        self.records = {}  # shard -> its Records, the oldest first
        self.events = {}  # number -> (when, kind, text)
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self._watch, daemon=True)

    def begin(self, kind, names, detail=""):
        self.faults.append(Fault(kind, names, detail))
        return self.faults[-1]

    @staticmethod
    def end(fault):
        if fault.end is None:
            fault.end = now()

    def start(self):
        self.thread.start()

    def stop(self):
        self.ended.set()
        if self.thread.is_alive():
            self.thread.join()

    def take_events(self, events):
        """As `hotbed events -o json` gives them."""
        ahead = time.time() - now()
        for event in events:
            self.events[event["number"]] = (event["unix_ms"] / 1000 - ahead, event["kind"], event["text"])

    def _watch(self):
        while not self.ended.wait(LOOK_SECONDS):
            try:
                status = self.cluster.status_of(self.cluster.coordinator_admin, ANSWER_SECONDS_MAX)
            except (OSError, ValueError):  # it is down, or paused: nobody else writes records
                continue
            if status.get("serving"):
                self._take_map(status["map"])

    def _take_map(self, cluster_map):
        at = now()
        tables = {t["id"]: t["name"] for t in cluster_map["tables"]}
        names = {s["server"]: s["name"] for s in cluster_map["servers"]}
        for shard in cluster_map["shards"]:
            table, index = divmod(int(shard["shard"]), 1 << 32)
            name = f"{tables.get(table, table)}/{index}"
            known = self.records.setdefault(name, [])
            record = Record(at, shard, names)
            if not known or known[-1].text != record.text:
                known.append(record)

    def record_of(self, shard, at):
        """The last that was seen by then; None: none was."""
        found = None
        for record in self.records.get(shard, []):
            if record.since > at:
                break
            found = record
        return found
