"""hotbed.ServingClient and lookups by HTTP, against a cluster with a serving server; and the curl lines of the documents."""

import base64
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import unittest

import numpy as np

import hotbed

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.join(HERE, '..', '..')
sys.path[:0] = [os.path.join(HERE, '..', 'e2e'), HERE]
import local  # noqa: E402  (tests/e2e)

PAGES = ('README.md', os.path.join('docs', 'serving.md'))
ADDRESS = '127.0.0.1:7480'  # in the pages


def serving_server(coordinator, *flags, name='r0'):
    """(process, address of its HTTP port)"""
    process = subprocess.Popen([local.program('hotbed-server'), '--role=serving', f'--name={name}', f'--coordinator={coordinator}',
                                '--listen=127.0.0.1:0', '--admin-listen=127.0.0.1:0', '--http-listen=127.0.0.1:0',
                                '--host-bytes=64MiB', *flags], stdout=subprocess.PIPE, text=True,
                               env=local.clean_environment())
    line = process.stdout.readline()
    return process, re.search(r' http (127\.0\.0\.1:\d+)$', line.strip()).group(1)


def end(process):
    process.terminate()
    process.communicate(timeout=60)


def curl(*words, body=''):
    """(code of HTTP, body); `body` is what '-d @-' sends."""
    done = subprocess.run(['curl', '-sS', '--noproxy', '*', '-w', '\n%{http_code}', *words], input=body.encode(),
                          capture_output=True, timeout=60, check=False)
    if done.returncode != 0:
        raise AssertionError(f'curl {words}: {done.stderr}')
    body, code = done.stdout.rsplit(b'\n', 1)
    return int(code), body


