"""Moves shards back and forth, splits some and merges neighbours during a run, through the command line program, and
counts the outcomes."""

import collections
import random
import threading


SPLIT_SHARE = 0.3
MERGE_SHARE = 0.3


class Mover:
    """One thread. A move that is refused (a server that is down, a shard that moves already) is counted and passed over."""

    def __init__(self, cluster, seed, pause, shards_max=4, drain_share=0.0, splits_max=0):
        self.cluster = cluster
        self.random = random.Random(seed)
        self.pause = pause  # seconds from a request to the next
        self.shards_max = shards_max  # of one request
        self.drain_share = drain_share
        self.asked = 0  # moves
        self.done = 0  # of those: the shard's primary was seen to be where it was to go
        self.wanted = {}  # shard -> the server that it was last asked to go to
        self.drains = 0
        self.splits_max = splits_max
        self.splits = 0  # asked for
        self.merges = 0  # asked for; at most as many as splits
        self.events = collections.Counter()  # of the coordinator, by kind
        self.event_seen = 0
        self.refused = collections.Counter()  # by the first words of the error
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self._run, daemon=True)

    def start(self):
        self.thread.start()

    def stop(self):
        self.ended.set()
        self.thread.join()

    def _run(self):
        while not self.ended.wait(self.random.uniform(0.2, 2 * self.pause)):
            try:
                self._tally()
                if self.random.random() < self.drain_share:
                    self._drain()
                elif self.splits < self.splits_max and self.random.random() < SPLIT_SHARE:
                    self._split()
                elif self.merges < self.splits and self.random.random() < MERGE_SHARE:
                    self._merge()
                else:
                    self._move()
            except Exception as error:  # the cluster is being broken on purpose
                self._refuse(str(error))

    def _refuse(self, why):
        self.refused[" ".join(why.strip().split()[:8])] += 1

    def _shards(self):
        shards = self.cluster.json("shard", "list", "--timeout=5s", seconds=20)
        for shard in shards:
            if self.wanted.get(shard["shard"]) == shard["primary"]:
                del self.wanted[shard["shard"]]
                self.done += 1
        return shards

    def _tally(self):
        for event in self.cluster.json("events", "--after", self.event_seen, "--limit", 4096, "--timeout=5s", seconds=20):
            if event["number"] > self.event_seen:
                self.event_seen = event["number"]
                self.events[event["kind"]] += 1

    def counts(self):
        """For a run's summary."""
        try:
            self._shards()
            self._tally()
        except Exception as error:
            self._refuse(str(error))
        return {"moves_asked": self.asked, "moves_done": self.done, "drains": self.drains, "splits_asked": self.splits,
                "splits_done": self.events["shard_cut"], "merges_asked": self.merges,
                "merges_done": self.events["shards_merged"], "events": dict(self.events),
                "refused": dict(self.refused.most_common(8))}

    def _move(self):
        shards = self._shards()
        chosen = self.random.sample(shards, min(len(shards), self.random.randint(1, self.shards_max)))
        to = self.random.choice(self.cluster.servers).name
        names = [s["shard"] for s in chosen if s["primary"] != to]
        if not names:
            return
        status, _, err = self.cluster.run("shard", "move", *names, "--to", to, "--no-wait", "--timeout=5s", seconds=20)
        if status == 0:
            self.asked += len(names)
            self.wanted.update(dict.fromkeys(names, to))
        else:
            self._refuse(err)

    def _split(self):
        name = self.random.choice(self._shards())["shard"]
        status, _, err = self.cluster.run("shard", "split", name, "--no-wait", "--timeout=5s", seconds=20)
        if status == 0:
            self.splits += 1
        else:
            self._refuse(err)

    def _merge(self):
        """Of two neighbours on the same servers; after a split there are some."""
        def table(shard):
            return shard["shard"].split("/")[0]
        shards = sorted(self._shards(), key=lambda s: (table(s), s["range"][0]))
        pairs = [(lower, upper) for lower, upper in zip(shards, shards[1:])
                 if table(lower) == table(upper) and lower["range"][1] == upper["range"][0]
                 and lower["primary"] == upper["primary"] and sorted(lower["members"]) == sorted(upper["members"])]
        if not pairs:
            return
        lower, upper = self.random.choice(pairs)
        status, _, err = self.cluster.run("shard", "merge", lower["shard"], "--with", upper["shard"].split("/")[1],
                                          "--no-wait", "--timeout=5s", seconds=20)
        if status == 0:
            self.merges += 1
        else:
            self._refuse(err)

    def _drain(self):
        server = self.random.choice(self.cluster.servers).name
        status, _, err = self.cluster.run("shard", "drain", server, "--no-wait", "--timeout=5s", seconds=20)
        if status != 0:
            self._refuse(err)
            return
        self.drains += 1
        self.ended.wait(self.random.uniform(2, 10))
        while not self.ended.is_set():
            if self.cluster.run("shard", "drain", server, "--undo", "--timeout=5s", seconds=20)[0] == 0:
                return
            self.ended.wait(0.5)

    def undo_drains(self):
        """After the run: every server takes shards again."""
        for server in self.cluster.servers:
            self.cluster.run("shard", "drain", server.name, "--undo", "--timeout=10s")
