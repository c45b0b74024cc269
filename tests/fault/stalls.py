"""The causes of slow pushes: compares the checker's lines (tests/checker/slow_calls.h) with the faults at that time.

A push waits for its shards. A shard needs a member, a server that holds all acknowledged pushes, which the client reaches. Where a
member is missing, the shard also needs the coordinator, which alone can remove the member. The time in which a shard of the push
lacked either is accounted for by the faults. The rest, "otherwise", is Hotbed's own: until a loss is noticed and others have taken
over, until a server that is back has caught up, until a client has found the way. See docs/fault_tests.md.
"""

import json
import os

STEP_SECONDS = 0.1  # of the account
SHOWN_MAX = 12  # stalls in a report
AROUND_SECONDS = 6.0  # before a push was sent: what a report shows
NS = 1e9
# Faults of a server or the coordinator: nobody reaches it, it does nothing, or it may write nothing.
AWAY = ("kill", "kill_coordinator", "pause", "pause_coordinator", "isolate", "disk")
HOLDS_BACK = ("stall", "refuse")  # of what a proxy does


class Push:
    def __init__(self, client, step, sent, end):
        self.client = client
        self.step = step
        self.sent = sent
        self.end = end
        self.looks = []  # (when, shards not answered, the last that was heard of them)

    def took(self):
        return self.end - self.sent

    def waited_for(self, at):
        """The shards that had not answered by the next look; after the last one, at that."""
        for when, shards, _ in self.looks:
            if when >= at:
                return shards
        return self.looks[-1][1] if self.looks else []


def read_calls(directory, clients):
    """(pushes, seconds of the slow pulls). What a client still waited for when it was killed it sends again, as another push."""
    pushes, pulls = [], []
    for number in range(clients):
        path = f"{directory}/client-{number}.slow"
        if not os.path.exists(path):
            continue
        looks, of_client = {}, []  # looks by step
        with open(path, encoding="utf-8", errors="replace") as lines:
            for text in lines:
                try:
                    line = json.loads(text)
                except ValueError:  # torn by a kill
                    continue
                if line["call"] == "pull":
                    pulls.append((line["now_ns"] - line["sent_ns"]) / NS)
                elif "shards" in line:
                    looks.setdefault(line["step"], []).append((line["now_ns"] / NS, line["shards"], line["last"]))
                else:
                    of_client.append(Push(f"client {number}", line["step"], line["sent_ns"] / NS, line["now_ns"] / NS))
        for push in of_client:
            push.looks = [look for look in looks.get(push.step, []) if push.sent <= look[0] <= push.end]
        pushes += of_client
    return sorted(pushes, key=lambda p: p.sent), pulls


class Account:
    """The cause of each moment that a push waited."""

    def __init__(self, chronicle):
        self.chronicle = chronicle
        self.coordinator = chronicle.cluster.coordinator.name

    def faults_at(self, at):
        return [f for f in self.chronicle.faults if f.lasts(at)]

    @staticmethod
    def away(faults, name):
        return any(f.kind in AWAY and name in f.names or
                   f.kind == "proxy" and name in f.names and f.detail.startswith(HOLDS_BACK) for f in faults)

    @staticmethod
    def cut(faults, one, other):
        return any(f.kind == "cut" and set(f.names) == {one, other} for f in faults)

    def server_lacks(self, faults, server, client):
        if self.away(faults, server):
            return True
        return self.cut(faults, server, client) or self.cut(faults, server, self.coordinator)

    def shard_lacks(self, faults, shard, client, at):
        """The part that the shard lacks, or nothing."""
        record = self.chronicle.record_of(shard, at)
        if record is None:
            return ""
        gone = [m for m in record.members if self.server_lacks(faults, m, client)]
        if len(gone) == len(record.members):
            return f"{shard} lacks {' '.join(gone)}"
        decides = not self.away(faults, self.coordinator) and not self.cut(faults, self.coordinator, client)
        if gone and not decides:
            return f"{shard} lacks {' '.join(gone)}, and who decides that without it"
        return ""

    def lacks(self, push, at):
        faults = self.faults_at(at)
        if any(f.kind in ("pause_client", "kill_client") and push.client in f.names for f in faults):
            return f"{push.client} is away itself"
        for shard in push.waited_for(at):
            what = self.shard_lacks(faults, shard, push.client, at)
            if what:
                return what
        return ""

    def of(self, push):
        """(seconds otherwise, {what was lacking: seconds})."""
        otherwise, lacking = 0.0, {}
        at = push.sent
        while at < push.end:
            step = min(STEP_SECONDS, push.end - at)
            what = self.lacks(push, at + step / 2)
            if what:
                lacking[what] = lacking.get(what, 0.0) + step
            else:
                otherwise += step
            at += STEP_SECONDS
        return otherwise, lacking