class Serving(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        directory = tempfile.TemporaryDirectory(prefix='hotbed-serving-')
        cls.addClassCleanup(directory.cleanup)
        cls.up = local.Up(directory.name, '--servers', 1, '--port', 0, '--host-bytes', '64MiB')
        cls.addClassCleanup(cls.up.stop)
        process, cls.http = serving_server(cls.up.coordinator)
        cls.addClassCleanup(end, process)
        cls.trainer = hotbed.connect(f'hotbed://{cls.up.coordinator}', session='serving')
        cls.addClassCleanup(cls.trainer.close)
        cls.rows = {}
        for name, dim in (('user', 4), ('item', 3)):
            table = cls.trainer.create_table(name, dim=dim, rows=1_000_000, init='zero', optimizer=hotbed.optim.SGD(lr=1.0))
            gradients = np.random.default_rng(dim).normal(size=(3, dim)).astype(np.float32)
            table.push([0, 17, 99], gradients, step=1)
            cls.rows[name] = dict(zip([0, 17, 99], -gradients))
        code, _, err = cls.up.cli('serve', 'add', 'user', 'item')
        assert code == 0, err
        cls.client = hotbed.ServingClient(f'hotbed://{cls.up.coordinator}')
        cls.addClassCleanup(cls.client.close)
        local.eventually('both tables are served', cls.served)

    @classmethod
    def served(cls):
        try:
            found = cls.client.lookup({'user': [0, 17, 99], 'item': [0, 17, 99]}, timeout=5)
        except hotbed.HotbedError:
            return False
        return all(rows.exists.all() for rows in found.values())

    def row(self, name, number):
        return self.rows[name].get(number, np.zeros_like(self.rows[name][0]))

    def test_rows_of_many_tables_come_as_arrays(self):
        found = self.client.lookup({'user': np.array([17, 5, 0]), 'item': [99]}, timeout=20)
        user, item = found['user'], found['item']
        np.testing.assert_array_equal(user.values, [self.row('user', 17), np.zeros(4), self.row('user', 0)])
        self.assertEqual((user.values.dtype, user.values.shape), (np.float32, (3, 4)))
        self.assertEqual(user.exists.tolist(), [True, False, True])
        self.assertEqual(user.exists.dtype, np.bool_)
        np.testing.assert_array_equal(item.values, [self.row('item', 99)])
        self.assertEqual(user.server, 'r0')
        self.assertGreaterEqual(user.age, 0)
        # The memory is the answer's own, and stays while one of its arrays does.
        self.assertIsNotNone(user.values.base)
        del found, user
        np.testing.assert_array_equal(item.values, [self.row('item', 99)])
        self.assertEqual(self.client.lookup({'user': []}, timeout=20)['user'].values.shape, (0, 4))

    def test_bags_are_pooled_as_their_rows_would_be(self):
        ids, offsets = np.array([17, 0, 5, 99], np.uint64), [0, 2, 2]
        plain = self.client.lookup({'item': ids}, timeout=20)['item'].values
        for pooling, weights in (('sum', None), ('mean', None), ('max', None), ('sum', [2, 0.5, 1, -1]), ('mean', [2, 0.5, 1, -2])):
            bags = hotbed.Bags(ids, offsets, pooling, None if weights is None else np.array(weights, np.float32))
            got = self.client.lookup({'item': bags}, timeout=20)['item']
            want = np.zeros((3, 3), np.float32)
            for bag, part in ((0, slice(0, 2)), (2, slice(2, 4))):
                w = np.ones(len(plain[part]), np.float32) if weights is None else np.array(weights, np.float32)[part]
                for row, weight in zip(plain[part], w):
                    want[bag] += row * weight
                if pooling == 'max':
                    want[bag] = plain[part].max(axis=0)
                if pooling == 'mean':
                    want[bag] /= w.sum(dtype=np.float32)
            np.testing.assert_array_equal(got.values, want, f'{pooling}, weights {weights}')
            self.assertEqual(got.exists.tolist(), [True, True, False, True])
        narrow = self.client.lookup({'item': [17]}, timeout=20, wire_type='fp16')['item'].values
        np.testing.assert_array_equal(narrow, plain[:1].astype(np.float16).astype(np.float32))

    def test_errors_name_what_is_wrong(self):
        with self.assertRaises(hotbed.NotFound) as caught:
            self.client.lookup({'nobody': [1]})
        self.assertEqual(caught.exception.table, 'nobody')
        with self.assertRaisesRegex(hotbed.InvalidArgument, r'table "item": offsets\[1\] is 5; allowed: 0'):
            self.client.lookup({'item': hotbed.Bags([1, 2], [0, 5])})
        with self.assertRaisesRegex(hotbed.InvalidArgument, 'pooling is "avg"; allowed: sum, mean, max'):
            self.client.lookup({'item': hotbed.Bags([1, 2], [0], 'avg')})
        with self.assertRaisesRegex(hotbed.ArrayError, 'weights'):
            self.client.lookup({'item': hotbed.Bags([1, 2], [0], 'sum', np.ones(3, np.float32))})
        with self.assertRaisesRegex(hotbed.ArrayError, 'ids is float'):
            self.client.lookup({'item': np.array([0.5])})
        with self.assertRaises(hotbed.InvalidArgument):
            hotbed.ServingClient('127.0.0.1:7400')
        closed = hotbed.ServingClient(f'hotbed://{self.up.coordinator}')
        closed.close()
        closed.close()
        with self.assertRaises(hotbed.ClosedError):
            closed.lookup({'user': [1]})

    def test_threads_look_up_at_a_time(self):
        wrong = []

        def look_up(number):
            for _ in range(20):
                values = self.client.lookup({'user': [number]}, timeout=20)['user'].values
                if not np.array_equal(values[0], self.row('user', number)):
                    wrong.append(values)

        threads = [threading.Thread(target=look_up, args=(number,)) for number in (0, 17, 99, 5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])

    # --- HTTP

    def ask(self, table, body, *words):
        code, text = curl('-d', '@-', f'http://{self.http}/v1/tables/{table}:lookup', *words, body=json.dumps(body))
        return code, json.loads(text)

    def test_http_gives_the_rows_of_the_client(self):
        code, found = self.ask('user', {'ids': [17, 5]})
        self.assertEqual(code, 200, found)
        np.testing.assert_array_equal(np.array(found['values'], np.float32), [self.row('user', 17), np.zeros(4)])
        self.assertEqual((found['exists'], found['dim'], found['rows'], found['server']), ([True, False], 4, 2, 'r0'))
        bags = {'ids': [17, 0, 5, 99], 'offsets': [0, 2, 2], 'pooling': 'mean', 'encoding': 'base64'}
        code, found = self.ask('item', bags)
        self.assertEqual(code, 200, found)
        want = self.client.lookup({'item': hotbed.Bags(bags['ids'], bags['offsets'], 'mean')}, timeout=20)['item']
        self.assertEqual(base64.b64decode(found['values']), want.values.tobytes())
        self.assertEqual(base64.b64decode(found['exists']), want.exists.tobytes())
        ids = base64.b64encode(np.array([17, 5], np.uint64).tobytes()).decode()
        code, octets = curl('-H', 'Accept: application/octet-stream', '-d', json.dumps({'ids': ids, 'type': 'fp16'}),
                            f'http://{self.http}/v1/tables/user:lookup')
        self.assertEqual((code, octets), (200, np.array([self.row('user', 17), np.zeros(4)], np.float16).tobytes() + b'\1\0'))

    def test_http_errors_say_field_value_and_limit(self):
        code, found = self.ask('user', {'ids': [1, 2**64]})
        self.assertEqual((code, found['error']['field'], found['error']['value']), (400, 'ids[1]', str(2**64)))
        code, found = self.ask('item', {'ids': [1, 2], 'offsets': [0, 3], 'pooling': 'sum'})
        self.assertEqual((code, found['error']['field'], found['error']['value']), (400, 'offsets[1]', '3'))
        self.assertEqual(self.ask('nobody', {'ids': [1]})[0], 404)
        with tempfile.NamedTemporaryFile() as large:
            large.truncate(17 << 20)
            code, text = curl('-H', 'Expect: 100-continue', '--data-binary', f'@{large.name}',
                              f'http://{self.http}/v1/tables/user:lookup')
        self.assertEqual(code, 413, text)
        self.assertIn('limit', json.loads(text)['error']['message'])
        admin = self.up.json('serve', 'status')['servers'][0]['admin_address']
        for code in (400, 404, 413):
            self.assertRegex(local.http(admin, '/metrics')[2], f'hotbed_serving_http_requests_total{{code="{code}"}} [1-9]')

    def test_a_large_body_is_read(self):
        ids = list(range(30_000))
        code, found = self.ask('item', {'ids': ids})
        self.assertEqual((code, found['rows'], sum(found['exists'])), (200, 30_000, 3))

    def test_the_tables_and_the_document(self):
        code, text = curl(f'http://{self.http}/v1/tables')
        self.assertEqual(code, 200)
        self.assertEqual([(t['table'], t['dim'], t['format'], t['ready'], t['rows']) for t in json.loads(text)['tables']],
                         [('item', 3, 'fp32', True, 3), ('user', 4, 'fp32', True, 3)])
        code, text = curl(f'http://{self.http}/openapi.json')
        self.assertEqual((code, sorted(json.loads(text)['paths'])),
                         (200, ['/openapi.json', '/v1/tables', '/v1/tables/{name}:lookup']))

    def test_status_says_where_http_is(self):
        self.assertEqual([server['http_address'] for server in self.up.json('serve', 'status')['servers']], [self.http])

    def test_the_curl_lines_of_the_pages_work(self):
        for page in PAGES:
            with open(os.path.join(ROOT, page), encoding='utf-8') as file:
                lines = [line.strip() for line in file if line.startswith('curl ')]
            self.assertGreater(len(lines), 0, page)
            for line in lines:
                self.assertIn(ADDRESS, line)
                done = subprocess.run(['bash', '-c', line.replace(ADDRESS, self.http) + ' --noproxy "*" -w "\n%{http_code}"'],
                                      capture_output=True, timeout=60, check=False)
                self.assertTrue(done.returncode == 0 and done.stdout.endswith(b'\n200'), f'{page}: {line}: {done}')


class TwoCopies(unittest.TestCase):
    def test_a_silent_server_is_not_waited_for(self):
        with tempfile.TemporaryDirectory(prefix='hotbed-serving-') as directory:
            up = local.Up(directory, '--servers', 1, '--port', 0, '--host-bytes', '64MiB')
            self.addCleanup(up.stop)
            servers = [serving_server(up.coordinator, name=name)[0] for name in ('r0', 'r1')]
            for server in servers:
                self.addCleanup(end, server)
            with hotbed.connect(f'hotbed://{up.coordinator}', session='serving') as trainer:
                table = trainer.create_table('user', dim=2, rows=100, init='zero', optimizer=hotbed.optim.SGD(lr=1.0))
                table.push([7], np.ones((1, 2), np.float32), step=1)
            self.assertEqual(up.cli('serve', 'add', 'user', '--replicas=2')[0], 0)
            local.eventually('both copies are ready', lambda: [copy['state'] for copy in up.json('serve', 'status')['tables'][0][
                'copies']] == ['ready', 'ready'])
            with hotbed.ServingClient(f'hotbed://{up.coordinator}') as client:
                servers[1].send_signal(signal.SIGSTOP)
                self.addCleanup(servers[1].send_signal, signal.SIGCONT)
                # Calls take turns among the two. Without a second call, one to r1 would wait for half of the timeout.
                for _ in range(4):
                    rows = client.lookup({'user': [7]}, timeout=1000, hedge_after=0.02)['user']
                    self.assertEqual((rows.server, rows.values.tolist()), ('r0', [[-1, -1]]))

    def test_versions_stay_while_rows_change(self):
        with tempfile.TemporaryDirectory(prefix='hotbed-serving-') as directory:
            up = local.Up(os.path.join(directory, 'cluster'), '--servers', 1, '--port', 0, '--host-bytes', '64MiB')
            self.addCleanup(up.stop)
            self.addCleanup(end, serving_server(up.coordinator)[0])
            with hotbed.connect(f'hotbed://{up.coordinator}', session='serving') as trainer:
                table = trainer.create_table('user', dim=2, hashed=True, init='zero', optimizer=hotbed.optim.SGD(lr=1.0))
                table.push([7], np.full((1, 2), -1, np.float32), step=1)
                self.assertEqual(up.cli('serve', 'add', 'user')[0], 0)
                published = up.json('publish', 'user', os.path.join(directory, 'versions'), '--name', 'v1')
                self.assertTrue(published['current'])
                table.push([7, 8], np.full((2, 2), -1, np.float32), step=2)
                with hotbed.ServingClient(f'hotbed://{up.coordinator}') as client:
                    local.eventually('both pushes are served', lambda: client.lookup(
                        {'user': [7]}, timeout=20)['user'].values.tolist() == [[2, 2]])
                    for version in ('current', 'v1'):
                        rows = client.lookup({'user': [7, 8]}, timeout=20, version=version)['user']
                        self.assertEqual((rows.values.tolist(), rows.exists.tolist()), ([[1, 1], [0, 0]], [True, False]))
                        self.assertEqual((rows.version, rows.age), ('v1', 0))
                    with self.assertRaisesRegex(hotbed.NotFound, 'no version "v2"; there are: v1'):
                        client.lookup({'user': [7]}, timeout=20, version='v2')
                    with self.assertRaisesRegex(hotbed.InvalidArgument, 'staleness_max'):
                        client.lookup({'user': [7]}, timeout=20, version='v1', staleness_max=1)
                    table.delete([7], step=3)
                    local.eventually('the deletion is served', lambda: client.lookup(
                        {'user': [7, 8]}, timeout=20)['user'].exists.tolist() == [False, True])
                    rows = client.lookup({'user': [7]}, timeout=20, version='v1')['user']
                    self.assertEqual((rows.values.tolist(), rows.exists.tolist()), ([[1, 1]], [True]))


class ServingWithTls(unittest.TestCase):
    def test_http_asks_for_tokens_by_table(self):
        with tempfile.TemporaryDirectory(prefix='hotbed-serving-') as directory:
            token, rules = os.path.join(directory, 'token'), os.path.join(directory, 'rules.yaml')
            with open(token, 'w', encoding='utf-8') as file:
                file.write('a token nobody guesses\n')
            code, digest, err = local.run('hotbed', 'cert', 'hash-token', token)
            self.assertEqual(code, 0, err)
            with open(rules, 'w', encoding='utf-8') as file:
                file.write('rules:\n  - role: reader\n    methods: [Lookup]\n    tables: ["ads.*"]\n'
                           f'tokens:\n  - name: web\n    role: reader\n    sha256: {digest.strip()}\n')
            up = local.Up(os.path.join(directory, 'cluster'), '--servers', 1, '--port', 0, '--tls', '--access-rules', rules)
            self.addCleanup(up.stop)
            folder = os.path.join(directory, 'cluster', 'tls')
            flags = [f'--tls-ca={folder}/ca.crt', f'--tls-cert={folder}/server.crt', f'--tls-key={folder}/server.key',
                     f'--access-rules={rules}']
            process, http = serving_server(up.coordinator, *flags)
            self.addCleanup(end, process)
            bearer = ('-H', 'Authorization: Bearer a token nobody guesses')

            def code_of(table, *words):
                return curl(*words, '-d', '{"ids": [1]}', f'http://{http}/v1/tables/{table}:lookup')[0]

            self.assertEqual(code_of('ads.user'), 401)
            self.assertEqual(code_of('ads.user', '-H', 'Authorization: Bearer another'), 401)
            self.assertEqual(code_of('user', *bearer), 403)
            self.assertEqual(code_of('ads.user', *bearer), 404)  # allowed, and not served
            self.assertEqual(curl(*bearer, f'http://{http}/v1/tables')[0], 403)
            self.assertEqual(curl(f'http://{http}/openapi.json')[0], 200)


class Flags(unittest.TestCase):
    def test_http_beyond_loopback_must_be_insisted_on(self):
        words = ['hotbed-server', '--name=r0', '--coordinator=127.0.0.1:1', '--http-listen=0.0.0.0:0']
        code, _, err = local.run(*words, '--role=serving')
        self.assertEqual(code, 2, err)
        self.assertIn('--http-secure=off-beyond-loopback', err)
        code, _, err = local.run(*words, '--data-dir=/nowhere', '--http-secure=off-beyond-loopback')
        self.assertEqual(code, 2, err)
        self.assertIn('allowed: with --role=serving', err)


if __name__ == '__main__':
    unittest.main()
