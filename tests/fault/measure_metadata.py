#!/usr/bin/env python3
"""1,000 tables with 100,000 shards in three members of etcd: creation, and take-over by another coordinator.

  measure_metadata.py --bin-dir build/bin [--tables 1000] [--shards 100] [--members 3]

Runs metadata_bench, which says what it counts; bars: 60 s and 5 s. Exit status: that of the bench.
"""

import argparse
import shutil
import subprocess
import sys
import tempfile

from cluster import start_etcd_members


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin-dir", default="build/bin")
    parser.add_argument("--tables", type=int, default=1000)
    parser.add_argument("--shards", type=int, default=100)
    parser.add_argument("--members", type=int, default=3)
    args = parser.parse_args()
    directory = tempfile.mkdtemp(prefix="hotbed-metadata-")
    members, ports = start_etcd_members(directory, args.members)
    try:
        where = ",".join(f"127.0.0.1:{port}" for port in ports)
        done = subprocess.run([f"{args.bin_dir}/metadata_bench", f"--metadata=etcd://{where}", f"--tables={args.tables}",
                               f"--shards={args.shards}"], check=False)
        return done.returncode
    finally:
        for member in members:
            member.kill()
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
