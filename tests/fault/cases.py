"""The command lines of tests of a cluster in a directory of its own: of one story (main_of_story), or of named cases (main).

A run of a case has run(), which returns a line on what happened or raises Wrong; stop(); and evidence(), the text that helps to
understand a failure.
"""

import argparse
import os
import random
import shutil
import subprocess
import sys
import tempfile

import sandbox
from net_cluster import NetCluster
from network import Network


class Wrong(Exception):
    """Hotbed did not do what it promises."""


def take_arguments(parser):
    """The arguments, and the seed: that of --seed, or a new one."""
    parser.add_argument("--bin-dir", required=True)
    parser.add_argument("--seed", type=int, default=None)
    args = parser.parse_args()
    args.bin_dir = os.path.abspath(args.bin_dir)
    return args, args.seed if args.seed is not None else random.SystemRandom().randrange(1 << 31)


def main_of_story(doc, run, options=None):
    """Runs run(args, seed, cluster, network, directory) with a NetCluster. Without root, ends as skipped. `options`: as of main.
    Returns the exit status."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--servers", type=int, default=3)
    for flag, settings in (options or {}).items():
        parser.add_argument(flag, **settings)
    args, seed = take_arguments(parser)
    sandbox.enter()
    print(f"seed {seed}; replay: {' '.join(sys.argv)} --seed={seed}", flush=True)
    directory = tempfile.mkdtemp(prefix="hotbed_story_")
    network = Network()
    cluster = NetCluster(args.bin_dir, directory, network, args.servers, server_flags=("--host-bytes=64MiB",))
    try:
        run(args, seed, cluster, network, directory)
        return 0
    except RuntimeError as error:
        print(error)
        return 1
    finally:
        cluster.stop()
        shutil.rmtree(directory, ignore_errors=True)


def run_case(case, start, replay):
    """Whether the case passed. start(directory) begins a run."""
    directory = tempfile.mkdtemp(prefix="hotbed_case_")
    run = start(directory)
    try:
        print(f"{case}: {run.run()}", flush=True)
        return True
    except (Wrong, RuntimeError, subprocess.SubprocessError) as error:
        print(f"{case}: {error}\nreplay: {replay}\n{run.evidence()}", flush=True)
        return False
    finally:
        run.stop()
        shutil.rmtree(directory, ignore_errors=True)


def main(doc, cases, start, options=None):
    """Runs the cases that --case names. start(args, case, seed, directory) begins a run; `options` maps flags of the test's own
    to the arguments of add_argument. Returns the exit status."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--case", default=",".join(cases))
    for flag, settings in (options or {}).items():
        parser.add_argument(flag, **settings)
    args, seed = take_arguments(parser)
    print(f"seed {seed}", flush=True)
    own = "".join(f" {flag} {getattr(args, flag.strip('-').replace('-', '_'))}" for flag in (options or {}))
    results = []
    for case in args.case.split(","):
        replay = f"tests/fault/{os.path.basename(sys.argv[0])} --bin-dir {args.bin_dir}{own} --case {case} --seed {seed}"
        results.append(run_case(case, lambda directory: start(args, case, seed, directory), replay))
    return 0 if all(results) else 1
