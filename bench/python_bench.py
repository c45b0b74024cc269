#!/usr/bin/env python3
"""The Python package beside the C++ client: pulls and pushes of 2,048 ids x 64 on one server of this machine.

python_bench.py [--seconds S] [--rounds N], with PYTHONPATH=build/python/package and HOTBED_BIN=build/bin (./dev build).
Runs of `hotbed bench` and of Python take turns; the ratio is that of the medians. Then the time of an import.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np

import hotbed

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'tests', 'e2e'))
import local  # noqa: E402  (tests/e2e)

ROWS, DIM, BATCH = 1_000_000, 64, 2048


def compiled(kind, coordinator, seconds):
    """Rows per second of the C++ client."""
    code, out, err = local.run('hotbed', 'bench', kind, '--coordinator', coordinator, '--tables', 1, '--dim', DIM, '--rows', ROWS,
                               '--batch', BATCH, '--in-flight', 1, '--seconds', seconds, '-o', 'json', timeout=300)
    if code != 0:
        raise SystemExit(err)
    return json.loads(out)['rows_per_s'] if 'rows_per_s' in json.loads(out) else out


def python(table, kind, seconds, random, step):
    batches = [random.integers(0, ROWS, BATCH) for _ in range(16)]
    rows = np.zeros((BATCH, DIM), np.float32)
    calls, begin = 0, time.perf_counter()
    while time.perf_counter() - begin < seconds:
        ids = batches[calls % 16]
        if kind == 'pull':
            table.pull(ids, rows)
        else:
            step += 1
            table.push(ids, rows, step=step)
        calls += 1
    return calls * BATCH / (time.perf_counter() - begin), step


def main():
    parser = argparse.ArgumentParser(description=__doc__.split('\n', maxsplit=1)[0])
    parser.add_argument('--seconds', type=float, default=2)
    parser.add_argument('--rounds', type=int, default=5)
    arguments = parser.parse_args()
    random = np.random.default_rng(1)
    step = 0
    with tempfile.TemporaryDirectory() as directory:
        up = local.Up(directory, '--servers', 1, '--port', 0)
        try:
            with hotbed.connect(f'hotbed://{up.coordinator}') as client:
                table = client.create_table('python', dim=DIM, rows=ROWS, optimizer=hotbed.optim.SGD(lr=0.01))
                for kind in ('pull', 'push'):
                    cpp, own = [], []
                    for _ in range(arguments.rounds):
                        cpp.append(compiled(kind, up.coordinator, arguments.seconds))
                        rate, step = python(table, kind, arguments.seconds, random, step)
                        own.append(rate)
                    ratio = statistics.median(own) / statistics.median(cpp)
                    print(f'{kind}: Python {statistics.median(own):,.0f} rows/s, C++ {statistics.median(cpp):,.0f}, ratio {ratio:.2f}')
        finally:
            up.stop()
    program = 'import time, numpy; b = time.perf_counter(); import hotbed; print(time.perf_counter() - b)'
    times = [float(subprocess.run([sys.executable, '-c', program], check=True, capture_output=True, text=True).stdout)
             for _ in range(9)]
    print(f'import beyond numpy: {1e3 * statistics.median(times):.0f} ms')


if __name__ == '__main__':
    main()
