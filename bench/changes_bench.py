#!/usr/bin/env python3
"""The change stream beside a trainer: the lag of single rows, and the trainer's rate (docs/measurements.md).

  PYTHONPATH=build/python/package HOTBED_BIN=build/bin bench/changes_bench.py [--seconds 10] [--rows 1000]

Prints the rate of pushes of --rows rows without a stream and with 'hotbed table follow', and the time from the
answer to a push until the command has printed the push's marker row.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'tests', 'e2e'))
import local  # noqa: E402  (tests/e2e)

import hotbed  # noqa: E402

DIM = 16
TABLE_ROWS = 1_000_000


class Trainer:
    """Pushes random rows and one marker, id 0, whose row is the number of the push."""

    def __init__(self, table, rows):
        self.table, self.rows, self.step = table, rows, 0
        self.random = np.random.default_rng(1)
        self.answered = {}

    def run(self, seconds):
        values = np.full((self.rows, DIM), 0.5, np.float32)
        values[0] = -1.0  # with SGD at rate 1 the marker counts up
        begun, first = time.monotonic(), self.step
        while time.monotonic() - begun < seconds:
            ids = self.random.integers(1, TABLE_ROWS, self.rows, dtype=np.uint64)
            ids[0] = 0
            self.step += 1
            self.table.push(ids, values, step=self.step)
            self.answered[self.step] = time.monotonic()
        return (self.step - first) * self.rows / (time.monotonic() - begun)


def read(lines, printed):
    for line in lines:
        if '"id":0,' in line:
            printed[int(json.loads(line)['row'][0])] = time.monotonic()


def measure(up, seconds, rows):
    with hotbed.connect(f'hotbed://{up.coordinator}', session='bench') as client:
        table = client.create_table('bench', dim=DIM, rows=TABLE_ROWS, init='zero', optimizer=hotbed.optim.SGD(lr=1.0))
        trainer = Trainer(table, rows)
        trainer.run(1)
        alone = trainer.run(seconds)
        printed = {}
        command = [local.program('hotbed'), 'table', 'follow', 'bench', '--coordinator', up.coordinator]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=local.clean_environment()) as follow:
            reader = threading.Thread(target=read, args=(follow.stdout, printed))
            reader.start()
            local.eventually('the rows before', lambda: trainer.step in printed)
            followed = trainer.run(seconds)
            local.eventually('the last change', lambda: trainer.step in printed)
            follow.send_signal(signal.SIGINT)
            reader.join()
    # A marker that was passed over is told with the next one.
    lags, told = [], sorted(printed)
    for step, answered in trainer.answered.items():
        later = told[np.searchsorted(told, step):]
        if step > told[0] and len(later) > 0:
            lags.append(max(0.0, printed[later[0]] - answered))
    print(f'pushes of {rows} rows: {alone:.0f} rows/s alone, {followed:.0f} rows/s followed ({followed / alone:.2f})')
    p50, p99 = np.percentile(lags, [50, 99]) * 1e3
    print(f'lag of {len(lags)} pushes: p50 {p50:.0f} ms, p99 {p99:.0f} ms')


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--seconds', type=float, default=10)
    parser.add_argument('--rows', type=int, default=1000, help='per push')
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix='hotbed-bench-') as directory:
        up = local.Up(os.path.join(directory, 'data'), '--servers', 2, '--port', 0, '--host-bytes', '512MiB')
        try:
            measure(up, args.seconds, args.rows)
        finally:
            up.stop()


if __name__ == '__main__':
    main()