class Report:
    def __init__(self, chronicle, calls):
        self.chronicle = chronicle
        self.pushes, self.pulls = calls
        account = Account(chronicle)
        self.accounts = [(push, *account.of(push)) for push in self.pushes]

    def otherwise_max(self):
        return max((otherwise for _, otherwise, _ in self.accounts), default=0.0)

    def summary(self):
        waited = [push for push, otherwise, _ in self.accounts if otherwise < push.took() / 2]
        return {"slow_pushes": len(self.pushes), "of_them_waited_for_servers": len(waited),
                "longest_waited_for_servers_s": round(max((p.took() for p in waited), default=0.0), 1),
                "longest_otherwise_s": round(self.otherwise_max(), 1),
                "slow_pulls": len(self.pulls)}

    def _stalls(self):
        """Pushes that overlap, as one: the first that was sent, with the longest wait otherwise among them."""
        groups = []
        for account in self.accounts:
            if groups and account[0].sent < groups[-1]["end"]:
                group = groups[-1]
                group["end"] = max(group["end"], account[0].end)
                group["pushes"] += 1
                if account[1] > group["worst"][1]:
                    group["worst"] = account
            else:
                groups.append({"end": account[0].end, "pushes": 1, "worst": account})
        return groups

    def lines(self):
        groups = self._stalls()
        shown = sorted(groups, key=lambda g: -g["worst"][1])[:SHOWN_MAX]
        if len(groups) > len(shown):
            yield f"{len(groups)} stalls; shown are the {len(shown)} with the longest waits that nothing accounts for"
        for group in sorted(shown, key=lambda g: g["worst"][0].sent):
            yield from self._tell(group)

    def _tell(self, group):
        push, otherwise, lacking = group["worst"]
        zero = push.sent
        yield (f"--- {group['pushes']} slow pushes; of them step {push.step} of {push.client} took {push.took():.1f} s, "
               f"{otherwise:.1f} s of it otherwise")
        for what, seconds in sorted(lacking.items(), key=lambda item: -item[1]):
            yield f"    {seconds:5.1f} s: {what}"
        told = []
        shards = sorted({shard for _, waits, _ in push.looks for shard in waits})
        for when, waits, last in push.looks:
            told.append((when, f"waits for {' '.join(waits)}; {last}"))
        told += [(f.begin, f"{f}{'' if f.end is None else f', for {f.end - f.begin:.1f} s'}") for f in self.chronicle.faults
                 if f.begin < push.end and (f.end is None or f.end > zero - AROUND_SECONDS)]
        told += [(when, f"coordinator: {kind}: {text}") for when, kind, text in self.chronicle.events.values()
                 if zero - AROUND_SECONDS < when < push.end + 1]
        for shard in shards:
            told += [(r.since, f"{shard}: {r.text}") for r in self.chronicle.records.get(shard, [])
                     if zero - AROUND_SECONDS < r.since < push.end + 1]
            first = self.chronicle.record_of(shard, zero - AROUND_SECONDS)
            if first is not None:
                told.append((zero - AROUND_SECONDS, f"{shard}: {first.text}"))
        for when, text in sorted(told):
            yield f"    {when - zero:+7.2f} s  {text}"
