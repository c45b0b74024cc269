"""Random operations on a cluster beside a map in this process: pushes, kills, moves, splits, saves, restores to other clusters.

HOTBED_SEED=N repeats a run, HOTBED_OPERATIONS=N makes it longer.
"""

import os
import random
import sys
import tempfile
import unittest

import numpy as np

import hotbed

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, '..', 'fault'), os.path.join(HERE, '..', 'e2e'), HERE]
import cluster as fault  # noqa: E402  (tests/fault)
import local  # noqa: E402  (tests/e2e)

DIM, ROWS, SERVERS = 4, 2000, 3
SEED = int(os.environ.get('HOTBED_SEED', 0)) or random.SystemRandom().randrange(1, 2**31)
OPERATIONS = int(os.environ.get('HOTBED_OPERATIONS', 40))
ADMIT_AFTER = 3
TABLES = {
    'bounded': dict(rows=ROWS, durability='replicated=2'),
    'hashed': dict(hashed=True, durability='log'),
    # Rows of it are evicted and expire while the other operations go on.
    'living': dict(hashed=True, durability='replicated=2', touches=True, rows_max=ROWS // 2, evict_by='lfu', ttl_steps=60),
    # A row is made by the third push of its id; the filter has room for so many ids that none comes too early.
    'filtered': dict(hashed=True, durability='replicated=2', touches=True, admit_after=ADMIT_AFTER, admit_by='bloom',
                     admit_ids=1_000_000, admit_false_positives=1e-6),
}


def ids_of(name, numbers):
    return numbers if name == 'bounded' else numbers * np.uint64(0x9e3779b97f4a7c15)


class RandomOperations(unittest.TestCase):
    """A push adds whole numbers, so that sums are exact: every row equals its twin to the bit, in any order of additions."""

    def setUp(self):
        self.random = random.Random(SEED)
        directory = tempfile.TemporaryDirectory(prefix='hotbed-random-')
        self.addCleanup(directory.cleanup)
        self.directory = directory.name
        self.saved = os.path.join(self.directory, 'saved')
        self.cluster = fault.Cluster(os.environ['HOTBED_BIN'], self.directory, SERVERS, server_flags=('--host-bytes=64MiB',))
        self.addCleanup(self.cluster.stop)
        self.cluster.start()
        self.client = hotbed.connect(f'hotbed://{self.cluster.address}', session='random')
        self.addCleanup(self.client.close)
        self.tables = {name: self.client.create_table(name, dim=DIM, init='zero', optimizer=hotbed.optim.SGD(lr=1.0), **options)
                       for name, options in TABLES.items()}
        self.rows = {name: np.zeros((ROWS, DIM), np.float32) for name in TABLES}
        self.there = np.zeros(ROWS, bool)  # which rows of the hashed table exist
        self.pushes = {name: [[] for _ in range(ROWS)] for name in ('living', 'filtered')}  # (step, values) of each row
        self.streams = {name: self.follow(name) for name in TABLES if name != 'bounded'}
        self.told = {name: {} for name in self.streams}  # what the streams have told of those tables, by id
        self.saves = []  # (path, the rows that each table had, which rows of the hashed one existed, pushes)
        self.step = 0
        self.restored = 0

    def test_contents_equal_those_of_a_map(self):
        ways = {self.push: 12, self.delete: 5, self.kill: 1, self.move: 3, self.split: 2, self.save: 4, self.restore: 3}
        told = []
        try:
            for _ in range(OPERATIONS):
                way = self.random.choices(list(ways), list(ways.values()))[0]
                told.append(f'{way.__name__} {way()}')
            told.append(f'save {self.save()}')
            told.append('compare')
            self.compare(self.client, {name: name for name in TABLES}, self.rows, self.there, self.pushes)
            for name in self.streams:
                told.append(f'follow {name}')
                self.compare_stream(name)
            for servers in (2, 5):
                told.append(f'restore to {servers} servers')
                self.restore_elsewhere(servers)
        except BaseException:
            print(f'HOTBED_SEED={SEED} HOTBED_OPERATIONS={OPERATIONS}; operations:', *told, sep='\n  ', file=sys.stderr)
            raise

    def command(self, *words):
        status, out, err = self.cluster.run(*words)
        self.assertEqual(status, 0, f'hotbed {" ".join(words)}: {err or out}')

    def push(self):
        for call in self.start_push():
            call.result()
        return self.step

    def start_push(self):
        calls = []
        for name, table in self.tables.items():
            numbers = np.array(self.random.sample(range(ROWS), 200), np.uint64)
            values = np.array([[self.random.randrange(-9, 10) for _ in range(DIM)] for _ in numbers], np.float32)
            self.step += 1
            calls.append(table.push_async(ids_of(name, numbers), values, step=self.step, deadline=120))
            self.rows[name][numbers.astype(np.int64)] -= values
            if name in self.pushes:
                for number, value in zip(numbers.tolist(), values):
                    self.pushes[name][number].append((self.step, value))
            if name == 'hashed':
                self.there[numbers.astype(np.int64)] = True
        return calls

    def delete(self):
        numbers = np.array(self.random.sample(range(ROWS), self.random.choice((3, 300))), np.uint64)
        self.step += 1
        self.tables['hashed'].delete(ids_of('hashed', numbers), step=self.step, deadline=120)
        self.rows['hashed'][numbers.astype(np.int64)] = 0
        self.there[numbers.astype(np.int64)] = False
        for name in self.streams:
            self.read_stream(name, 0)
        return len(numbers)

    def follow(self, name):
        return hotbed.follow(f'hotbed://{self.cluster.address}', name)

    def read_stream(self, name, timeout):
        changes = self.streams[name].next(timeout)
        if changes is None:
            return False
        if changes.again:  # the servers cannot tell any more what has changed since: all rows come again
            self.streams[name] = self.follow(name)
            self.told[name] = {}
            return True
        self.told[name].update(zip(changes.ids.tolist(), changes.rows))
        for gone in changes.deleted.tolist():
            self.told[name].pop(gone, None)
        return True

    def wanted(self, name):
        ids = ids_of(name, np.arange(ROWS, dtype=np.uint64))
        rows, there = self.rows[name], self.there
        if name != 'hashed':  # rows of the living table may go at any time
            there = np.zeros(ROWS, np.uint8)
            rows = self.tables[name].pull(ids, exists=there)
        return {i: row for i, row, exists in zip(ids.tolist(), rows, there) if exists}

    def compare_stream(self, name):
        for _ in range(600):
            told, wanted = self.told[name], self.wanted(name)
            same = told.keys() == wanted.keys() and all(np.array_equal(told[i], wanted[i]) for i in wanted)
            if same and not self.read_stream(name, 0.1):
                return
            self.read_stream(name, 0.1)
        told, wanted = self.told[name], self.wanted(name)
        self.assertEqual((told.keys() - wanted.keys(), wanted.keys() - told.keys()), (set(), set()), name)
        for i, row in wanted.items():
            np.testing.assert_array_equal(told[i], row, err_msg=f'id {i} of {name} as the stream told it')

    def kill(self):
        victim = self.random.choice(self.cluster.servers)
        victim.kill()
        calls = self.start_push() if self.random.random() < 0.5 else []
        victim.start()
        for call in calls:
            call.result()
        return victim.name

    def shard(self):
        return self.random.choice([s for name in TABLES for s in self.cluster.json('shard', 'list', '--table', name)])

    def move(self):
        shard = self.shard()
        others = [server.name for server in self.cluster.servers if server.name not in shard['members']]
        if not others:
            return 'nothing'
        self.command('shard', 'move', shard['shard'], '--from', self.random.choice(shard['members']), '--to',
                     self.random.choice(others), '--timeout=60s')
        return shard['shard']

    def split(self):
        shard = self.shard()['shard']
        self.command('shard', 'split', shard, '--timeout=60s')
        return shard

    def save(self):
        """A full one, or one of what changed since the newest."""
        name = f'c{len(self.saves)}'
        more = ['--incremental'] if self.saves and self.random.random() < 0.6 else []
        self.command('checkpoint', 'save', self.saved, '--name', name, '--timeout=60s', *more)
        self.saves.append((os.path.join(self.saved, name), {table: rows.copy() for table, rows in self.rows.items()},
                           self.there.copy(), {name: [list(row) for row in pushes] for name, pushes in self.pushes.items()}))
        return name

    def restore(self):
        """A table of a random checkpoint, under another name."""
        if not self.saves:
            return 'nothing'
        path, *saved = self.random.choice(self.saves)
        name = self.random.choice(list(TABLES))
        self.restored += 1
        self.command('checkpoint', 'restore', path, '--table', name, '--as', f'{name}-{self.restored}', '--sessions', 'anew',
                     '--timeout=60s')
        self.compare(self.client, {name: f'{name}-{self.restored}'}, *saved)
        if name == 'filtered':  # its counts go on
            ids = ids_of(name, np.arange(ROWS, dtype=np.uint64))
            values = np.ones((ROWS, DIM), np.float32)
            table = self.client.table(f'{name}-{self.restored}')
            table.push(ids, values, step=self.step + 1, deadline=120)
            self.compare_filtered(table, [[*told, (self.step + 1, values[0])] for told in saved[2][name]])
        self.client.drop_table(f'{name}-{self.restored}')
        return path

    def restore_elsewhere(self, servers):
        up = local.Up(os.path.join(self.directory, f'of-{servers}'), '--servers', servers, '--port', 0, '--host-bytes', '64MiB')
        try:
            path, *saved = self.random.choice(self.saves)
            self.assertEqual(local.run('hotbed', 'checkpoint', 'verify', path)[0], 0)
            up.json('checkpoint', 'restore', path)
            with hotbed.connect(f'hotbed://{up.coordinator}') as client:
                self.compare(client, {name: name for name in TABLES}, *saved)
        finally:
            up.stop()

    def compare(self, client, names, rows, there, pushes):
        for name, called in names.items():
            if name == 'living':
                self.compare_living(client.table(called), pushes[name])
                continue
            if name == 'filtered':
                self.compare_filtered(client.table(called), pushes[name])
                continue
            exists = np.zeros(ROWS, np.uint8)
            got = client.table(called).pull(ids_of(name, np.arange(ROWS, dtype=np.uint64)), exists=exists)
            if name == 'hashed':
                np.testing.assert_array_equal(exists.astype(bool), there, err_msg=f'which rows {called} has')
            np.testing.assert_array_equal(got, rows[name], err_msg=called)

    def compare_filtered(self, table, pushes):
        """A row is the sum of its pushes from the one on that admitted it."""
        exists = np.zeros(ROWS, np.uint8)
        got = table.pull(ids_of('filtered', np.arange(ROWS, dtype=np.uint64)), exists=exists)
        for number, told in enumerate(pushes):
            wanted = -sum((value for _, value in told[ADMIT_AFTER - 1:]), np.zeros(DIM, np.float32))
            np.testing.assert_array_equal(got[number], wanted, err_msg=f'{table.name}, row {number} after {len(told)} touches')
            self.assertEqual(exists[number], len(told) >= ADMIT_AFTER, f'{table.name}, row {number} after {len(told)} touches')

    def compare_living(self, table, pushes):
        """A row is the sum of as many of its last pushes as it counts: those before it was deleted are gone, all others there."""
        ids = ids_of('living', np.arange(ROWS, dtype=np.uint64))
        for _ in range(600):  # rows may go between the two reads
            before, got = table.touches(ids), table.pull(ids)
            touches = table.touches(ids)
            if all(np.array_equal(before[key], touches[key]) for key in before):
                break
        for number, (count, step) in enumerate(zip(touches['count'].tolist(), touches['step'].tolist())):
            told = pushes[number]
            self.assertLessEqual(count, len(told), f'touches of row {number} of {table.name}')
            wanted = -sum((value for _, value in told[len(told) - count:]), np.zeros(DIM, np.float32))
            np.testing.assert_array_equal(got[number], wanted, err_msg=f'{table.name}, row {number} with {count} touches')
            self.assertEqual(step, told[-1][0] if count else 0, f'last step of row {number} of {table.name}')


if __name__ == '__main__':
    unittest.main()
