"""Checkpoints on each server's own disk: saved there, fetched, restored and deleted, while servers are killed and files damaged."""

import json
import os
import resource
import subprocess
import sys
import tempfile
import unittest

import numpy as np

import hotbed

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, '..', 'fault'), os.path.join(HERE, '..', 'e2e'), HERE]
import cluster as fault  # noqa: E402  (tests/fault)
import local  # noqa: E402  (tests/e2e)
import read_checkpoint  # noqa: E402

DIM = 16
ROWS = 6000


class OwnDisks(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        directory = tempfile.TemporaryDirectory(prefix='hotbed-own-disks-')
        cls.addClassCleanup(directory.cleanup)
        cls.directory = directory.name
        cls.cluster = fault.Cluster(os.environ['HOTBED_BIN'], cls.directory, 3)
        cls.addClassCleanup(cls.cluster.stop)
        cls.cluster.start()
        cls.target = f'hotbed://{cls.cluster.address}'

    def setUp(self):
        self.name = self.id().rsplit('.', 1)[1].replace('test_', '')
        self.place = f'server:{self.name}'
        self.fetched = os.path.join(self.directory, 'fetched-' + self.name)
        client = hotbed.connect(self.target, session=self.name)
        self.addCleanup(client.close)
        self.client = client
        self.table = client.create_table(self.name, dim=DIM, rows=ROWS, init='normal:0,1', optimizer=hotbed.optim.Adam(lr=0.01))
        self.ids = np.arange(ROWS, dtype=np.uint64)
        self.table.push(self.ids, np.ones((ROWS, DIM), np.float32), step=1)
        self.addCleanup(self.restart)

    def restart(self):
        for server in self.cluster.servers:
            if not server.running():
                server.start()

    def save(self, name, *flags):
        return self.cluster.json('checkpoint', 'save', self.place, '--tables', self.name, '--name', name, *flags)

    def fails(self, *command):
        """The error of a command that fails."""
        done = subprocess.run([os.path.join(os.environ['HOTBED_BIN'], 'hotbed'), *command, '--coordinator', self.cluster.address],
                              capture_output=True, text=True, timeout=60, check=False, env=local.clean_environment())
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        return done.stderr

    def folder(self, server, name):
        return os.path.join(self.directory, f's{server}', 'checkpoints', self.name, name)

    def files(self, name):
        """{server: names of the files of rows on its disk}."""
        return {server: {file for file in os.listdir(self.folder(server, name)) if file.endswith('.rows')} for server in range(3)}

    def check_rows(self, place, name):
        self.cluster.json('checkpoint', 'restore', place, '--table', self.name, '--as', name)
        np.testing.assert_array_equal(self.client.table(name).pull(self.ids), self.table.pull(self.ids))

    def test_saved_shown_restored_and_deleted(self):
        self.assertEqual(hotbed.save(self.target, self.place, tables=[self.name], name='one')['path'], f'{self.place}/one')
        held = self.files('one')
        self.assertTrue(all(held.values()), held)
        for server in range(3):
            self.assertEqual(set(os.listdir(self.folder(server, 'one'))) - held[server], {'manifest.json'})
            with open(os.path.join(self.folder(server, 'one'), 'manifest.json'), encoding='utf-8') as file:
                manifest = json.loads(file.read().split('\n', 1)[1])
            for shard in manifest['tables'][0]['shards']:
                self.assertIn(shard['file'], held[int(shard['server'][1:])])
        self.assertEqual([(c['name'], c['whole']) for c in self.cluster.json('checkpoint', 'list', self.place)], [('one', True)])
        self.assertEqual(self.cluster.json('checkpoint', 'show', self.place)['checkpoint'], f'{self.place}/one')
        self.assertEqual(self.cluster.json('checkpoint', 'verify', self.place)['rows'], ROWS)
        self.assertIn('exists already', self.fails('checkpoint', 'save', self.place, '--name', 'one'))
        self.assertEqual(self.files('one'), held, 'the second save of the name has touched nothing')
        self.check_rows(self.place, 'directly')
        self.save('two')
        with open(os.path.join(self.folder(1, 'two'), 'manifest.json'), 'rb') as file:
            self.assertTrue(file.read())
        pruned = self.cluster.json('checkpoint', 'prune', self.place, '--keep', '1')
        self.assertEqual((pruned['deleted'], pruned['kept']), (['one'], 1))
        for server in range(3):
            self.assertEqual(os.listdir(os.path.dirname(self.folder(server, 'one'))), ['two'])
        self.assertIn('is no checkpoint', self.fails('checkpoint', 'delete', f'{self.place}/one', '--yes'))
        self.assertIn('is no checkpoint', self.fails('checkpoint', 'delete', self.place, '--yes'))
        self.assertFalse(self.cluster.json('checkpoint', 'delete', f'{self.place}/two', '--dry-run')['deleted'])
        self.cluster.servers[1].kill()
        # An error that names the server, or none once it counts as lost.
        code, _, err = self.cluster.run('checkpoint', 'delete', f'{self.place}/two', '--yes')
        self.assertTrue(code == 0 or 'server s1' in err, err)
        self.cluster.servers[1].start()
        # Files that the server kept while it was away are listed, and deleted.
        self.assertTrue(self.cluster.json('checkpoint', 'delete', f'{self.place}/two', '--yes')['deleted'])
        for server in range(3):
            self.assertEqual(os.listdir(os.path.dirname(self.folder(server, 'one'))), [])

    def test_bad_places_are_refused(self):
        for place in ('server:', 'server:..', 'server:../../etc', 'server:a/../b', 'server:.a', 'server:a b'):
            for command in (('save', place), ('list', place), ('fetch', place, self.fetched)):
                self.assertIn('is not of the form server:NAME', self.fails('checkpoint', *command))
        self.assertIn('at its begin', self.fails('checkpoint', 'save', 'server:a', '--name', '..'))
        self.assertIn('--incremental goes with a directory', self.fails('checkpoint', 'save', self.place, '--incremental'))
        self.assertIn('--incremental goes with a directory',
                      self.fails('checkpoint', 'schedule', '--every', '1h', '--incremental', self.place))
        self.assertIn('is not on servers', self.fails('checkpoint', 'fetch', self.fetched, self.fetched))
        self.assertIn('not into server:', self.fails('checkpoint', 'fetch', self.place, 'server:b'))
        self.assertIn('no live server has', self.fails('checkpoint', 'fetch', 'server:nothing', self.fetched))
        self.assertFalse(os.path.exists(self.fetched))

    def test_a_fetch_goes_on_after_lost_servers_and_files(self):
        self.save('one')
        held = self.files('one')
        all_files = set().union(*held.values())
        into = os.path.join(self.fetched, 'one')
        self.cluster.servers[1].kill()
        damaged, cut = sorted(held[2])[0], sorted(held[2])[-1]
        self.assertNotEqual(damaged, cut)
        kept = {}
        for file in (damaged, cut):
            with open(os.path.join(self.folder(2, 'one'), file), 'r+b') as on_disk:
                kept[file] = on_disk.read()
                if file == cut:
                    on_disk.truncate(len(kept[file]) // 2)
                else:
                    on_disk.seek(len(kept[file]) // 2)
                    on_disk.write(bytes([kept[file][len(kept[file]) // 2] ^ 1]))
        error = self.fails('checkpoint', 'fetch', self.place, self.fetched)
        lacking = len(held[1]) + 2
        self.assertIn(f'{lacking} of {len(all_files)} files were not fetched', error)
        self.assertRegex(error, 'which server s[12] wrote')
        self.assertIn('fetch again to bring the rest', error)
        self.assertEqual({file for file in os.listdir(into) if file.endswith('.rows')}, all_files - held[1] - {damaged, cut})
        self.assertNotIn('manifest.json', os.listdir(into))
        self.assertEqual([c['whole'] for c in self.cluster.json('checkpoint', 'list', self.fetched)], [False])
        self.cluster.servers[1].start()
        with self.assertRaisesRegex(hotbed.DataLoss, f'(?s){damaged}, which server s2 wrote|{cut}, which server s2 wrote'):
            hotbed.fetch(self.target, self.place, self.fetched)
        os.remove(os.path.join(self.folder(2, 'one'), cut))
        self.assertIn(f'no live server has {self.place}/one/{cut}', self.fails('checkpoint', 'fetch', self.place, self.fetched))
        for file, content in kept.items():
            with open(os.path.join(self.folder(2, 'one'), file), 'wb') as on_disk:
                on_disk.write(content)
        fetched = hotbed.fetch(self.client, f'{self.place}/one', self.fetched)
        self.assertEqual((fetched['files'], fetched['files_fetched']), (len(all_files), 2))
        self.assertEqual(set(os.listdir(into)), all_files | {'manifest.json'})
        # Whole files are not fetched again, and a damaged one is.
        self.assertEqual(self.cluster.json('checkpoint', 'fetch', self.place, self.fetched)['files_fetched'], 0)
        with open(os.path.join(into, damaged), 'r+b') as file:
            file.write(b'damaged')
        self.assertEqual(self.cluster.json('checkpoint', 'fetch', self.place, self.fetched)['files_fetched'], 1)
        self.assertEqual(self.cluster.json('checkpoint', 'verify', self.fetched)['rows'], ROWS)
        self.check_rows(self.fetched, 'fetched')
        # A manifest cannot make a fetch write elsewhere.
        for server in range(3):
            with open(os.path.join(self.folder(server, 'one'), 'manifest.json'), encoding='utf-8') as file:
                body = file.read().split('\n', 1)[1].replace(damaged, '../../' + damaged)
            with open(os.path.join(self.folder(server, 'one'), 'manifest.json'), 'w', encoding='utf-8') as file:
                file.write(f'{{"crc32c": "{read_checkpoint.crc32c(body.encode()):08x}"}}\n{body}')
        self.assertIn('is not of the form', self.fails('checkpoint', 'fetch', self.place, os.path.join(self.fetched, 'a', 'b')))
        self.assertFalse(os.path.exists(os.path.join(self.fetched, 'a')))
        # Another checkpoint of the name does not mix with it.
        other = f'{self.place}-other'
        self.cluster.json('checkpoint', 'save', other, '--tables', self.name, '--name', 'one')
        self.assertIn('exists already, and is not a fetch of', self.fails('checkpoint', 'fetch', other, self.fetched))

    def test_a_server_is_killed_while_it_saves(self):
        with subprocess.Popen([os.path.join(os.environ['HOTBED_BIN'], 'hotbed'), 'checkpoint', 'save', self.place, '--name', 'one',
                               '--tables', self.name, '--rate', '200KiB', '--coordinator', self.cluster.address],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=local.clean_environment()) as run:
            local.eventually('a file of the save', lambda: os.path.isdir(self.folder(1, 'one')) and self.files('one')[1])
            self.cluster.servers[1].kill()
            self.cluster.servers[1].start()
            _, err = run.communicate(timeout=90)
        self.assertEqual(run.returncode, 0, err)
        self.assertEqual(self.cluster.json('checkpoint', 'verify', self.place)['rows'], ROWS)
        named = sum(len(t['shards']) for t in self.cluster.json('checkpoint', 'show', self.place)['tables'])
        self.assertEqual(sum(map(len, self.files('one').values())), named, 'files of tries that failed are gone')

    def test_a_schedule_compresses_there_and_deletes_old_ones(self):
        self.cluster.json('checkpoint', 'schedule', self.place, '--every', '1s', '--keep', '1', '--tables', self.name, '--compress', 'zstd')
        first = local.eventually('a save', lambda: self.cluster.json('checkpoint', 'schedule', 'show')['checkpoint'])
        self.assertTrue(first.startswith(self.place + '/'), first)

        def old_one_is_gone():
            names = {c['name'] for c in self.cluster.json('checkpoint', 'list', self.place) if c['whole']}
            return names and first.rsplit('/', 1)[1] not in names

        local.eventually('the first save is deleted', old_one_is_gone)
        self.cluster.json('checkpoint', 'schedule', 'stop')
        fetched = self.cluster.json('checkpoint', 'fetch', self.place, self.fetched)
        with open(os.path.join(fetched['checkpoint'], 'manifest.json'), encoding='utf-8') as file:
            self.assertEqual(json.loads(file.read().split('\n', 1)[1])['compression'], 'zstd')
        self.assertLess(fetched['bytes'], ROWS * (8 + 3 * 4 * DIM), 'it is smaller than the rows with their state')
        self.check_rows(self.fetched, 'unpacked')

    def test_full_disks(self):
        def limit(bytes_max):
            for server in self.cluster.servers:
                resource.prlimit(server.child.pid, resource.RLIMIT_FSIZE, (bytes_max, resource.RLIM_INFINITY))

        limit(48 << 10)
        try:
            error = self.fails('checkpoint', 'save', self.place, '--tables', self.name, '--name', 'one')
        finally:
            limit(resource.RLIM_INFINITY)
        self.assertIn('Nothing is left of this save', error)
        for server in range(3):
            self.assertFalse(os.path.exists(self.folder(server, 'one')))
        self.save('one')
        done = subprocess.run([os.path.join(os.environ['HOTBED_BIN'], 'hotbed'), 'checkpoint', 'fetch', self.place, self.fetched,
                               '--coordinator', self.cluster.address],
                              capture_output=True, text=True, timeout=60, check=False, env=local.clean_environment(),
                              restore_signals=False,
                              preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (16 << 10, resource.RLIM_INFINITY)))
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertIn('the files cannot be kept', done.stderr)
        self.assertNotIn('manifest.json', os.listdir(os.path.join(self.fetched, 'one')))
        self.cluster.json('checkpoint', 'fetch', self.place, self.fetched)
        self.assertEqual(self.cluster.json('checkpoint', 'verify', self.fetched)['rows'], ROWS)


if __name__ == '__main__':
    unittest.main()
