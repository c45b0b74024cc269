"""Checkpoints of a cluster of three servers: saved while pushes run, read by another program, restored anywhere."""

import json
import os
import resource
import shutil
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
sys.path[:0] = [os.path.join(HERE, '..', 'e2e'), HERE]
import local  # noqa: E402  (tests/e2e)
import read_checkpoint  # noqa: E402

DIM = 6
ROWS = 3000


def step_of(step, hashed):
    """The ids and gradients of a step: a function of the step alone."""
    random = np.random.default_rng(step)
    ids = random.choice(ROWS, 400, replace=False).astype(np.uint64)
    if hashed:
        ids = ids * np.uint64(0x9e3779b97f4a7c15)
    return ids, random.standard_normal((400, DIM)).astype(np.float32)


def all_ids(hashed):
    ids = np.arange(ROWS, dtype=np.uint64)
    return ids * np.uint64(0x9e3779b97f4a7c15) if hashed else ids


class Checkpoints(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.directory = tempfile.TemporaryDirectory(prefix='hotbed-checkpoint-')
        cls.addClassCleanup(cls.directory.cleanup)
        cls.up = local.Up(os.path.join(cls.directory.name, 'data'), '--servers', 3, '--port', 0, '--host-bytes', '64MiB')
        cls.addClassCleanup(cls.up.stop)
        cls.target = f'hotbed://{cls.up.coordinator}'

    def setUp(self):
        self.saved = os.path.join(self.directory.name, self.id().rsplit('.', 1)[1])

    def create(self, client, name, hashed=False, optimizer=None, **options):
        return client.create_table(name, dim=DIM, rows=None if hashed else ROWS, hashed=hashed, init='normal:0,1',
                                   optimizer=optimizer or hotbed.optim.Adam(lr=0.01), **options)

    def train(self, table, first, last, hashed=False):
        for step in range(first, last + 1):
            table.push(*step_of(step, hashed), step=step)

    def test_an_engine_in_the_process_saves_and_takes_back(self):
        with hotbed.local(memory='128MiB', session='own') as client:
            table = self.create(client, 'own', hashed=True)
            self.train(table, 1, 10, hashed=True)
            saved = hotbed.save(client, self.saved, tables=['own'])
            self.assertEqual([one['name'] for one in saved['tables']], ['own'])
            self.train(table, 11, 20, hashed=True)
            want = table.pull(all_ids(True))
            # The steps that are saved are known in the same engine, and pushed again without an effect.
            self.assertTrue(hotbed.restore(client, saved['path'], tables={'own': 'again'})['sessions_continue'])
            again = client.table('again')
            self.assertFalse(np.array_equal(again.pull(all_ids(True)), want))
            self.train(again, 5, 20, hashed=True)
            np.testing.assert_array_equal(again.pull(all_ids(True)), want)
            with self.assertRaisesRegex(hotbed.AlreadyExists, 'again'):
                hotbed.restore(client, saved['path'], tables={'own': 'again'})
        with self.assertRaises(hotbed.ClosedError):
            hotbed.save(client, self.saved)
        # A cluster takes it, and gives it back to an engine.
        restored = hotbed.restore(self.target, saved['path'], tables={'own': 'from-engine'})
        self.assertFalse(restored['sessions_continue'])
        with hotbed.connect(self.target, session='from-engine') as client:
            table = client.table('from-engine')
            self.train(table, 11, 20, hashed=True)
            np.testing.assert_array_equal(table.pull(all_ids(True)), want)
            back = hotbed.save(client, self.saved, tables=['from-engine'])
        with hotbed.local(memory='128MiB') as client:
            hotbed.restore(client, back['path'], tables={'from-engine': 'own'})
            np.testing.assert_array_equal(client.table('own').pull(all_ids(True)), want)

    def test_training_goes_on_to_the_bit(self):
        for hashed, sessions in ((False, 'continue'), (True, 'anew')):
            with hotbed.connect(self.target, session=f'goes-on-{hashed}') as client:
                name = f'whole-{int(hashed)}'
                table = self.create(client, name, hashed)
                self.train(table, 1, 20, hashed)
                saved = self.up.json('checkpoint', 'save', self.saved, '--tables', name, '--name', name)
                self.train(table, 21, 40, hashed)
                want = table.pull(all_ids(hashed))
                restored = self.up.json('checkpoint', 'restore', saved['checkpoint'], '--table', name, '--as', name + '-b',
                                        '--sessions', sessions)
                self.assertEqual(restored['sessions'], sessions)
            with hotbed.connect(self.target, session=f'goes-on-{hashed}') as client:
                again = client.table(name + '-b')
                self.assertFalse(np.array_equal(again.pull(all_ids(hashed)), want))
                # Steps that the checkpoint contains are known, if sessions continue.
                self.train(again, 15 if sessions == 'continue' else 21, 40, hashed)
                np.testing.assert_array_equal(again.pull(all_ids(hashed)), want)

    def test_another_program_reads_it(self):
        for hashed in (False, True):
            with hotbed.connect(self.target, session=f'reads-{hashed}') as client:
                name = f'read-{int(hashed)}'
                table = self.create(client, name, hashed)
                self.train(table, 1, 5, hashed)
                path = self.up.json('checkpoint', 'save', self.saved, '--tables', name, '--name', name)['checkpoint']
                rows = read_checkpoint.read(path)[name]
                pushed = np.unique(np.concatenate([step_of(step, hashed)[0] for step in range(1, 6)]))
                self.assertEqual(sorted(rows), pushed.tolist())
                weights = np.stack([np.frombuffer(rows[i][0], np.float32) for i in pushed.tolist()])
                np.testing.assert_array_equal(weights, table.pull(pushed))
                self.assertTrue(all(len(state) == 2 * 4 * DIM for _, state in rows.values()))
                code, out, err = local.run('hotbed', 'checkpoint', 'verify', path)
                self.assertEqual(code, 0, err)
                shown = self.up.json('checkpoint', 'show', path)
                self.assertEqual(shown['tables'][0]['rows'], len(pushed))
                self.assertEqual({s['last_step'] for s in shown['tables'][0]['shards'] if s['rows']} - {5}, set())

    def test_each_shard_is_of_one_moment_while_pushes_run(self):
        """Every push adds 1 to all rows of the table, so that the rows of one shard are equal at any LSN."""
        rows, dim = 40000, 32  # 5 MiB: several passes
        with hotbed.connect(self.target, session='moment') as client:
            table = client.create_table('moment', dim=dim, rows=rows, init='zero', optimizer=hotbed.optim.SGD(lr=1.0))
            ids, ones = np.arange(rows, dtype=np.uint64), np.full((rows, dim), -1, np.float32)
            table.push(ids, ones, step=1)
            stop = threading.Event()

            def train():
                step = 1
                while not stop.is_set():
                    step += 1
                    table.push(ids, ones, step=step)

            trainer = threading.Thread(target=train)
            trainer.start()
            try:
                path = self.up.json('checkpoint', 'save', self.saved, '--tables', 'moment')['checkpoint']
            finally:
                stop.set()
                trainer.join()
            for shard in read_checkpoint.read_manifest(path)['tables'][0]['shards']:
                found = read_checkpoint.read_rows(os.path.join(path, shard['file']), shard['index_crc'])
                self.assertEqual(len(found), int(shard['range_limit']) - int(shard['range_first']))
                values = {weights for weights, _ in found.values()}
                self.assertEqual(len(values), 1)
                value = np.frombuffer(values.pop(), np.float32)
                self.assertEqual(set(value), {float(shard['lsn'])})  # one push per LSN
            client.drop_table('moment')

    def test_other_shards_types_and_durability(self):
        with hotbed.connect(self.target, session='others') as client:
            table = self.create(client, 'others', optimizer=hotbed.optim.RowWiseAdagrad(lr=0.1))
            self.train(table, 1, 10)
            want = table.pull(all_ids(False))
            self.up.json('checkpoint', 'save', self.saved, '--tables', 'others')
            for name, options in (('cut', ('--shards', 13, '--sessions', 'anew')),
                                  ('copies', ('--durability', 'replicated=2')),
                                  ('scratch', ('--durability', 'checkpoint')),
                                  ('half', ('--weight-type', 'fp16'))):
                self.up.json('checkpoint', 'restore', self.saved, '--table', 'others', '--as', name, *options)
                got = client.table(name).pull(all_ids(False))
                exact = want if name != 'half' else want.astype(np.float16).astype(np.float32)
                np.testing.assert_array_equal(got[touched(10)], exact[touched(10)])
                # A trainer that makes its tables if need be finds it.
                client.create_table(name, dim=DIM, rows=ROWS, init='normal:0,1', optimizer=hotbed.optim.RowWiseAdagrad(lr=0.1),
                                    durability={'copies': 'replicated=2', 'scratch': 'checkpoint'}.get(name),
                                    weight_type='fp16' if name == 'half' else None, if_not_exists=True)
            described = self.up.json('table', 'describe', 'cut')
            self.assertGreaterEqual(len(described['shards']), 13)

    def test_clusters_of_other_sizes_begin_with_it(self):
        with hotbed.connect(self.target, session='sizes') as client:
            tables = {hashed: self.create(client, f'sizes-{int(hashed)}', hashed) for hashed in (False, True)}
            for hashed, table in tables.items():
                self.train(table, 1, 10, hashed)
            self.up.json('checkpoint', 'save', self.saved, '--tables', 'sizes-0,sizes-1')
            for hashed, table in tables.items():
                self.train(table, 11, 20, hashed)
            want = {hashed: table.pull(all_ids(hashed)) for hashed, table in tables.items()}
        for servers in (1, 4):
            up = local.Up(f'{self.saved}-{servers}', '--servers', servers, '--port', 0, '--host-bytes', '64MiB')
            try:
                restored = up.json('checkpoint', 'restore', self.saved, '--shards', 2 * servers)
                self.assertEqual(restored['sessions'], 'anew')
                self.assertEqual(len({s['primary'] for s in up.json('shard', 'list')}), servers)
                with hotbed.connect(f'hotbed://{up.coordinator}', session='sizes') as client:
                    for hashed in (False, True):
                        table = client.table(f'sizes-{int(hashed)}')
                        self.train(table, 11, 20, hashed)
                        np.testing.assert_array_equal(table.pull(all_ids(hashed)), want[hashed])
            finally:
                up.stop()

    def test_what_is_wrong_is_refused_and_leaves_nothing(self):
        with hotbed.connect(self.target, session='wrong') as client:
            table = self.create(client, 'wrong')
            self.train(table, 1, 3)
            path = self.up.json('checkpoint', 'save', self.saved, '--tables', 'wrong')['checkpoint']
            code, _, err = self.up.cli('checkpoint', 'restore', path)
            self.assertEqual(code, 1)
            self.assertIn('"wrong" exists already', err)
            code, _, err = self.up.cli('checkpoint', 'save', self.saved, '--tables', 'nobody')
            self.assertEqual(code, 1)
            self.assertIn('no table nobody', err)
            self.assertEqual(len(os.listdir(self.saved)), 1)
            name = max((n for n in os.listdir(path) if n.endswith('.rows')),
                       key=lambda n: os.path.getsize(os.path.join(path, n)))
            victim = os.path.join(path, name)
            with open(victim, 'r+b') as file:
                file.seek(100)
                byte = file.read(1)
                file.seek(100)
                file.write(bytes([byte[0] ^ 1]))
            for command in (('verify', path), ('restore', path, '--table', 'wrong', '--as', 'never')):
                code, _, err = self.up.cli('checkpoint', *command)
                self.assertEqual(code, 1)
                self.assertIn(name, err)
                self.assertIn('checksum', err)
            self.assertNotIn('never', [t['name'] for t in self.up.json('table', 'list')])
            os.truncate(os.path.join(path, 'manifest.json'), 500)
            code, _, err = self.up.cli('checkpoint', 'restore', path, '--table', 'wrong', '--as', 'never')
            self.assertEqual(code, 1)
            self.assertIn('manifest.json', err)

    def test_a_killed_server_is_waited_for(self):
        rows, dim = 40000, 32
        ids = np.arange(rows, dtype=np.uint64)
        values = np.random.default_rng(5).standard_normal((rows, dim)).astype(np.float32)
        with hotbed.connect(self.target, session='killed') as client:
            table = client.create_table('killed', dim=dim, rows=rows, optimizer=hotbed.optim.SGD(lr=1.0))
            table.push(ids, values, step=1)
            want = table.pull(ids)
            saved = self.while_killing('s1', 0.6, 'checkpoint', 'save', self.saved, '--tables', 'killed', '--rate', '1MiB')
            code, _, err = local.run('hotbed', 'checkpoint', 'verify', saved['checkpoint'])
            self.assertEqual(code, 0, err)
            for victim, seconds in (('s2', 0.02), ('s0', 0.2)):
                self.while_killing(victim, seconds, 'checkpoint', 'restore', saved['checkpoint'], '--table', 'killed', '--as',
                                   f'killed-{victim}', '--sessions', 'anew')
                np.testing.assert_array_equal(client.table(f'killed-{victim}').pull(ids), want)

    def test_shards_are_split_while_they_are_saved(self):
        rows, dim = 40000, 32
        ids = np.arange(rows, dtype=np.uint64)
        values = np.random.default_rng(6).standard_normal((rows, dim)).astype(np.float32)
        with hotbed.connect(self.target, session='split') as client:
            table = client.create_table('split', dim=dim, rows=rows, optimizer=hotbed.optim.SGD(lr=1.0))
            table.push(ids, values, step=1)
            want = table.pull(ids)
            with subprocess.Popen([local.program('hotbed'), 'checkpoint', 'save', self.saved, '--tables', 'split', '--rate', '1MiB',
                                   '-o', 'json', '--coordinator', self.up.coordinator], stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, text=True, env=local.clean_environment()) as save:
                for number in range(3):
                    time.sleep(0.3)
                    code, _, err = local.run('hotbed', 'shard', 'split', f'split/{number}', '--coordinator', self.up.coordinator)
                    self.assertEqual(code, 0, err)
                out, err = save.communicate(timeout=90)
            self.assertEqual(save.returncode, 0, err)
            saved = json.loads(out)['checkpoint']
            code, _, err = local.run('hotbed', 'checkpoint', 'restore', saved, '--table', 'split', '--as', 'split-again', '--sessions',
                                     'anew', '--coordinator', self.up.coordinator)
            self.assertEqual(code, 0, err)
            np.testing.assert_array_equal(client.table('split-again').pull(ids), want)

    def while_killing(self, victim, seconds, *command):
        """The command's answer; `victim` is killed meanwhile, and started again by `hotbed up`."""
        with subprocess.Popen([local.program('hotbed'), *command, '-o', 'json', '--coordinator', self.up.coordinator],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=local.clean_environment()) as run:
            time.sleep(seconds)
            os.kill(self.pids()[victim], signal.SIGKILL)
            out, err = run.communicate(timeout=90)
        self.assertEqual(run.returncode, 0, err)
        return json.loads(out)

    def pids(self):
        """Of the servers as they run now: `hotbed up` told those that it started first."""
        found = {}
        for pid in filter(str.isdigit, os.listdir('/proc')):
            try:
                with open(f'/proc/{pid}/stat', encoding='ascii') as stat, open(f'/proc/{pid}/cmdline', encoding='utf-8') as line:
                    parent, words = stat.read().rsplit(')', 1)[1].split()[1], line.read().split('\0')
            except OSError:
                continue
            names = [word.split('=', 1)[1] for word in words if word.startswith('--name=')]
            if words[0].endswith('hotbed-coordinator'):
                names = ['coordinator']
            if int(parent) == self.up.process.pid and names:
                found[names[0]] = int(pid)
        return found

    def test_a_full_disk_ends_a_save_and_delays_a_restore(self):
        with hotbed.connect(self.target, session='full') as client:
            table = client.create_table('full', dim=64, rows=20000, optimizer=hotbed.optim.SGD(lr=1.0))
            ids = np.arange(20000, dtype=np.uint64)
            table.push(ids, np.ones((20000, 64), np.float32), step=1)
            want = table.pull(ids)
            self.limit_files(64 << 10)
            code, _, err = self.up.cli('checkpoint', 'save', self.saved, '--tables', 'full')
            self.limit_files(resource.RLIM_INFINITY)
            self.assertEqual(code, 1)
            self.assertIn('Nothing is left of this save', err)
            self.assertEqual(os.listdir(self.saved), [])
            self.up.json('checkpoint', 'save', self.saved, '--tables', 'full')
            self.limit_files(64 << 10)
            freed = threading.Timer(3, self.limit_files, (resource.RLIM_INFINITY,))
            freed.start()
            self.up.json('checkpoint', 'restore', self.saved, '--table', 'full', '--as', 'full-b', '--sessions', 'anew')
            freed.join()
            np.testing.assert_array_equal(client.table('full-b').pull(ids), want)

    def limit_files(self, limit):
        """Files that grow beyond `limit` meet the error of a full disk, on every server."""
        for name, pid in self.pids().items():
            if name.startswith('s'):  # not the coordinator
                resource.prlimit(pid, resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))

    def test_incremental_ones_have_the_rows_that_changed(self):
        with hotbed.connect(self.target, session='incremental') as client:
            for hashed in (False, True):
                name, directory = f'series-{int(hashed)}', f'{self.saved}-{int(hashed)}'
                table = self.create(client, name, hashed)

                def save(label):
                    return self.up.json('checkpoint', 'save', directory, '--tables', name, '--name', label, '--incremental')

                ids = all_ids(hashed)
                table.push(ids, np.ones((ROWS, DIM), np.float32), step=1)
                full = save('0')
                self.assertEqual(full['parent'], '')
                states = {}
                for generation in range(1, 10):
                    if generation == 3:  # a part goes on from the whole
                        self.up.json('shard', 'split', f'{name}/0')
                    changed = ids[generation::ROWS // 30]  # 1 % of them
                    table.push(changed, np.full((len(changed), DIM), 0.5, np.float32), step=1 + generation)
                    saved = save(str(generation))
                    states[generation] = table.pull(ids)
                    if generation == 9:
                        self.assertEqual(saved['parent'], '', 'the ninth is a whole one again')
                        continue
                    self.assertEqual(saved['parent'], str(generation - 1))
                    self.assertLessEqual(saved['tables'][0]['rows'], len(changed))
                    files = sum(os.path.getsize(os.path.join(directory, str(generation), file))
                                for file in os.listdir(os.path.join(directory, str(generation))) if file.endswith('.rows'))
                    self.assertLess(files, 0.2 * full['bytes'], 'small files: their heads and sessions weigh')
                verified = self.up.json('checkpoint', 'verify', os.path.join(directory, '8'))
                self.assertEqual(verified['checkpoints'], 9)
                rows = read_checkpoint.read(os.path.join(directory, '5'))[name]
                self.assertEqual(len(rows), ROWS)
                np.testing.assert_array_equal(np.array([np.frombuffer(rows[int(i)][0], np.float32) for i in ids]), states[5])
                for generation, shards in ((2, ()), (8, ('--shards', 5))):
                    self.up.json('checkpoint', 'restore', os.path.join(directory, str(generation)), '--table', name, '--as',
                                 f'{name}-{generation}', '--sessions', 'anew', *shards)
                    np.testing.assert_array_equal(client.table(f'{name}-{generation}').pull(ids), states[generation])
                # What a newer one needs stays; without it, nothing is restored.
                pruned = self.up.json('checkpoint', 'prune', directory, '--keep', 2)
                self.assertEqual(pruned['deleted'], [])
                pruned = self.up.json('checkpoint', 'prune', directory, '--keep', 1)
                self.assertEqual(pruned['deleted'], [str(i) for i in range(9)])
        shutil.rmtree(os.path.join(f'{self.saved}-0', '9'))
        self.assertEqual(self.up.cli('checkpoint', 'restore', f'{self.saved}-0')[0], 1)

    def test_a_compressed_one_is_smaller_and_restores_as_any_other(self):
        with hotbed.connect(self.target, session='compressed') as client:
            for hashed in (False, True):
                name, directory = f'packed-{int(hashed)}', f'{self.saved}-packed-{int(hashed)}'
                table = self.create(client, name, hashed)
                ids = all_ids(hashed)
                table.push(ids, np.ones((ROWS, DIM), np.float32), step=1)
                plain = hotbed.save(self.target, directory, tables=[name], name='plain')
                packed = hotbed.save(self.target, directory, tables=[name], name='packed', compress='zstd')
                self.assertLess(packed['tables'][0]['bytes'], plain['tables'][0]['bytes'])
                want = table.pull(ids)
                rows = read_checkpoint.read(packed['path'])
                self.assertEqual(rows, read_checkpoint.read(plain['path']), 'the same to the bit')
                self.assertEqual(self.up.json('checkpoint', 'verify', packed['path'])['rows'], packed['tables'][0]['rows'])
                # A series may change between both.
                table.push(ids[:10], np.ones((10, DIM), np.float32), step=2)
                changed = self.up.json('checkpoint', 'save', directory, '--tables', name, '--incremental', '--compress', 'zstd')
                folded = self.up.json('checkpoint', 'fold', changed['checkpoint']) if changed['parent'] else changed
                for path, label, rows_then in ((packed['path'], 'a', want), (folded['checkpoint'], 'b', table.pull(ids))):
                    self.up.json('checkpoint', 'restore', path, '--table', name, '--as', f'{name}-{label}', '--sessions', 'anew',
                                 '--shards', 5)
                    np.testing.assert_array_equal(client.table(f'{name}-{label}').pull(ids), rows_then)
        code, _, err = self.up.cli('checkpoint', 'save', self.saved, '--compress', 'gzip')
        self.assertEqual(code, 2, err)
        self.assertIn('gzip', err)
        with self.assertRaisesRegex(hotbed.InvalidArgument, 'allowed: zstd'):
            hotbed.save(self.target, self.saved, compress='gzip')

    def test_a_folded_one_needs_no_other_and_the_series_goes_on_from_it(self):
        with hotbed.connect(self.target, session='folded') as client:
            table = self.create(client, 'folded', hashed=True)
            ids = all_ids(True)

            def save():
                return self.up.json('checkpoint', 'save', self.saved, '--tables', 'folded', '--incremental')

            states = []
            for step in range(1, 4):
                self.train(table, step, step, hashed=True)
                saved = save()
                states.append(table.pull(ids))
            folded = self.up.json('checkpoint', 'fold', self.saved)
            self.assertEqual((folded['checkpoint'], folded['checkpoints']), (saved['checkpoint'] + '-folded', 3))
            code, _, err = self.up.cli('checkpoint', 'fold', saved['checkpoint'])
            self.assertEqual(code, 1)
            self.assertIn('exists already', err)
            self.assertEqual(self.up.json('checkpoint', 'fold', self.saved)['checkpoints'], 1, 'it needs no other')
            self.train(table, 4, 4, hashed=True)
            again = save()
            self.assertEqual(again['parent'], os.path.basename(folded['checkpoint']))
            self.assertLess(again['tables'][0]['rows'], folded['rows'])
            self.up.json('checkpoint', 'prune', self.saved, '--keep', 1)
            self.assertEqual(sorted(os.listdir(self.saved)),
                             sorted(os.path.basename(c['checkpoint']) for c in (folded, again)))
            for checkpoint, name, want in ((folded, 'folded-b', states[2]), (again, 'folded-c', table.pull(ids))):
                rows = read_checkpoint.read(checkpoint['checkpoint'])['folded']
                touched_ids = np.array(sorted(rows), np.uint64)
                self.up.json('checkpoint', 'restore', checkpoint['checkpoint'], '--table', 'folded', '--as', name)
                restored = client.table(name)
                np.testing.assert_array_equal(restored.pull(ids), want)
                np.testing.assert_array_equal(
                    np.array([np.frombuffer(rows[int(i)][0], np.float32) for i in touched_ids]), restored.pull(touched_ids))
            # Its sessions go on: a push that it contains is known.
            restored.push(*step_of(4, True), step=4)
            np.testing.assert_array_equal(restored.pull(ids), table.pull(ids))

    def test_a_save_at_a_step_has_exactly_the_rows_of_it(self):
        """Each trainer adds 1 to every row in every step, so that after step N all rows are N times the trainers."""
        trainers, rows = 3, 2000
        ids = np.arange(rows, dtype=np.uint64)
        for consistency in ('sync', 'bounded:2'):
            names = [f'at-step-{consistency[:4]}-{i}' for i in range(2)]
            group = f'group-{consistency[:4]}'
            stop, steps, troubles = threading.Event(), [0] * trainers, []

            def train(number):
                try:
                    with hotbed.connect(self.target, session=f'{group}-{number}', trainer_group=group, deadline=60) as client:
                        tables = [client.table(name) for name in names]
                        step = client.join_trainers()
                        ready.wait(60)
                        while not stop.is_set():
                            client.begin_step(step)
                            for table in tables:
                                table.push(ids, np.full((rows, 2), -1, np.float32), step=step)
                            client.end_step(step)
                            steps[number], step = step, step + 1
                            time.sleep(0.002 * number)  # the last is the slowest
                except hotbed.HotbedError as error:
                    troubles.append(error)

            def saved_at(step, name, *options):
                saved = self.up.json('checkpoint', 'save', self.saved, '--at-step', step, '--group', group, '--tables', ','.join(names),
                                     '--name', name, *options)
                found = read_checkpoint.read(saved['checkpoint'])
                for table in names:
                    values = {bytes(weights) for weights, _ in found[table].values()}
                    self.assertEqual((len(found[table]), len(values)), (rows, 1), (consistency, table))
                    value = np.frombuffer(values.pop(), np.float32)
                    self.assertEqual(set(value), {float(saved['at_step'] * trainers)}, (consistency, table))
                return saved

            with hotbed.connect(self.target, session=f'{group}-creates') as client:
                for name in names:
                    client.create_table(name, dim=2, rows=rows, init='zero', optimizer=hotbed.optim.SGD(lr=1.0), consistency=consistency)
                code, _, err = self.up.cli('checkpoint', 'save', self.saved, '--at-step', 'next', '--group', group)
                self.assertEqual(code, 1)
                self.assertIn(f'there is no group of trainers "{group}"', err)
                ready = threading.Barrier(trainers)
                threads = [threading.Thread(target=train, args=(number,)) for number in range(trainers)]
                for thread in threads:
                    thread.start()
                try:
                    local.eventually('steps', lambda: min(steps) > 2 or troubles)
                    first = saved_at('next', f'{group}-1', '--incremental')
                    self.assertEqual(self.up.json('checkpoint', 'show', first['checkpoint'])['at_step'], first['at_step'])
                    begun = min(steps)
                    local.eventually('more steps', lambda: min(steps) > begun + 2 or troubles)
                    wanted = self.save_ahead(lambda step: saved_at(step, f'{group}-2'), steps)
                    last = saved_at('next', f'{group}-3', '--incremental')
                    self.assertGreater(last['at_step'], wanted)
                    code, _, err = self.up.cli('checkpoint', 'save', self.saved, '--at-step', 2)
                    self.assertEqual(code, 1)
                    self.assertIn('the first step to save at is now', err)
                    begun = min(steps)
                    local.eventually('steps after the saves', lambda: min(steps) > begun + 5 or troubles)
                finally:
                    stop.set()
                    for thread in threads:
                        thread.join()
                self.assertEqual(troubles, [])
                self.up.json('checkpoint', 'restore', last['checkpoint'], '--table', names[0], '--as', f'{names[0]}-b')
                np.testing.assert_array_equal(client.table(f'{names[0]}-b').pull(ids),
                                              np.full((rows, 2), last['at_step'] * trainers, np.float32))

    def save_ahead(self, save, steps):
        """Saves at a step that is not over when the command asks for it; the step."""
        ahead = 50
        while True:
            wanted = max(steps) + ahead
            try:
                self.assertEqual(save(wanted)['at_step'], wanted)
                return wanted
            except AssertionError as error:
                if 'the first step to save at is now' not in str(error):
                    raise
                ahead *= 4

    def test_an_incremental_one_without_its_parent_is_refused(self):
        with hotbed.connect(self.target, session='orphaned') as client:
            table = self.create(client, 'orphaned')
            self.train(table, 1, 1)
            self.up.json('checkpoint', 'save', self.saved, '--tables', 'orphaned', '--name', 'a', '--incremental')
            self.train(table, 2, 2)
            saved = self.up.json('checkpoint', 'save', self.saved, '--tables', 'orphaned', '--name', 'b', '--incremental')
            shutil.rmtree(os.path.join(self.saved, 'a'))
            for command in ('restore', 'verify'):
                code, _, err = self.up.cli('checkpoint', command, saved['checkpoint'])
                self.assertEqual(code, 1)
                self.assertIn('a/manifest.json is not there', err)
            # The next one begins a new series.
            again = self.up.json('checkpoint', 'save', self.saved, '--tables', 'orphaned', '--name', 'c', '--incremental')
            self.assertEqual(again['parent'], '')

    def test_python_saves_and_restores(self):
        with hotbed.connect(self.target, session='python') as client:
            table = self.create(client, 'python')
            self.train(table, 1, 3)
            saved = hotbed.save(self.target, self.saved, tables=['python'], incremental=True)
            self.train(table, 4, 4)
            again = hotbed.save(self.target, self.saved, tables=['python'], incremental=True)
            self.assertEqual(again['parent'], os.path.basename(saved['path']))
            restored = hotbed.restore(self.target, self.saved, tables={'python': 'python-b'}, weight_type='fp16', shards=3)
            self.assertEqual((restored['path'], restored['sessions_continue']), (again['path'], True))
            self.assertEqual([table['name'] for table in restored['tables']], ['python-b'])
            np.testing.assert_array_equal(client.table('python-b').pull(all_ids(False)),
                                          table.pull(all_ids(False)).astype(np.float16).astype(np.float32))
            with self.assertRaises(hotbed.NotFound):
                hotbed.save(self.target, self.saved, tables=['none'])
            with self.assertRaises(hotbed.InvalidArgument):
                hotbed.restore(self.target, self.saved, sessions='some')

    def test_the_coordinator_saves_by_a_schedule(self):
        with hotbed.connect(self.target, session='scheduled') as client:
            table = self.create(client, 'scheduled')
            self.train(table, 1, 2)
            self.assertIsNone(self.up.json('checkpoint', 'schedule', 'show')['place'])
            for arguments, said in ((('--every', '30min'), 'a schedule has a place'), ((self.saved, '--every', '1ms'), '--every is 1ms'),
                                    ((self.saved,), 'a schedule has a place and --every')):
                code, _, err = self.up.cli('checkpoint', 'schedule', *arguments)
                self.assertEqual(code, 1, err)
                self.assertIn(said, err)
            self.up.json('checkpoint', 'schedule', self.saved, '--every', '1s', '--keep', 2, '--tables', 'scheduled')
            first = self.saves_beyond(0)
            self.saves_beyond(self.saves_beyond(first))
            # The next coordinator goes on with it.
            os.kill(self.pids()['coordinator'], signal.SIGKILL)
            last = self.saves_beyond(int(time.time() * 1000))
            shown = self.up.json('checkpoint', 'schedule', 'stop')
            self.assertIsNone(shown['place'])
            listed = self.up.json('checkpoint', 'list', self.saved)
            self.assertTrue(1 <= sum(c['whole'] for c in listed) <= 3, listed)
            self.assertGreaterEqual(max(c['begun_unix_ms'] for c in listed), last)
            time.sleep(2.5)
            again = self.up.json('checkpoint', 'list', self.saved)
            self.assertLessEqual({c['name'] for c in again if c['whole']}, {c['name'] for c in listed})
            kinds = [e['text'] for e in self.up.json('events') if e['kind'] == 'checkpoint']
            self.assertTrue(any(text.startswith('saved ') for text in kinds), kinds)
            self.assertIn('no more saves', kinds[-1])
            restored = self.up.json('checkpoint', 'restore', self.saved, '--table', 'scheduled', '--as', 'scheduled-b')
            self.assertEqual(restored['tables'][0]['name'], 'scheduled-b')
            np.testing.assert_array_equal(client.table('scheduled-b').pull(all_ids(False)), table.pull(all_ids(False)))

    def test_a_schedule_goes_on_after_a_full_disk_and_a_place_that_is_not_there(self):
        file = self.saved + '-file'
        with open(file, 'w', encoding='ascii'):
            pass

        def shown(what, holds):
            def look():
                shown = self.up.json('checkpoint', 'schedule', 'show')
                return shown if holds(shown) else None
            return local.eventually(what, look)

        with hotbed.connect(self.target, session='scheduled-full') as client:
            table = client.create_table('scheduled-full', dim=64, rows=20000, optimizer=hotbed.optim.SGD(lr=1.0))
            ids = np.arange(20000, dtype=np.uint64)
            table.push(ids, np.ones((20000, 64), np.float32), step=1)
            want = table.pull(ids)
            schedule = ('--every', '1s', '--keep', 1, '--tables', 'scheduled-full')
            self.up.json('checkpoint', 'schedule', file + '/below', *schedule)
            failed = shown('an error', lambda s: s['failures'] > 1)
            self.assertIn(file, failed['error'])
            self.assertEqual(failed['checkpoint'], '')
            self.limit_files(64 << 10)
            try:
                self.up.json('checkpoint', 'schedule', self.saved, *schedule)
                failed = shown('a full disk', lambda s: s['failures'] > 1)
                self.assertIn('Nothing is left of this save', failed['error'])
                self.assertEqual([c for c in self.up.json('checkpoint', 'list', self.saved) if c['whole']], [])
            finally:
                self.limit_files(resource.RLIM_INFINITY)
            good = shown('a save', lambda s: s['checkpoint'] and s['failures'] == 0)
            self.assertEqual(good['error'], '')
            # What was saved is not lost where the next save fails, however few are kept.
            self.limit_files(64 << 10)
            try:
                shown('a full disk again', lambda s: s['failures'] > 1)
            finally:
                self.limit_files(resource.RLIM_INFINITY)
            self.up.json('checkpoint', 'schedule', 'stop')
            self.up.json('checkpoint', 'restore', self.saved, '--table', 'scheduled-full', '--as', 'scheduled-full-b')
            np.testing.assert_array_equal(client.table('scheduled-full-b').pull(ids), want)

    def saves_beyond(self, unix_ms):
        """When the newest scheduled save was begun, once that is later."""
        def look():
            code, out, _ = self.up.cli('checkpoint', 'schedule', 'show', '-o', 'json')
            return json.loads(out)['saved_unix_ms'] if code == 0 and json.loads(out)['saved_unix_ms'] > unix_ms else 0
        return local.eventually('a scheduled save', look)

    def test_old_ones_and_orphans_are_pruned(self):
        with hotbed.connect(self.target, session='prune') as client:
            self.train(self.create(client, 'prune'), 1, 2)
            for name in ('one', 'two', 'three'):
                self.up.json('checkpoint', 'save', self.saved, '--tables', 'prune', '--name', name)
            code, _, err = self.up.cli('checkpoint', 'save', self.saved, '--tables', 'prune', '--name', 'two')
            self.assertEqual(code, 1)
            self.assertIn('exists already', err)
            shutil.copytree(os.path.join(self.saved, 'one'), os.path.join(self.saved, 'orphan'))
            os.remove(os.path.join(self.saved, 'orphan', 'manifest.json'))
            with open(os.path.join(self.saved, 'orphan', 'saving'), 'w', encoding='ascii') as file:
                file.write('1000')
            listed = self.up.json('checkpoint', 'list', self.saved)
            self.assertEqual([(c['name'], c['whole']) for c in listed],
                             [('orphan', False), ('one', True), ('two', True), ('three', True)])
            pruned = self.up.json('checkpoint', 'prune', self.saved, '--keep', 2)
            self.assertEqual(pruned['deleted'], ['orphan', 'one'])
            self.assertEqual(sorted(os.listdir(self.saved)), ['three', 'two'])


def touched(steps):
    return np.unique(np.concatenate([step_of(step, False)[0] for step in range(1, steps + 1)]))


if __name__ == '__main__':
    unittest.main()
