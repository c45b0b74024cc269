#!/usr/bin/env python3
"""The change stream beside a trainer: the lag of single rows, and the trainer's rate (docs/measurements.md).

  PYTHONPATH=build/python/package HOTBED_BIN=build/bin bench/changes_bench.py [--seconds 10] [--rows 1000] [--rate 200]

Prints the rate of pushes of --rows rows without a stream and with one in a process of its own, at most --rate per second
(0: as fast as they are answered), and the time from the answer to a push until the stream has told the push's marker row.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'tests', 'e2e'))
import local  # noqa: E402  (tests/e2e)

import hotbed  # noqa: E402

DIM = 16
TABLE_ROWS = 1_000_000


class Trainer:
    """Pushes random rows and one marker, id 0, whose row is the number of the push."""

    def __init__(self, table, rows, rate):
        self.table, self.rows, self.step = table, rows, 0
        self.pause = 1 / rate if rate else 0
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
            time.sleep(max(0.0, begun + (self.step - first) * self.pause - time.monotonic()))
        return (self.step - first) * self.rows / (time.monotonic() - begun)


def follow(target):
    """The other process: a line per marker, its number and when it was told; ends with its stdin."""
    stream = hotbed.follow(target, 'bench')
    told = 0
    while True:
        found = stream.next(1.0)
        now = time.monotonic()
        if found is None:
            continue
        told += len(found.ids)
        at = np.flatnonzero(found.ids == 0)
        if len(at) > 0:
            print(int(found.rows[at[-1]][0]), now, told, flush=True)


def measure(up, args):
    target = f'hotbed://{up.coordinator}'
    with hotbed.connect(target, session='bench') as client:
        table = client.create_table('bench', dim=DIM, rows=TABLE_ROWS, init='zero', optimizer=hotbed.optim.SGD(lr=1.0))
        trainer = Trainer(table, args.rows, args.rate)
        trainer.run(1)
        alone = trainer.run(args.seconds)
        with tempfile.TemporaryFile('w+') as out, \
                subprocess.Popen([sys.executable, __file__, '--follow', target], stdout=out) as reader:
            def told():
                out.seek(0)
                return [line.split() for line in out.read().splitlines()]
            local.eventually('the rows before', lambda: told() and int(told()[-1][0]) >= trainer.step)
            trainer.run(3)  # the rows of the other shards are listed as well
            followed = trainer.run(args.seconds)
            local.eventually('the last change', lambda: int(told()[-1][0]) >= trainer.step)
            reader.terminate()
            lines = told()
    # A marker that was passed over is told with the next one.
    numbers = np.array([int(line[0]) for line in lines])
    times = np.array([float(line[1]) for line in lines])
    steps = [step for step in trainer.answered if step > numbers[0]]
    steps = steps[-int(followed * args.seconds / args.rows):]
    lags = [max(0.0, times[np.searchsorted(numbers, step)] - trainer.answered[step]) for step in steps]
    print(f'pushes of {args.rows} rows: {alone:.0f} rows/s alone, {followed:.0f} rows/s followed ({followed / alone:.2f}); '
          f'{int(lines[-1][2])} rows told')
    p50, p99 = np.percentile(lags, [50, 99]) * 1e3
    print(f'lag of {len(lags)} pushes: p50 {p50:.0f} ms, p99 {p99:.0f} ms')


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--seconds', type=float, default=10)
    parser.add_argument('--rows', type=int, default=1000, help='per push')
    parser.add_argument('--rate', type=float, default=200, help='pushes per second at most; 0: no limit')
    parser.add_argument('--follow', help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.follow:
        follow(args.follow)
        return
    with tempfile.TemporaryDirectory(prefix='hotbed-bench-') as directory:
        up = local.Up(os.path.join(directory, 'data'), '--servers', 2, '--port', 0, '--host-bytes', '512MiB')
        try:
            measure(up, args)
        finally:
            up.stop()


if __name__ == '__main__':
    main()
