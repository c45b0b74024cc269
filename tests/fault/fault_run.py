"""One run: a cluster on a network of hosts, clients that push and pull, nemeses; in the end every weight is compared.

The order of a run: cluster, tables, clients; nemeses and moves for so long; heal; everything serves and each client gets on
within HEAL_SECONDS_MAX; the clients end with all applied; exact comparison; and where tables have replicas, each server in turn is
killed and what the others hold is compared again.
"""

import os
import random
import shutil
import subprocess
import tempfile
import time

import nemesis
import promises
import stalls
from chronicle import Chronicle
from checker import BROKEN, DIFFERENT, EXACT, Checker, Found
from mover import Mover
from net_cluster import NetCluster
from network import Network

HEAL_SECONDS_BAR = 10  # a bar for a quiet machine: reported, not enforced
HEAL_SECONDS_MAX = 60  # beyond it the run fails


class FaultRun:
    def __init__(self, args, seed):
        self.args = args
        self.seed = seed
        self.random = random.Random(seed)
        self.directory = tempfile.mkdtemp(prefix="hotbed_fault_")
        self.network = Network()
        env = {"HOTBED_PLANTED_BUG": args.expect_failure} if args.expect_failure else None
        self.cluster = NetCluster(args.bin_dir, self.directory, self.network, args.servers, args.server_binary,
                                  args.server_flag, args.coordinator_flag, env, seed=seed,
                                  proxied_from=args.servers - args.proxied)
        hosts = [self.network.host() for _ in range(args.clients)]
        self.checker = Checker(args.bin_dir, self.directory, self.cluster.address, seed, args.clients, args.rows, args.dim,
                               args.tables, args.flights, hosts, slow_ms=1000 * args.slow_seconds)
        self.chronicle = Chronicle(self.cluster)
        nemeses = [nemesis.ALL[name]() for name in args.nemesis.split(",") if name]
        self.rig = nemesis.Rig(self.network, self.cluster, self.checker, self.random, nemeses, args.pause_max,
                               self.chronicle)
        self.promise_watch = promises.PromiseWatch()
        self.mover = Mover(self.cluster, seed, args.move_pause, drain_share=args.drain_share,
                           splits_max=args.splits_max) if args.move_pause else None
        self.summary = {"seed": seed, "difference": None}

    def run(self, each=lambda run: None):
        """EXACT, DIFFERENT or BROKEN; prints why. `each(run)` is called between strikes."""
        begin = time.monotonic()
        try:
            found = self._judge_stalls(self._found(each))
            if found == BROKEN and self.args.hold:
                print(f"everything stays as it is for {self.args.hold:g} s, to be looked at", flush=True)
                time.sleep(self.args.hold)
        finally:
            if self.mover:
                self.mover.ended.set()
            self.chronicle.stop()
            self.checker.kill()
            self.cluster.stop()
            self.network.close()
        self.summary.update(result=found, seconds=round(time.monotonic() - begin, 1))
        self._keep_or_remove(found)
        return found

    def _found(self, each):
        try:
            return self._phases(each)
        except Found as told:
            print(told, flush=True)
            # The cluster's own comparison of replicas sees many a planted bug before the clients do.
            seen = self.args.expect_failure and "differs from its primary's" in str(told)
            return DIFFERENT if seen else told.status
        except (RuntimeError, OSError, subprocess.SubprocessError) as error:
            print(error, flush=True)
            return BROKEN

    def _phases(self, each):
        self.cluster.start()
        self.checker.create()
        self.checker.start()
        self.checker.wait_for_steps(5, 60)
        if self.args.slow_seconds:
            self.chronicle.start()
        if self.mover:
            self.mover.start()
        try:
            self.rig.work(self.args.seconds, lambda: (self._check_workers(), each(self)))
        finally:
            if self.mover:
                self.mover.stop()
            self._count()
        self.rig.heal()
        if self.mover:
            self.mover.undo_drains()
        self._get_well()
        return self._compare()

    def _check_workers(self):
        status, said = self.checker.status()
        if status != EXACT:
            raise Found(status, said)
        for server in self.cluster.servers:
            self._nothing_wrong(self.promise_watch.look(server.name, f"{server.data_dir}/PROMISES"))

    def _check_promises(self):
        """With everything healed: what each member promised is on its disk."""
        shards = self.cluster.json("shard", "list")
        ids = {t["name"]: t["id"] for t in self.cluster.json("table", "list")}
        for server in self.cluster.servers:
            self._nothing_wrong(promises.below_records(server.name, f"{server.data_dir}/PROMISES", shards, ids))

    def _nothing_wrong(self, wrong):
        if wrong:
            raise Found(DIFFERENT, "\n".join(wrong[:10]))

    def _get_well(self):
        seconds = self.cluster.wait_ready(HEAL_SECONDS_MAX)
        self._check_workers()
        seconds += self.checker.wait_for_steps(self.args.flights + 1, HEAL_SECONDS_MAX)
        status, said = self.checker.finish(HEAL_SECONDS_MAX)
        if status != EXACT:
            raise Found(status, said)
        self._check_promises()
        self.summary["healed_s"] = round(seconds, 2)
        print(f"all served and every client got on {seconds:.1f} s after the end of all faults (bar {HEAL_SECONDS_BAR} s)")

    def _compare(self):
        status, said = self.checker.verify()
        print(said, flush=True)
        self.summary["difference"] = 0 if status == EXACT else said
        if status != EXACT or not self.args.verify_replicas:
            return status
        self.summary["all_replicas_s"] = round(self.cluster.wait_for_replicas(HEAL_SECONDS_MAX), 2)
        for server in self.cluster.servers:
            server.kill()
            status, said = self.checker.verify("verify-replicas")
            print(f"without {server.name}: {said}", flush=True)
            if status != EXACT:
                self.summary["difference"] = said
                return status
            server.start()
            self.cluster.wait_ready(HEAL_SECONDS_MAX)
            self.cluster.wait_for_replicas(HEAL_SECONDS_MAX)
        return EXACT

    def _judge_stalls(self, found):
        """Tells what slow pushes waited for; one that waited for too long breaks a run that is exact."""
        if not self.args.slow_seconds:
            return found
        self.chronicle.stop()
        try:
            self.chronicle.take_events(self.cluster.json("events", "--limit", 4096, "--timeout=10s"))
        except (RuntimeError, subprocess.SubprocessError) as error:
            print(f"without the coordinator's events: {error}", flush=True)
        report = stalls.Report(self.chronicle, stalls.read_calls(self.directory, self.args.clients))
        for line in report.lines():
            print(line, flush=True)
        self.summary.update(report.summary())
        longest = report.otherwise_max()
        if found != EXACT or not 0 < self.args.otherwise_max < longest:
            return found
        print(f"a push waited for {longest:.1f} s while what it needed was there; at most {self.args.otherwise_max:g} s may pass")
        return BROKEN

    def _count(self):
        """Before the run's own end, which stops everything with a kill."""
        progress = self.checker.progress()
        self.summary.update(
            strikes=dict(self.rig.strikes),
            kills=sum(p.kills for p in self.cluster.processes()) + sum(w.kills for w in self.checker.workers),
            pauses=sum(p.pauses for p in self.cluster.processes()) + sum(w.pauses for w in self.checker.workers),
            steps_acknowledged=progress["steps"],
            pushes_acknowledged=progress["pushes"],
            pulls=progress["pulls"],
            rows_read=progress["rows_read"],
            indeterminate=progress["indeterminate"],
            errors_seen=progress["errors"],
            longest_push_s=round(progress["push_max_us"] / 1e6, 2),
            longest_pull_s=round(progress["pull_max_us"] / 1e6, 2),
            retries=progress["retries"],
            wrong_epoch=progress["wrong_epoch"])
        if self.mover:
            self.summary.update(self.mover.counts())

    def _keep_or_remove(self, found):
        if found == EXACT or (self.args.expect_failure and found == DIFFERENT):
            shutil.rmtree(self.directory, ignore_errors=True)
            return
        for process in [*self.cluster.processes(), *self.checker.workers]:
            if os.path.exists(process.log_path):
                print(f"--- {process.name}, the end of its log\n{process.tail(15)}")
        print(f"everything is left in {self.directory}", flush=True)


