"""Checkpoints in an object store: a strict server that fails on purpose (tests/places/s3_server.py), or with
HOTBED_MOTO_SERVER=PROGRAM that of moto (`./dev verify`)."""

import os
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.request

import numpy as np

import hotbed

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, '..', 'e2e')]
import local  # noqa: E402  (tests/e2e)

ROWS, DIM = 20000, 32
SECONDS = 150  # of a command; a busy machine is slow to serve hundreds of requests in Python
IDS = np.arange(ROWS, dtype=np.uint64)
MOTO = os.environ.get('HOTBED_MOTO_SERVER', '')


def http(method, url):
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(urllib.request.Request(url, method=method), timeout=10) as reply:
        return reply.read().decode()


class ObjectStore(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.directory = tempfile.TemporaryDirectory(prefix='hotbed-objects-')
        cls.addClassCleanup(cls.directory.cleanup)
        port = local.free_port()
        command = [MOTO, '-p', str(port)] if MOTO else [
            sys.executable, '-B', os.path.join(HERE, '..', 'places', 's3_server.py'), '--page', '3', '--faults', '0.03']
        cls.server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL if MOTO else subprocess.PIPE,
                                      stderr=subprocess.DEVNULL if MOTO else None, text=True)
        cls.addClassCleanup(cls.server.wait)
        cls.addClassCleanup(cls.server.terminate)
        cls.endpoint = f'http://127.0.0.1:{port if MOTO else int(cls.server.stdout.readline())}'
        if MOTO:
            local.eventually('moto takes the bucket', lambda: http('PUT', f'{cls.endpoint}/bucket') is not None)
        variables = {'AWS_ACCESS_KEY_ID': 'test-key', 'AWS_SECRET_ACCESS_KEY': 'test/secret+key', 'AWS_REGION': 'us-east-1',
                     'AWS_SESSION_TOKEN': 'test token', 'AWS_ENDPOINT_URL': cls.endpoint, 'no_proxy': '127.0.0.1'}
        before = {name: os.environ.get(name) for name in variables}
        os.environ.update(variables)
        cls.addClassCleanup(lambda: [os.environ.pop(name) if value is None else os.environ.update({name: value})
                                     for name, value in before.items()])
        cls.up = local.Up(os.path.join(cls.directory.name, 'data'), '--servers', 3, '--port', 0, '--host-bytes', '128MiB')
        cls.addClassCleanup(cls.up.stop)
        cls.target = f'hotbed://{cls.up.coordinator}'

    def cli(self, *arguments, **options):
        return self.up.cli(*arguments, timeout=SECONDS, **options)

    def json(self, *arguments):
        return self.up.json(*arguments, timeout=SECONDS)

    def setUp(self):
        self.place = f's3://bucket/{self.id().rsplit(".", 1)[1]}'

    def table(self, client, name):
        self.json('table', 'create', name, '--rows', ROWS, '--dim', DIM, '--init', 'zero', '--optimizer', 'sgd', '--lr', 1, '--shards', 4)
        table = client.table(name)
        table.push(IDS, np.random.default_rng(1).standard_normal((ROWS, DIM)).astype(np.float32), step=1)
        return table

    def test_a_series_is_saved_listed_verified_restored_and_pruned(self):
        with hotbed.connect(self.target, session='series') as client:
            table = self.table(client, 'series')
            states = []
            for step in range(2, 5):
                saved = self.json('checkpoint', 'save', self.place + '/', '--tables', 'series', '--name', f'c{step}', '--incremental')
                self.assertEqual(saved['checkpoint'], f'{self.place}/c{step}')
                self.assertEqual(saved['parent'], '' if step == 2 else f'c{step - 1}')
                states.append(table.pull(IDS))
                table.push(IDS[:100], np.ones((100, DIM), np.float32), step=step)
            listed = self.json('checkpoint', 'list', self.place)
            self.assertEqual([(c['name'], c['whole']) for c in listed], [('c2', True), ('c3', True), ('c4', True)])
            self.assertGreater(listed[0]['bytes'], ROWS * DIM * 4)
            self.assertLess(listed[1]['bytes'], listed[0]['bytes'] / 10)
            self.assertEqual(self.json('checkpoint', 'verify', self.place)['checkpoints'], 3)
            self.assertEqual(self.json('checkpoint', 'show', f'{self.place}/c3')['parent'], 'c2')
            for i, shards in ((0, ()), (2, ('--shards', 5))):
                self.json('checkpoint', 'restore', f'{self.place}/c{i + 2}', '--table', 'series', '--as', f'series-{i}',
                             '--sessions', 'anew', *shards)
                np.testing.assert_array_equal(client.table(f'series-{i}').pull(IDS), states[i])
                client.drop_table(f'series-{i}')
            self.assertEqual(self.json('checkpoint', 'prune', self.place, '--keep', 1)['deleted'], [])
            last = hotbed.save(self.target, self.place, tables=['series'])
            pruned = self.json('checkpoint', 'prune', self.place, '--keep', 1)
            self.assertEqual(pruned['deleted'], ['c2', 'c3', 'c4'])
            hotbed.restore(self.target, self.place, tables={'series': 'series-b'})
            np.testing.assert_array_equal(client.table('series-b').pull(IDS), table.pull(IDS))
            self.assertEqual([c['name'] for c in self.json('checkpoint', 'list', self.place)], [last['path'].rsplit('/', 1)[1]])
            # From the servers' own disks into the store, once.
            self.json('checkpoint', 'save', 'server:objects', '--tables', 'series')
            fetched = [self.json('checkpoint', 'fetch', 'server:objects', f'{self.place}-own') for _ in range(2)]
            self.assertEqual([f['files_fetched'] for f in fetched], [fetched[0]['files'], 0])
            self.assertEqual(self.json('checkpoint', 'verify', f'{self.place}-own')['rows'], ROWS)
            for name in ('series', 'series-b'):
                client.drop_table(name)

    def test_a_save_whose_caller_is_killed_is_pruned_with_its_unfinished_files(self):
        with hotbed.connect(self.target, session='killed') as client:
            self.table(client, 'killed')
            with subprocess.Popen([local.program('hotbed'), 'checkpoint', 'save', self.place, '--tables', 'killed', '--rate', '128KiB',
                                   '--coordinator', self.up.coordinator], env=local.clean_environment(),
                                  stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as save:
                local.eventually('the save has begun', lambda: self.cli('checkpoint', 'list', self.place)[0] == 0)
                time.sleep(0.5)
                save.kill()
            listed = self.json('checkpoint', 'list', self.place)
            self.assertEqual([c['whole'] for c in listed], [False])
            self.assertEqual(self.json('checkpoint', 'prune', self.place)['deleted'], [], 'it is young')
            pruned = self.json('checkpoint', 'prune', self.place, '--orphan-minutes', 0)
            self.assertEqual(len(pruned['deleted']), 1)
            self.assertEqual(self.cli('checkpoint', 'list', self.place)[0], 1, 'nothing is there any more')
            # The servers' writers find their files gone, and stop.
            self.json('checkpoint', 'save', self.place, '--tables', 'killed')
            client.drop_table('killed')

    def test_what_is_wrong_is_refused_and_leaves_nothing(self):
        with hotbed.connect(self.target, session='wrong') as client:
            self.table(client, 'wrong')
            for arguments, variables, said in (
                    ((self.place, '--tables', 'nobody'), {}, 'no table nobody'),
                    (('s3://nowhere/x',), {}, 'NoSuchBucket'),
                    (('s3://bucket//x',), {}, 'no part is empty'),
                    ((self.place,), {'AWS_ACCESS_KEY_ID': ''}, 'set AWS_ACCESS_KEY_ID'),
                    ((self.place,), {'AWS_ENDPOINT_URL': 'ftp://x'}, 'AWS_ENDPOINT_URL is "ftp://x"'),
                    *(() if MOTO else (((self.place,), {'AWS_SECRET_ACCESS_KEY': 'no'}, 'SignatureDoesNotMatch'),
                                       ((self.place,), {'AWS_REGION': 'eu-1'}, 'the region eu-1 is wrong')))):
                code, _, err = self.cli('checkpoint', 'save', *arguments, env=variables)
                self.assertEqual(code, 1, err)
                self.assertIn(said, err)
            self.assertEqual(self.cli('checkpoint', 'list', self.place)[0], 1)
            client.drop_table('wrong')


if __name__ == '__main__':
    unittest.main()
