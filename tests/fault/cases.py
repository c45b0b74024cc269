"""The command line of a test that consists of named cases, each a cluster in a directory of its own.

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


class Wrong(Exception):
    """Hotbed did not do what it promises."""


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
    parser.add_argument("--bin-dir", required=True)
    parser.add_argument("--case", default=",".join(cases))
    parser.add_argument("--seed", type=int, default=None)
    for flag, settings in (options or {}).items():
        parser.add_argument(flag, **settings)
    args = parser.parse_args()
    args.bin_dir = os.path.abspath(args.bin_dir)
    seed = args.seed if args.seed is not None else random.SystemRandom().randrange(1 << 31)
    print(f"seed {seed}", flush=True)
    own = "".join(f" {flag} {getattr(args, flag.strip('-').replace('-', '_'))}" for flag in (options or {}))
    results = []
    for case in args.case.split(","):
        replay = f"tests/fault/{os.path.basename(sys.argv[0])} --bin-dir {args.bin_dir}{own} --case {case} --seed {seed}"
        results.append(run_case(case, lambda directory: start(args, case, seed, directory), replay))
    return 0 if all(results) else 1
