"""Lists of the rows of a table, and the stream of its changes, by the command."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import numpy as np

import hotbed

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, '..', 'e2e'), os.path.join(HERE, '..', 'fault'), HERE]
import hostile  # noqa: E402  (tests/fault)
import local  # noqa: E402  (tests/e2e)

DIM = 4


class Changes(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.directory = tempfile.TemporaryDirectory(prefix='hotbed-changes-')
        cls.addClassCleanup(cls.directory.cleanup)
        cls.up = local.Up(os.path.join(cls.directory.name, 'data'), '--servers', 2, '--port', 0, '--host-bytes', '64MiB')
        cls.addClassCleanup(cls.up.stop)
        cls.client = hotbed.connect(f'hotbed://{cls.up.coordinator}', session='changes')
        cls.addClassCleanup(cls.client.close)
        cls.random = np.random.default_rng(3)

    def path(self, name):
        return os.path.join(self.directory.name, name)

    def values(self, rows, dim=DIM):
        return self.random.standard_normal((rows, dim)).astype(np.float32)

    def scan(self, *command):
        code, out, err = self.up.cli('table', 'scan', *command)
        self.assertEqual(code, 0, err)
        return [json.loads(line) for line in out.splitlines()]

    def test_a_scan_lists_the_rows_that_were_pushed(self):
        ids = self.random.integers(0, 2**64, 3000, dtype=np.uint64)
        ids[:2] = 0, 2**64 - 1
        ids = np.unique(ids)
        table = self.client.create_table('hash', dim=DIM, hashed=True, init='zero', optimizer=hotbed.optim.SGD(lr=1.0))
        table.push(ids, self.values(len(ids)), step=1)
        listed = self.scan('hash', '--rows')
        self.assertEqual(sorted(line['id'] for line in listed), ids.tolist())
        rows = np.array([line['row'] for line in sorted(listed, key=lambda line: line['id'])], np.float32)
        np.testing.assert_array_equal(rows, table.pull(ids))
        self.assertEqual(len(self.scan('hash', '--limit', 10)), 10)
        middle = int(ids[1000])
        below = self.scan('hash', '--last', middle)
        self.assertEqual(sorted(line['id'] for line in below), ids[:1001].tolist())
        self.assertNotIn('row', below[0])
        code, _, err = self.up.cli('table', 'scan', 'hash', '--first', 5, '--last', 4)
        self.assertEqual(code, 1)
        self.assertIn('first_id is 5, allowed: at most last_id, 4', err)

    def test_candidates_are_no_rows(self):
        table = self.client.create_table('admits', dim=DIM, hashed=True, touches=True, admit_after=2, init='zero',
                                         optimizer=hotbed.optim.SGD(lr=1.0))
        table.push(np.arange(10), self.values(10), step=1)
        table.push(np.arange(4), self.values(4), step=2)
        self.assertEqual(sorted(line['id'] for line in self.scan('admits')), [0, 1, 2, 3])
        listed = {line['id']: line['touches'] for line in self.scan('admits', '--statistics', '-o', 'json')}
        self.assertEqual(sorted(listed), list(range(10)))
        self.assertEqual((listed[3]['count'], listed[3]['step'], listed[3]['candidate']), (2, 2, False))
        self.assertEqual((listed[4]['count'], listed[4]['step'], listed[4]['candidate']), (1, 1, True))
        self.assertGreater(listed[4]['time_s'], 0)
        target = f'hotbed://{self.up.coordinator}'
        found = list(hotbed.scan(target, 'admits', with_statistics=True, last_id=8))
        by_id = dict(zip(np.concatenate([some.ids for some in found]).tolist(),
                         np.concatenate([some.statistics['candidate'] for some in found]).tolist()))
        self.assertEqual(by_id, {id: id >= 4 for id in range(9)})
        self.client.create_table('plain', dim=DIM, hashed=True)
        code, _, err = self.up.cli('table', 'scan', 'plain', '--statistics')
        self.assertNotEqual(code, 0)
        self.assertIn('keeps no touches', err)
        # An export has the rows alone, with and without their state.
        for state in ((), ('--state', self.path('admits.state.npy'))):
            weights, ids = self.path(f'admits{len(state)}.npy'), self.path(f'admits{len(state)}.ids.npy')
            code, _, err = self.up.cli('table', 'export', 'admits', weights, '--ids', ids, *state)
            self.assertEqual(code, 0, err)
            self.assertEqual(sorted(np.load(ids).tolist()), [0, 1, 2, 3])
        # A checkpoint has the candidates, and a restored table knows that they are some.
        place = self.path('admits-checkpoints')
        code, _, err = self.up.cli('checkpoint', 'save', place, '--tables', 'admits')
        self.assertEqual(code, 0, err)
        code, _, err = self.up.cli('checkpoint', 'restore', place, '--table', 'admits', '--as', 'again')
        self.assertEqual(code, 0, err)
        again = self.client.table('again')
        self.assertEqual(again.touches([3, 4, 10])['candidate'].tolist(), [False, True, False])
        self.assertEqual(sorted(line['id'] for line in self.scan('again')), [0, 1, 2, 3])
        again.push(np.array([4]), self.values(1), step=3)
        self.assertEqual(sorted(line['id'] for line in self.scan('again')), [0, 1, 2, 3, 4])

    def deleted(self, *words):
        """The answer of `hotbed row delete gone`."""
        code, out, err = self.up.cli('row', 'delete', 'gone', '-o', 'json', *words)
        self.assertEqual(code, 0, err)
        answer = json.loads(out)
        return answer['ids'], answer['existed'], answer['matched'], answer['deleted']

    def test_the_command_deletes_rows(self):
        table = self.client.create_table('gone', dim=DIM, hashed=True, init='zero', optimizer=hotbed.optim.SGD(lr=1.0))
        rows = np.zeros((1000, DIM), np.float32)
        rows[:, 0] = -np.arange(1000)  # so that row n has norm n
        table.push(np.arange(1000), rows, step=1)
        self.assertEqual(self.deleted('--range', '0:500', '--where', 'norm < 9.5', '--dry-run'), (500, 500, 10, 0))
        self.assertEqual(len(self.scan('gone')), 1000)
        self.assertEqual(self.deleted('--range', '0:500', '--where', 'norm < 9.5', '--yes'), (500, 500, 10, 10))
        self.assertEqual(self.deleted('--id', '3', '--id', '0x0a', '--id', '-1', '--yes'), (3, 1, 1, 1))
        names = self.path('gone.txt')
        with open(names, 'w', encoding='ascii') as file:
            file.write('11\n\n 12\n12\n')
        self.assertEqual(self.deleted('--ids-file', names, '--yes'), (3, 3, 2, 2))
        self.assertEqual(sorted(line['id'] for line in self.scan('gone')), list(range(13, 1000)))
        with open(names, 'a', encoding='ascii') as file:
            file.write('twelve\n')
        for words, message in ((('--ids-file', names), 'gone.txt, line 5: '),
                               (('--range', '7:7'), "--range is '7:7'; allowed: A:B"),
                               (('--id', '13', '--where', 'norm=1'), "--where is 'norm=1'; allowed: 'norm<X'"),
                               (('--id', '13', '--range', '1:2'), 'name the rows by one of --id, --ids-file and --range'),
                               ((), 'name the rows by one of')):
            code, _, err = self.up.cli('row', 'delete', 'gone', '--yes', *words)
            self.assertNotEqual(code, 0)
            self.assertIn(message, err)
        self.client.create_table('kept', dim=DIM, rows=10)
        code, _, err = self.up.cli('row', 'delete', 'kept', '--id', '1', '--yes')
        self.assertEqual(code, 1)
        self.assertIn('table kept is bounded', err)
        with self.assertRaisesRegex(hotbed.InvalidArgument, 'rows of a bounded table are not deleted'):
            self.client.table('kept').delete([1], step=2)

    def test_a_scan_of_column_slices_has_each_row_once(self):
        table = self.client.create_table('sliced', dim=6, rows=5000, column_slices=3, init='zero',
                                         optimizer=hotbed.optim.SGD(lr=1.0))
        ids = np.arange(0, 5000, 7)
        table.push(ids, self.values(len(ids), 6), step=1)
        self.assertEqual(sorted(line['id'] for line in self.scan('sliced', '--first', 700, '--last', 1400)), list(range(700, 1401, 7)))
        rows = np.zeros((5000, 6), np.float32)
        listed = self.scan('sliced', '--rows', '--first', 700, '--last', 1400)
        self.assertEqual(len(listed), 3 * 101)
        for line in listed:
            column = line.get('column', 0)
            rows[line['id'], column:column + 2] = line['row']
        np.testing.assert_array_equal(rows[700:1401:7], table.pull(np.arange(700, 1401, 7)))
        self.client.create_table('bare', dim=2, rows=10)
        self.assertEqual(self.scan('bare'), [])

    def test_a_client_that_takes_no_answers_loses_its_calls(self):
        table = self.client.create_table('untaken', dim=64, rows=3000, init='zero', optimizer=hotbed.optim.SGD(lr=1.0))
        table.push(np.arange(3000), self.values(3000, 64), step=1)
        server, number = next(
            (server, shard['shard']) for server in self.up.json('status')['servers']
            for shard in json.loads(local.http(server['admin_address'], '/api/status')[2])['shards']
            if shard['table'] == 'untaken' and shard['primary'])
        table_id, index = map(int, number.split('/'))
        first, limit = self.up.json('table', 'describe', 'untaken')['shards'][index]['range']
        with contextlib.closing(hostile.Peer(server['address'])) as peer:
            # One answer leaves no room for another in the memory for answers (2 MiB, half of it); no window is ever opened.
            request = (hostile.field(1, 10**6) + hostile.fixed(2, table_id << 32 | index) + hostile.field(3, first) +
                       hostile.field(4, limit) + hostile.field(7, 1))
            peer.send(peer.begin('/hotbed.v1.Changes/ListRows'), hostile.message(request), 10, hostile.END_STREAM)
            begun = time.monotonic()
            self.assertEqual(len(self.scan('untaken')), 3000)
            self.assertLess(time.monotonic() - begun, 30)  # 5 s; or else until the connection is given up, after 50 s

    def test_a_stream_tells_all_rows_and_then_every_change(self):
        table = self.client.create_table('stream', dim=DIM, rows=2000, init='zero', optimizer=hotbed.optim.SGD(lr=1.0))
        table.push(np.arange(500), self.values(500), step=1)
        positions = self.path('positions')
        seen, lsns, told = {}, {}, []

        def take(out):
            for line in map(json.loads, out):
                self.assertGreaterEqual(line['lsn'] or lsns.get(line['shard'], 0), lsns.get(line['shard'], 0))
                lsns[line['shard']] = max(line['lsn'], lsns.get(line['shard'], 0))
                seen[line['id']] = line['row']
                told.append(line['id'])

        for life in range(2):  # the second one takes up the positions of the first
            told.clear()
            command = [local.program('hotbed'), 'table', 'follow', 'stream', '--positions', positions, '--coordinator',
                       self.up.coordinator]
            with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=local.clean_environment()) as follow:
                reader = threading.Thread(target=take, args=(follow.stdout,))
                reader.start()
                local.eventually('the rows before', lambda: len(seen) >= 500)
                for step in range(2, 12):
                    ids = self.random.choice(2000, 100, replace=False)
                    table.push(ids, self.values(100), step=100 * life + step)
                pushed = table.pull(np.arange(2000))
                local.eventually('every change', lambda: all(np.array_equal(np.float32(seen.get(i, np.zeros(DIM))), pushed[i])
                                                             for i in range(2000)))
                follow.send_signal(signal.SIGINT)
                reader.join()
            self.assertEqual(follow.returncode, 0)
            with open(positions, encoding='ascii') as file:
                self.assertTrue(all(part['lsn'] > 0 for part in json.load(file) if part['first'] < 500))
            # A change that nobody heard of is told by the next life.
            table.push([life], self.values(1), step=100 * life + 50)
        self.assertLessEqual(len(told), 1000 + 1)  # the positions were known: no row but the changed ones

    def test_a_table_that_was_created_again_is_told_whole(self):
        target = f'hotbed://{self.up.coordinator}'
        kept = ()
        for life, ids in enumerate(([1, 2, 3], [2, 4, 5])):  # the new log has the epochs and LSNs of the old one
            table = self.client.create_table('twice', dim=DIM, rows=100, init='zero', optimizer=hotbed.optim.SGD(lr=1.0))
            table.push(np.array(ids), self.values(3), step=1)
            stream = hotbed.follow(target, 'twice', positions=kept)
            self.assertEqual(stream.positions, kept)  # until it was told that they are of another table
            told, again = [], []

            def all_told():
                found = stream.next(0.2)
                if found is not None:
                    told.extend(found.ids.tolist())
                    if found.again:
                        self.assertEqual(told, [])
                        again.append((found.first, found.limit))
                return sorted(told) == ids
            local.eventually('all rows', all_told)
            while stream.next(0.5) is not None:
                pass
            self.assertEqual(again, [position[1:3] for position in kept])
            self.assertTrue(set(stream.positions).isdisjoint(kept))
            kept = stream.positions
            if life == 0:
                self.client.drop_table('twice')

    def test_rows_that_were_deleted_before_a_merge_do_not_come_back(self):
        target, name = f'hotbed://{self.up.coordinator}', 'merged'
        table = self.client.create_table(name, dim=DIM, hashed=True, rows=1000, init='zero', durability='log',
                                         optimizer=hotbed.optim.SGD(lr=1.0))
        table.push(np.arange(200), self.values(200), step=1)
        known, parts, again = set(), set(), []

        def knows(stream, ids):
            found = stream.next(0.2)
            if found is not None:
                if found.again:  # of the whole table: it has one shard then
                    again.append((found.first, found.limit))
                    known.clear()
                parts.add((found.first, found.limit))
                known.update(found.ids.tolist())
                known.difference_update(found.deleted.tolist())
            return known == set(ids)

        def cut(*command):
            code, _, err = self.up.cli('shard', *command, '--timeout', '60s')
            self.assertEqual(code, 0, err)

        cut('split', f'{name}/0')
        stream = hotbed.follow(target, name)
        local.eventually('all rows', lambda: knows(stream, range(200)))
        kept = stream.positions
        self.assertEqual((len(parts), again), (2, []))
        table.delete(np.arange(20), step=2)
        cut('merge', f'{name}/0')
        whole = (0, 1 << 16)
        stream = hotbed.follow(target, name, positions=kept)
        self.assertEqual(set(stream.positions), set(kept))  # until it was told that they do not hold any more
        local.eventually('the rows that are left', lambda: knows(stream, range(20, 200)))
        self.assertEqual(again, [whole])
        cut('split', f'{name}/0')
        parts.clear()
        table.push(np.arange(100, 200), self.values(100), step=3)
        local.eventually('the parts', lambda: knows(stream, range(20, 200)) and len(parts - {whole}) == 2)
        table.delete(np.arange(20, 40), step=4)
        cut('merge', f'{name}/0')  # while the stream is open
        local.eventually('all rows again', lambda: knows(stream, range(40, 200)) and len(again) == 2)

    def test_rows_that_were_not_printed_are_printed_again(self):
        table = self.client.create_table('full', dim=DIM, rows=2000, init='zero', optimizer=hotbed.optim.SGD(lr=1.0))
        table.push(np.arange(500), self.values(500), step=1)
        path = self.path('full-positions')
        for command in (['follow', 'full', '--positions', path], ['scan', 'full']):
            with open('/dev/full', 'w', encoding='ascii') as full:
                done = subprocess.run([local.program('hotbed'), 'table', *command, '--coordinator', self.up.coordinator],
                                      stdout=full, stderr=subprocess.PIPE, text=True, check=False, timeout=60,
                                      env=local.clean_environment())
            self.assertEqual(done.returncode, 1)
            self.assertIn('the output did not take rows of shard', done.stderr)
        self.assertFalse(os.path.exists(path))

    def test_python_follows_and_scans(self):
        table = self.client.create_table('python', dim=DIM, rows=2000, init='zero', optimizer=hotbed.optim.SGD(lr=1.0))
        table.push(np.arange(300), self.values(300), step=1)
        target = f'hotbed://{self.up.coordinator}'
        rows = np.zeros((2000, DIM), np.float32)
        for found in hotbed.scan(target, 'python'):
            rows[found.ids, found.columns.start:found.columns.stop] = found.rows
            self.assertGreater(found.lsn, 0)
        np.testing.assert_array_equal(rows, table.pull(np.arange(2000)))
        ids = np.concatenate([found.ids for found in hotbed.scan(target, 'python', with_rows=False, first_id=100)])
        self.assertEqual(sorted(ids.tolist()), list(range(100, 300)))
        positions = ()
        for life in range(2):
            told = 0
            stream = hotbed.follow(target, 'python', positions=positions)
            table.push(np.arange(life, 40), self.values(40 - life), step=2 + life)

            def caught_up():
                nonlocal told
                found = stream.next(0.2)
                if found is not None:
                    rows[found.ids] = found.rows
                    told += len(found.ids)
                return np.array_equal(rows, table.pull(np.arange(2000)))
            local.eventually('every change', caught_up)
            while stream.next(0.5) is not None:  # the end of the list has a position and no rows
                pass
            positions = stream.positions
        self.assertLessEqual(told, 80, 'the second stream begins where the first one ended')
        with self.assertRaises(hotbed.NotFound):
            hotbed.follow(target, 'none')

    def test_positions_that_are_none_are_refused(self):
        self.client.create_table('positions', dim=2, rows=10)
        path = self.path('no-positions')
        for text in ('[1]', '{"a": 1}', '{"0": -1}', 'x'):
            with open(path, 'w', encoding='ascii') as file:
                file.write(text)
            code, _, err = self.up.cli('table', 'follow', 'positions', '--positions', path, '--seconds', 1)
            self.assertEqual(code, 1)
            self.assertIn('holds no positions', err)


if __name__ == '__main__':
    unittest.main()
