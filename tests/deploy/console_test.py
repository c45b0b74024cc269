#!/usr/bin/env python3
"""The console in headless Chromium: under load, while a shard moves, and after a server was killed.

  console_test.py --bin-dir build/bin [--pictures DIR]

Exit status: 0 all well; anything else a failure. `--pictures` keeps what the browser has drawn, 1440 and 360 pixels wide, in light and dark.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "fault"))

from cluster import Cluster, run_command  # noqa: E402
from meter import Table  # noqa: E402

CHROMIUM = ("chromium", "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--virtual-time-budget=9000")


def browse(address, *flags, part=""):
    done = subprocess.run([*CHROMIUM, *flags, f"http://{address}/console{part}"], capture_output=True, text=True, timeout=120, check=True)
    return done.stdout


def check(page, *patterns):
    """The words of the page as a person reads them, in which each pattern is found."""
    text = re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", page))
    for pattern in patterns:
        if not re.search(pattern, text):
            raise RuntimeError(f"the console does not show '{pattern}': {text}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--bin-dir", required=True)
    parser.add_argument("--pictures")
    args = parser.parse_args()
    args.bin_dir = os.path.abspath(args.bin_dir)
    directory = tempfile.mkdtemp(prefix="hotbed_console_")
    cluster = Cluster(args.bin_dir, directory, 3, server_flags=("--host-bytes=256MiB",))
    try:
        cluster.start()
        table = Table(args.bin_dir, cluster.address, "clicks", 200_000, 32, "replicated=2", shards=60)
        logged = Table(args.bin_dir, cluster.address, "users", 200_000, 16, "log", shards=24)
        table.wait_for(2)
        loads = [t.meter("load", "--seconds=300", "--rate=50", "--ids=64", "--pull-flights=1", seed=seed)
                 for seed, t in enumerate((table, logged), 1)]
        away = next(s.name for s in cluster.servers if s.name not in logged.shards()[1]["members"])
        run_command(args.bin_dir, cluster.address, "shard", "move", "users/1", "--to", away)
        page = browse(cluster.coordinator_admin, "--window-size=1440,1300", "--dump-dom")
        check(page, "all well", "Servers live 3 of 3", r"Rows pushed [1-9][0-9.]*( k)?/s", r"s0 live host \S+ MiB of 256 MiB",
              "clicks, 60 shards", "users, 24 shards", "moved users/1", "replicated x 2")
        page = browse(cluster.coordinator_admin, "--window-size=1440,1300", "--dump-dom", part="#plan")
        check(page, r"(moves of \S+ \S+; the slowest server|The placement is good enough as it is)", r"Planned at .*, revision \d+",
              r"s0 live \S+ MiB \S+ MiB \S+ ms")
        for width in (1440, 360) if args.pictures else ():
            for colours in ("light", "dark"):
                for name, part in (("console", ""), ("console-plan", "#plan")):
                    browse(cluster.coordinator_admin, f"--window-size={width},{2100 if width > 1000 else 3600}",
                           f"--blink-settings=preferredColorScheme={int(colours == 'light')}",
                           f"--screenshot={os.path.join(args.pictures, f'{name}-{width}-{colours}.png')}", part=part)
        victim = cluster.servers[2]
        victim.kill()
        time.sleep(5)
        check(browse(cluster.coordinator_admin, "--window-size=360,2400", "--dump-dom"), "see below", "Servers live 2 of 3",
              rf"{victim.name} down", rf"server down {victim.name}|{victim.name}.*lease")
        cluster.coordinator.kill()
        cluster.coordinator.start()
        victim.start()
        table.wait_for(2)
        check(browse(cluster.coordinator_admin, "--window-size=1440,1300", "--dump-dom"), "Servers live 3 of 3", f"{victim.name} live")
        for load in loads:
            load.stop()
        return 0
    finally:
        cluster.stop()
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
