#!/usr/bin/env python3
"""Saves and restores a table beside the disk in the same run, and the pushes while a save runs (docs/measurements.md).

  PYTHONPATH=build/python/package HOTBED_BIN=build/bin bench/checkpoint_bench.py [--mib 1024] [--servers 3] [--dir D]

Prints one line per figure. The disk: a file of as many bytes written in blocks of 1 MiB and synced, the better of two.
"""

import argparse
import os
import shutil
import sys
import tempfile
import threading
import time

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'tests', 'e2e'))
import local  # noqa: E402  (tests/e2e)

import hotbed  # noqa: E402

DIM = 64
PUSH_ROWS = 1000


def disk_mib_per_s(directory, mib):
    block, path = os.urandom(1 << 20), os.path.join(directory, 'roof')
    best = 0.0
    for _ in range(2):
        begun = time.monotonic()
        with open(path, 'wb', buffering=0) as file:
            for _ in range(mib):
                file.write(block)
            os.fsync(file.fileno())
        best = max(best, mib / (time.monotonic() - begun))
        os.remove(path)
    return best


class Pushes:
    """A trainer that pushes random rows, one push after the other."""

    def __init__(self, table, rows, first_step):
        self.table, self.rows, self.step = table, rows, first_step
        self.random = np.random.default_rng(1)
        self.seconds = []

    def run_until(self, over):
        values = np.full((PUSH_ROWS, DIM), 0.01, np.float32)
        self.seconds = []
        begun = time.monotonic()
        while not over():
            ids = self.random.integers(0, self.rows, PUSH_ROWS, dtype=np.uint64)
            start = time.monotonic()
            self.table.push(ids, values, step=self.step)
            self.seconds.append(time.monotonic() - start)
            self.step += 1
        return len(self.seconds) / (time.monotonic() - begun), float(np.percentile(self.seconds, 99))


def fill(table, rows, step):
    values = np.random.default_rng(0).standard_normal((1 << 16, DIM)).astype(np.float32)
    for first in range(0, rows, 1 << 16):
        ids = np.arange(first, min(rows, first + (1 << 16)), dtype=np.uint64)
        table.push(ids, values[:len(ids)], step=step)
        step += 1
    return step


def measure_series(up, pushes, place):
    """Incremental saves after one row in a hundred has changed: at once, and when the servers have had time to compact."""
    full = up.json('checkpoint', 'save', place, '--incremental', timeout=600)
    for what, pause in (('at once', 0), ('after 20 s', 20)):
        ids = pushes.random.choice(pushes.rows, pushes.rows // 100, replace=False).astype(np.uint64)
        for first in range(0, len(ids), PUSH_ROWS):
            part = ids[first:first + PUSH_ROWS]
            pushes.table.push(part, np.full((len(part), DIM), 0.01, np.float32), step=pushes.step)
            pushes.step += 1
        time.sleep(pause)
        changed = up.json('checkpoint', 'save', place, '--incremental', timeout=600)
        print(f"incremental save of 1 % of the rows, {what}: {changed['bytes'] / full['bytes']:.3f} of the bytes and "
              f"{changed['seconds'] / full['seconds']:.3f} of the time of a full one ({changed['seconds']:.2f} of {full['seconds']:.2f} s)",
              flush=True)


def measure(up, directory, mib):
    rows = mib * 2**20 // (4 * DIM)
    saved = os.path.join(directory, 'saved')
    with hotbed.connect(f'hotbed://{up.coordinator}', session='bench') as client:
        table = client.create_table('bench', dim=DIM, rows=rows, optimizer=hotbed.optim.SGD(lr=0.01))
        pushes = Pushes(table, rows, fill(table, rows, 1))
        rate, p99 = pushes.run_until(lambda limit=time.monotonic() + 10: time.monotonic() > limit)
        print(f'pushes of {PUSH_ROWS} rows alone: {rate:.0f}/s, p99 {p99 * 1e3:.1f} ms', flush=True)
        disk = disk_mib_per_s(directory, mib)
        alone = up.json('checkpoint', 'save', saved, '--name', 'alone', timeout=600)
        report('save, no pushes', alone, disk)
        result = []
        save = threading.Thread(target=lambda: result.append(up.json('checkpoint', 'save', saved, '--name', 'busy', timeout=600)))
        save.start()
        busy_rate, busy_p99 = pushes.run_until(lambda: not save.is_alive())
        report('save, with pushes', result[0], disk)
        print(f'pushes while saving: {busy_rate:.0f}/s ({busy_rate / rate:.2f} of alone), p99 {busy_p99 * 1e3:.1f} ms '
              f'({busy_p99 / p99:.1f} x)', flush=True)
        measure_series(up, pushes, os.path.join(directory, 'series'))
        client.drop_table('bench')
        restored = up.json('checkpoint', 'restore', os.path.join(saved, 'alone'), '--table', 'bench', timeout=600)
        restored['bytes'] = alone['bytes']
        report(f"restore (first shard after {restored['first_shard_seconds']:.2f} s)", restored, disk)
        array = os.path.join(directory, 'bench.npy')
        exported = up.json('table', 'export', 'bench', array, timeout=600)
        imported = up.json('table', 'import', 'again', array, '--optimizer', 'sgd', timeout=600)
        for what, answer in (('export', exported), ('import', imported)):
            report(f'{what} of a NumPy array', {**answer, 'bytes': answer['rows'] * answer['dim'] * 4}, disk)


def report(what, answer, disk):
    rate = answer['bytes'] / 2**20 / answer['seconds']
    print(f"{what}: {answer['bytes'] / 2**20:.0f} MiB in {answer['seconds']:.2f} s, {rate:.0f} MiB/s, "
          f'{rate / disk:.2f} of the disk ({disk:.0f} MiB/s)', flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--mib', type=int, default=1024)
    parser.add_argument('--servers', type=int, default=3)
    parser.add_argument('--dir', default=None)
    args = parser.parse_args()
    directory = tempfile.mkdtemp(prefix='hotbed-bench-', dir=args.dir)
    up = local.Up(os.path.join(directory, 'data'), '--servers', args.servers, '--port', 0, '--host-bytes',
                  f'{2 * args.mib // args.servers + 512}MiB')
    try:
        measure(up, directory, args.mib)
    finally:
        up.stop()
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == '__main__':
    main()