def add_arguments(parser):
    parser.add_argument("--bin-dir", required=True)
    parser.add_argument("--server-binary", default="hotbed-server")
    parser.add_argument("--server-flag", action="append", default=[], help="passed on to every server")
    parser.add_argument("--coordinator-flag", action="append", default=[], help="passed on to the coordinator")
    parser.add_argument("--servers", type=int, default=3)
    parser.add_argument("--clients", type=int, default=3)
    parser.add_argument("--rows", type=int, default=20000)
    parser.add_argument("--dim", type=int, default=64)
    parser.add_argument("--tables", default="log,log-hashed", help="kinds: log, r2, r3, dp, each also with -hashed")
    parser.add_argument("--flights", type=int, default=4, help="steps in flight of each client")
    parser.add_argument("--nemesis", default="kill,kill_coordinator,kill_client,pause,pause_coordinator,pause_client,cut,isolate,disk",
                        help=f"of {', '.join(nemesis.ALL)}")
    parser.add_argument("--pause-max", type=float, default=2.0, help="seconds from a strike to the next")
    parser.add_argument("--proxied", type=int, default=0,
                        help="of so many servers: TCP proxies between them and everybody")
    parser.add_argument("--move-pause", type=float, default=0, help="mean seconds from a move to the next; 0: none")
    parser.add_argument("--splits-max", type=int, default=0, help="shards that are split between moves, at most")
    parser.add_argument("--drain-share", type=float, default=0.0, help="of the requests to move, those that drain a server")
    parser.add_argument("--verify-replicas", action="store_true",
                        help="after the comparison, kill each server in turn and compare what the others hold")
    parser.add_argument("--slow-seconds", type=float, default=0,
                        help="tell of calls that took longer what they waited for; 0: of none")
    parser.add_argument("--otherwise-max", type=float, default=0, metavar="SECONDS",
                        help="the run fails if a push waits longer while what it needs is there; 0: no bound")
    parser.add_argument("--hold", type=float, default=0, metavar="SECONDS", help="keep a broken run for so long, to look at it")
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--expect-failure", metavar="BUG", default="")


def check_arguments(parser, args):
    args.bin_dir = os.path.abspath(args.bin_dir)
    for name in args.nemesis.split(","):
        if name and name not in nemesis.ALL:
            parser.error(f'unknown nemesis "{name}"; there are: {", ".join(nemesis.ALL)}')
    if "proxy" in args.nemesis.split(",") and not args.proxied:
        args.proxied = args.servers
    if args.seed is None:
        args.seed = random.SystemRandom().randrange(1 << 31)
