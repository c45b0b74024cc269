"""hotbed.ServingClient and lookups by HTTP, against a cluster with a serving server; and the curl lines of the documents."""

import base64
import glob
import http.client
import itertools
import json
import os
import random
import re
import shutil
import signal
import socket
import ssl
import struct
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import numpy as np

import hotbed

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.join(HERE, '..', '..')
sys.path[:0] = [os.path.join(HERE, '..', 'e2e'), os.path.join(HERE, '..', 'fault'), HERE]
import fuzzing  # noqa: E402  (tests/fault)
import hostile  # noqa: E402  (tests/fault)
import local  # noqa: E402  (tests/e2e)
import top_k_test  # noqa: E402

PAGES = ('README.md', os.path.join('docs', 'serving.md'))
ADDRESS = '127.0.0.1:7480'  # in the pages


def serving_server(coordinator, *flags, name='r0'):
    """(process, address of its HTTP port)"""
    process = subprocess.Popen([local.program('hotbed-server'), '--role=serving', f'--name={name}', f'--coordinator={coordinator}',
                                '--listen=127.0.0.1:0', '--admin-listen=127.0.0.1:0', '--http-listen=127.0.0.1:0',
                                '--host-bytes=64MiB', *flags], stdout=subprocess.PIPE, text=True,
                               env=local.clean_environment())
    line = process.stdout.readline()
    return process, re.search(r' https? (127\.0\.0\.1:\d+)$', line.strip()).group(1)


def end(process):
    process.terminate()
    process.communicate(timeout=60)


def pause(process):
    """Returns when each of its threads has stopped: one that runs may answer until then."""
    process.send_signal(signal.SIGSTOP)
    os.waitpid(process.pid, os.WUNTRACED)


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
        cls.process, cls.http = serving_server(cls.up.coordinator)
        cls.addClassCleanup(end, cls.process)
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

    def test_topk_is_a_brute_force_over_the_rows(self):
        ids = np.array([0, 17, 99], np.uint64)
        rows = np.array([self.row('user', number) for number in ids])
        vectors = np.random.default_rng(5).normal(size=(2, 4)).astype(np.float32)
        for metric in ('dot', 'cosine', 'l2'):
            found = self.client.topk('user', vectors, 10, metric=metric, timeout=20)
            self.assertEqual((len(found.pairs), found.server, found.version), (2, 'r0', ''))
            for (got, scores), vector in zip(found.pairs, vectors):
                want, want_scores = top_k_test.twin(rows, ids, vector, 10, metric)
                np.testing.assert_array_equal(got, want)
                np.testing.assert_array_equal(scores, want_scores)
        (got, _), = self.client.topk('user', vectors[0], 10, filter=[17, 99, 5], first_id=18, timeout=20).pairs
        self.assertEqual(got.tolist(), [99])
        code, out = curl('-d', '@-', f'http://{self.http}/v1/tables/user:topk', body=json.dumps({'vectors': vectors.tolist(), 'k': 2}))
        self.assertEqual(code, 200, out)
        for answer, pair in zip(json.loads(out)['nearest'], self.client.topk('user', vectors, 2, timeout=20).pairs):
            self.assertEqual((answer['ids'], answer['scores']), (pair[0].tolist(), pair[1].tolist()))
        command = self.up.json('topk', 'user', '--served', '--id', 17, '--k', 3)[0]['rows']
        self.assertEqual([row['id'] for row in command], top_k_test.twin(rows, ids, rows[1], 3, 'dot')[0].tolist())
        for call, text in ((lambda: self.client.topk('user', vectors[0][:3], 1), 'vectors is 12 bytes long; allowed: multiples of 16'),
                           (lambda: self.client.topk('user', vectors[0], 0), r'k is 0; allowed: 1\.\.16384'),
                           (lambda: self.client.topk('user', np.full(4, np.nan, np.float32), 1), 'is nan; allowed: finite'),
                           (lambda: self.client.topk('user', vectors[0], 1, metric='max'), 'metric is "max"')):
            with self.assertRaisesRegex(hotbed.InvalidArgument, text):
                call()
        with self.assertRaises(hotbed.NotFound):
            self.client.topk('nobody', vectors[0], 1)
        code, _, err = self.up.cli('topk', 'user', '--id', 17, '--version', 'v1')
        self.assertEqual(code, 2, err)
        self.assertIn('add --served', err)

    def test_topk_without_a_row_is_empty(self):
        vectors = np.ones((2, 4), np.float32)
        for only in ({'filter': []}, {'first_id': 100}):
            for ids, scores in self.client.topk('user', vectors, 3, timeout=20, **only).pairs + self.trainer.table('user').topk(vectors, 3, **only):
                self.assertEqual((ids.shape, ids.dtype, scores.shape, scores.dtype), ((0,), np.uint64, (0,), np.float64))

    def test_a_request_that_is_too_large_is_refused_at_once(self):
        before = self.client.stats()['calls']
        for call in (lambda: self.client.lookup({'user': np.zeros(2_200_000, np.uint64)}, timeout=600),
                     lambda: self.client.lookup({'user': np.zeros(5_000_000, np.uint64)}, timeout=600)):
            with self.assertRaisesRegex(hotbed.InvalidArgument, r'table "user" with .*0,?000 ids.*allowed: 16777216, its --message-bytes-max'):
                call()
        self.assertEqual(self.client.stats()['calls'], before, 'nothing was sent')

    def test_commands_say_that_a_table_is_composed(self):
        code, _, err = self.up.cli('table', 'create', 'q', '--dim', 4, '--rows', 10000, '--compose', 'quotient-remainder')
        self.assertEqual(code, 0, err)
        for words in (('serve', 'add', 'q'), ('publish', 'q', '/nowhere/versions'), ('topk', 'q', '--id', 1)):
            code, _, err = self.up.cli(*words)
            self.assertEqual(code, 1, err)
            self.assertRegex(err, 'table "?q"? is composed', words)

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
        with self.assertRaisesRegex(hotbed.ArrayError, r'weights is int64 of shape \(2\); allowed: 2 floats, one per id'):
            self.client.lookup({'item': hotbed.Bags([1, 2], [0], 'sum', np.ones(2, np.int64))})
        with self.assertRaisesRegex(hotbed.ArrayError, 'weights is a list with elements that are no numbers'):
            self.client.lookup({'item': hotbed.Bags([1, 2], [0], 'sum', ['a', 'b'])})
        bags = [hotbed.Bags([17, 99], [0], 'sum', weights) for weights in ([2, 1], [2.0, 1.0])]
        whole, floats = (self.client.lookup({'item': one}, timeout=20)['item'].values.tolist() for one in bags)
        self.assertEqual(whole, floats)
        with self.assertRaisesRegex(hotbed.ArrayError, 'ids is float'):
            self.client.lookup({'item': np.array([0.5])})
        with self.assertRaises(hotbed.InvalidArgument):
            hotbed.ServingClient('127.0.0.1:7400')
        closed = hotbed.ServingClient(f'hotbed://{self.up.coordinator}')
        closed.close()
        closed.close()
        with self.assertRaises(hotbed.ClosedError):
            closed.lookup({'user': [1]})

    def test_a_partial_answer_says_what_is_missing(self):
        with self.assertRaises(hotbed.NotFound):
            self.client.lookup({'user': [17], 'nobody': [1]}, timeout=20)
        self.assertIsNone(self.client.lookup({'user': [17]}, timeout=20)['user'].tiers)
        self.assertEqual(self.client.lookup({'user': [17, 5]}, timeout=20, with_tiers=True)['user'].tiers.tolist(), [1, 0])
        found = self.client.lookup({'user': [17], 'nobody': [1]}, timeout=20, partial=True, batch=True)
        np.testing.assert_array_equal(found['user'].values, [self.row('user', 17)])
        self.assertIsNone(found['user'].error)
        nobody = found['nobody']
        self.assertIsInstance(nobody.error, hotbed.NotFound)
        self.assertIn('table "nobody" is not served', str(nobody.error))
        self.assertEqual((nobody.values.size, nobody.exists.size), (0, 0))
        with self.assertRaises(hotbed.NotFound):
            self.client.lookup({'nobody': [1]}, timeout=20, partial=True)

    def test_rows_that_expire_go_from_copies(self):
        table = self.trainer.create_table('living', dim=2, hashed=True, touches=True, shows=True, show_decay=0.5,
                                          show_period_s=1 << 31, optimizer=hotbed.optim.SGD(lr=1.0))
        ids = np.arange(40)
        table.push(ids, np.ones((40, 2), np.float32), step=1, clicks=ids % 4)
        table.push(ids, np.ones((40, 2), np.float32), step=2, shows=np.full(40, 3), clicks=ids % 4)
        self.assertEqual(self.up.cli('serve', 'add', 'living')[0], 0)
        self.addCleanup(self.up.cli, 'serve', 'remove', 'living')

        def exist():
            try:
                return self.client.lookup({'living': ids}, timeout=20)['living'].exists.tolist()
            except hotbed.NotFound:
                return []
        local.eventually('all rows are served', lambda: exist() == [True] * 40)
        code, _, err = self.up.cli('table', 'alter', 'living', '--score-least', 5)
        self.assertEqual(code, 0, err)
        local.eventually('rows of a low score are gone', lambda: exist() == (ids % 4 == 3).tolist())

    def test_a_version_as_of_a_step_has_the_rows_of_that_step(self):
        ids, steps, stop, troubles = np.arange(100), [0], threading.Event(), []

        def train():
            try:
                with hotbed.connect(f'hotbed://{self.up.coordinator}', session='stepping', trainer_group='stepping') as trainer:
                    table, step = trainer.table('stepped'), trainer.join_trainers()
                    while not stop.is_set():
                        trainer.begin_step(step)
                        table.push(ids, np.full((100, 2), -1, np.float32), step=step)
                        trainer.end_step(step)
                        steps[0], step = step, step + 1
                        time.sleep(0.02)
            except hotbed.HotbedError as error:
                troubles.append(error)
        self.trainer.create_table('stepped', dim=2, rows=100, init='zero', optimizer=hotbed.optim.SGD(lr=1.0), consistency='sync',
                                  column_slices=2)
        self.assertEqual(self.up.cli('serve', 'add', 'stepped')[0], 0)
        self.addCleanup(self.up.cli, 'serve', 'remove', 'stepped')
        thread = threading.Thread(target=train)
        thread.start()
        try:
            local.eventually('steps', lambda: steps[0] > 2 or troubles)
            with tempfile.TemporaryDirectory(prefix='hotbed-stepped-') as place:
                code, ahead = 1, 30
                while code != 0:  # until the command comes before its step
                    wanted = steps[0] + ahead
                    code, _, err = self.up.cli('publish', 'stepped', place, '--name', 'v1', '--at-step', wanted, '--group', 'stepping')
                    if code != 0:
                        self.assertIn('the first step to save at is now', err)
                    ahead *= 2
                rows = self.client.lookup({'stepped': ids}, timeout=20, version='v1')['stepped']
                np.testing.assert_array_equal(rows.values, np.full((100, 2), wanted, np.float32))
                self.assertEqual(self.up.json('serve', 'status')['versions'][0]['at_step'], wanted)
        finally:
            stop.set()
            thread.join()
        self.assertEqual(troubles, [])

    def test_garbage_at_the_data_port_ends_nobodys_lookups(self):
        chance = random.Random(5)
        address = self.up.json('serve', 'status')['servers'][0]['address']
        ids = struct.pack('<2Q', 0, 17)
        whole = hostile.field(1, hostile.field(1, 1) + hostile.field(2, 2)) + hostile.field(4, ids)
        paths = [f'/hotbed.v1.{name}' for name in ('Serving/Lookup', 'Serving/TopK', 'ServingRelay/FollowCopy', 'ServingRelay/ListCopy')]
        for number in range(400):
            peer = hostile.Peer(address)
            try:
                if number % 4 == 0:
                    peer.socket.sendall(chance.randbytes(chance.choice((1, 9, 24, 1000, 60_000))))
                elif number % 50 == 1:
                    # More than --message-bytes-max: of the second one all is sent.
                    peer.half_message(chance.choice(paths), 0xFFFFFFFF, 1 << 20, 0.1)
                    peer.call(paths[0], bytes(17 << 20))
                else:
                    for path in paths:
                        peer.call(path, fuzzing.mutated(chance, whole) if number % 2 else chance.randbytes(chance.randrange(300)))
                    peer.next_frame(0.01)
            except OSError:
                pass  # ended by the server, as it may be
            peer.close()
        self.assertIsNone(self.process.poll(), 'the server has ended')
        found = self.client.lookup({'user': [17, 5]}, timeout=20)['user']
        np.testing.assert_array_equal(found.values, [self.row('user', 17), np.zeros(4)])

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
        # Tables of other tests may still be on their way out.
        own = [t for t in json.loads(text)['tables'] if t['table'] in ('item', 'user')]
        self.assertEqual([(t['table'], t['dim'], t['format'], t['ready'], t['rows']) for t in own],
                         [('item', 3, 'fp32', True, 3), ('user', 4, 'fp32', True, 3)])
        code, text = curl(f'http://{self.http}/openapi.json')
        self.assertEqual((code, sorted(json.loads(text)['paths'])),
                         (200, ['/openapi.json', '/v1/lookup', '/v1/tables', '/v1/tables/{name}:lookup', '/v1/tables/{name}:topk', '/v1/versions']))

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
            servers, ports = zip(*(serving_server(up.coordinator, f'--failure-domain=z{name[1]}', name=name) for name in ('r0', 'r1')))
            for server in servers:
                self.addCleanup(end, server)
            with hotbed.connect(f'hotbed://{up.coordinator}', session='serving') as trainer:
                table = trainer.create_table('user', dim=2, rows=100, init='zero', optimizer=hotbed.optim.SGD(lr=1.0))
                table.push([7], np.ones((1, 2), np.float32), step=1)
            self.assertEqual(up.cli('serve', 'add', 'user', '--replicas=2')[0], 0)
            local.eventually('both copies are ready', lambda: [copy['state'] for copy in up.json('serve', 'status')['tables'][0][
                'copies']] == ['ready', 'ready'])
            self.any_port_answers(up, ports, servers)
            for number in range(2):
                with hotbed.ServingClient(f'hotbed://{up.coordinator}', failure_domain=f'z{number}') as client:
                    self.assertEqual({client.lookup({'user': [7]}, timeout=20)['user'].server for _ in range(6)}, {f'r{number}'})
            without_budget = self.client_that_stays_with('r1', up, hedge_budget=0)
            with self.client_that_stays_with('r1', up) as client:
                asked = client.stats()['calls']
                pause(servers[1])
                self.addCleanup(servers[1].send_signal, signal.SIGCONT)
                # Without a second call, the first one would wait for half of the timeout.
                for _ in range(4):
                    rows = client.lookup({'user': [7]}, timeout=1000, hedge_after=0.02)['user']
                    self.assertEqual((rows.server, rows.values.tolist()), ('r0', [[-1, -1]]))
                stats = client.stats()
                self.assertTrue(0 < stats['hedges_won'] <= stats['hedges'] <= stats['calls'] - asked, stats)
                self.assertEqual(stats['hedges_refused'], 0)
                counted = [re.search(r'hotbed_serving_hedged_lookups_total (\d+)', local.http(server['admin_address'], '/metrics')[2])
                           for server in up.json('serve', 'status')['servers'] if server['name'] == 'r0']
                self.assertEqual(int(counted[0].group(1)), stats['hedges'])
            with without_budget as client:
                for _ in range(4):  # one of them waits for r1 for half of its time
                    self.assertEqual(client.lookup({'user': [7]}, timeout=2, hedge_after=0.02)['user'].server, 'r0')
                self.assertEqual(client.stats()['hedges'], 0)
                self.assertGreater(client.stats()['hedges_refused'], 0)
                # Nobody answers now: Ctrl-C ends the call.
                pause(servers[0])
                self.addCleanup(servers[0].send_signal, signal.SIGCONT)
                for call in (lambda: client.lookup({'user': [7]}, timeout=1000), lambda: client.topk('user', [1, 0], 5, timeout=1000)):
                    with self.assertRaises(KeyboardInterrupt):
                        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
                        call()
            with self.assertRaisesRegex(hotbed.InvalidArgument, 'hedge_budget is 2; allowed: 0..1'):
                hotbed.ServingClient(f'hotbed://{up.coordinator}', hedge_budget=2)

    def client_that_stays_with(self, server, up, **options):
        """A client stays with one copy, and clients spread over the two."""
        for _ in range(100):
            client = hotbed.ServingClient(f'hotbed://{up.coordinator}', **options)
            asked = {client.lookup({'user': [7]}, timeout=20)['user'].server for _ in range(10)}
            self.assertEqual(len(asked), 1, asked)
            if asked == {server}:
                return client
            client.close()
        return self.fail(f'no client of 100 asks {server}')

    def any_port_answers(self, up, ports, servers):
        """A table on one of two servers, and one on both."""
        with hotbed.connect(f'hotbed://{up.coordinator}', session='single') as trainer:
            trainer.create_table('item', dim=2, rows=100, init='zero', optimizer=hotbed.optim.SGD(lr=1.0)).push(
                [3], np.full((1, 2), -2, np.float32), step=1)
        self.assertEqual(up.cli('serve', 'add', 'item', '--replicas=1')[0], 0)
        local.eventually('a copy of item is ready', lambda: [copy['state'] for table in up.json('serve', 'status')['tables'] for copy in
                                                             table['copies'] if table['table'] == 'item'] == ['ready'])
        body = {'tables': [{'table': 'user', 'ids': [7]}, {'table': 'item', 'ids': [3, 4]}], 'timeout_ms': 20_000}
        for port in ports:
            def ask(path, body, port=port):
                code, text = curl('-d', json.dumps(body), f'http://{port}/v1/{path}')
                return code, json.loads(text)

            code, found = ask('tables/item:lookup', {'ids': [3], 'priority': 'batch', 'timeout_ms': 20_000})
            self.assertEqual((code, found.get('values')), (200, [[2, 2]]), found)
            code, found = ask('lookup', body)
            self.assertEqual((code, [(t['values'], t['exists']) for t in found['tables']]),
                             (200, [([[-1, -1]], [True]), ([[2, 2], [0, 0]], [True, False])]), found)
            code, found = ask('tables/item:topk', {'vectors': [[1, 0]], 'timeout_ms': 20_000})
            self.assertEqual((code, found['nearest']), (200, [{'ids': [3], 'scores': [2]}]))
            code, found = ask('lookup', {**body, 'partial': True, 'tables': [*body['tables'], {'table': 'nobody', 'ids': [1]}]})
            self.assertEqual((code, found['tables'][2]['error']['code'], found['tables'][1]['values']), (200, 404, [[2, 2], [0, 0]]))
        self.a_silent_server_costs_its_tables_alone(up, ports, servers, {**body, 'partial': True, 'timeout_ms': 4000})
        self.assertEqual(up.cli('serve', 'remove', 'item')[0], 0)

    def a_silent_server_costs_its_tables_alone(self, up, ports, servers, body):
        """The one that has item is paused; the port of the other one is asked for both tables."""
        place = [copy['server'] for table in up.json('serve', 'status')['tables'] for copy in table['copies'] if table['table'] == 'item']
        paused = int(place[0][1])
        pause(servers[paused])
        try:
            code, text = curl('-d', json.dumps(body), f'http://{ports[1 - paused]}/v1/lookup')
        finally:
            servers[paused].send_signal(signal.SIGCONT)
        self.assertEqual(code, 200, text)
        user, item = json.loads(text)['tables']
        self.assertEqual(user.get('values'), [[-1, -1]], user)
        self.assertIn(item['error']['code'], (503, 504), item)

    def test_a_part_without_a_server_leaves_the_rows_of_the_other(self):
        with tempfile.TemporaryDirectory(prefix='hotbed-serving-') as directory:
            up = local.Up(directory, '--servers', 1, '--port', 0, '--host-bytes', '64MiB')
            self.addCleanup(up.stop)
            servers, ports = zip(*(serving_server(up.coordinator, name=name) for name in ('r0', 'r1')))
            for server in servers:
                self.addCleanup(end, server)
            local.eventually('both report', lambda: len(up.json('serve', 'status')['servers']) == 2)
            with hotbed.connect(f'hotbed://{up.coordinator}', session='serving') as trainer:
                table = trainer.create_table('user', dim=1, rows=100, init='zero', optimizer=hotbed.optim.SGD(lr=1.0))
                table.push([3, 97], np.full((2, 1), -1, np.float32), step=1)
            self.assertEqual(up.cli('serve', 'add', 'user', '--parts=2')[0], 0)

            def copies():
                return up.json('serve', 'status')['tables'][0]['copies']
            local.eventually('both parts are ready', lambda: [copy['state'] for copy in copies()] == ['ready', 'ready'])
            away = next(int(copy['server'][1]) for copy in copies() if copy['part'] == 1)
            with hotbed.ServingClient(f'hotbed://{up.coordinator}') as client:
                ids = np.array([97, 3, 4])
                self.assertEqual(client.lookup({'user': ids}, timeout=20)['user'].exists.tolist(), [True, True, False])
                servers[away].kill()
                with self.assertRaises(hotbed.HotbedError):
                    client.lookup({'user': ids}, timeout=0.5)
                rows = client.lookup({'user': ids}, timeout=1, partial=True)['user']
                self.assertIn('table "user"', str(rows.error))
                self.assertEqual((rows.known.tolist(), rows.exists.tolist()), ([False, True, True], [False, True, False]))
                self.assertEqual((rows.values.tolist(), rows.server), ([[0], [1], [0]], f'r{1 - away}'))
            code, text = curl('-d', json.dumps({'tables': [{'table': 'user', 'ids': ids.tolist()}], 'partial': True, 'timeout_ms': 2000}),
                              f'http://{ports[1 - away]}/v1/lookup')
            self.assertEqual(code, 200, text)
            found = json.loads(text)['tables'][0]
            self.assertEqual((found['known'], found['values']), ([False, True, True], [[0], [1], [0]]))
            self.assertIn('message', found['error'])

    def test_versions_stay_while_rows_change(self):
        with tempfile.TemporaryDirectory(prefix='hotbed-serving-') as directory:
            up = local.Up(os.path.join(directory, 'cluster'), '--servers', 1, '--port', 0, '--host-bytes', '64MiB')
            self.addCleanup(up.stop)
            process, http = serving_server(up.coordinator)
            self.addCleanup(end, process)
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
                    # The server hears half a second later than readers which version is current.
                    local.eventually('v1 is current at the server', lambda: json.loads(curl(f'http://{http}/v1/versions')[1])[
                        'versions'][0]['current'])
                    for version in ('current', 'v1'):
                        rows = client.lookup({'user': [7, 8]}, timeout=20, version=version)['user']
                        self.assertEqual((rows.values.tolist(), rows.exists.tolist()), ([[1, 1], [0, 0]], [True, False]))
                        self.assertEqual((rows.version, rows.age), ('v1', 0))
                        near = client.topk('user', [1, 0], 5, timeout=20, version=version)
                        self.assertEqual((near.version, near.pairs[0][0].tolist(), near.pairs[0][1].tolist()), ('v1', [7], [1]))
                        code, text = curl('-d', json.dumps({'ids': [7, 8], 'version': version}),
                                          f'http://{http}/v1/tables/user:lookup')
                        self.assertEqual(code, 200, text)
                        found = json.loads(text)
                        self.assertEqual((found['version'], found['values'], found['exists']), ('v1', [[1, 1], [0, 0]], [True, False]))
                    self.assertEqual(client.topk('user', [1, 0], 5, timeout=20).pairs[0][0].tolist(), [7, 8])
                    code, text = curl(f'http://{http}/v1/versions')
                    self.assertEqual([(v['version'], v['current'], v['held'], v['tables']) for v in json.loads(text)['versions']],
                                     [('v1', True, True, ['user'])])
                    with self.assertRaisesRegex(hotbed.NotFound, 'no version "v2"; there are: v1'):
                        client.lookup({'user': [7]}, timeout=20, version='v2')
                    with self.assertRaisesRegex(hotbed.InvalidArgument, 'staleness_max'):
                        client.lookup({'user': [7]}, timeout=20, version='v1', staleness_max=1)
                    table.delete([7], step=3)
                    local.eventually('the deletion is served', lambda: client.lookup(
                        {'user': [7, 8]}, timeout=20)['user'].exists.tolist() == [False, True])
                    rows = client.lookup({'user': [7]}, timeout=20, version='v1')['user']
                    self.assertEqual((rows.values.tolist(), rows.exists.tolist()), ([[1, 1]], [True]))
                    self.each_model_has_a_current_version(up, os.path.join(directory, 'versions'), trainer, client)

    def each_model_has_a_current_version(self, up, place, trainer, client):
        table = trainer.create_table('shop.item', dim=2, hashed=True, init='zero', optimizer=hotbed.optim.SGD(lr=1.0))
        table.push([1], np.full((1, 2), -5, np.float32), step=1)
        self.assertEqual(up.cli('serve', 'add', 'shop.item')[0], 0)

        def current():
            try:
                both = client.lookup({'user': [7], 'shop.item': [1]}, timeout=20, version='current')
            except hotbed.NotFound as error:
                return str(error)
            return [(rows.version, rows.values[0, 0]) for rows in both.values()]

        local.eventually('shop.item is in no version', lambda: 'shop.item" is not in version "v1"' in current())
        published = up.json('publish', 'shop.item', place, '--name', 's1', '--model', 'shop')
        self.assertEqual((published['current'], published['model']), (True, 'shop'))
        local.eventually('s1 is current of shop', lambda: current() == [('v1', 1), ('s1', 5)])
        table.push([1], np.full((1, 2), -1, np.float32), step=2)
        self.assertEqual(up.json('publish', 'shop.item', place, '--name', 's2')['model'], 'shop')
        local.eventually('s2 is current of shop alone', lambda: current() == [('v1', 1), ('s2', 6)])
        self.assertNotEqual(up.cli('serve', 'rollback')[0], 0)
        self.assertEqual(up.json('serve', 'rollback', '--model', 'shop')['version'], 's1')
        local.eventually('s1 is current again', lambda: current() == [('v1', 1), ('s1', 5)])
        self.assertIn('belongs to model shop', up.cli('publish', 'shop.item', place, '--model', 'default')[2])
        self.assertTrue(up.json('publish', 'user', 'shop.item', place, '--name', 'v1b', '--model', 'default', '--share')['current'])
        # Of all tables of the lookup there is one model, and each can be named.
        local.eventually('v1b has both', lambda: current() == [('v1b', 0), ('v1b', 6)])
        for version, expected in (('current/shop', ('s1', 5)), ('current/default', ('v1b', 6))):
            rows = client.lookup({'shop.item': [1]}, timeout=20, version=version)['shop.item']
            self.assertEqual((rows.version, rows.values[0, 0]), expected)
        with self.assertRaisesRegex(hotbed.InvalidArgument, 'belongs to the models default, shop: name one, as "current/default"'):
            client.lookup({'shop.item': [1]}, timeout=20, version='current')
        with self.assertRaisesRegex(hotbed.FailedPrecondition, 'no version of model "web" is current'):
            client.topk('shop.item', [1, 0], 5, timeout=20, version='current/web')
        self.assertTrue(up.json('publish', 'user', 'shop.item', place, '--name', 'v2', '--model', 'default', '--take-over')['current'])
        local.eventually('v2 has both', lambda: current() == [('v2', 0), ('v2', 6)])
        self.assertEqual([v['model'] for v in up.json('serve', 'status')['versions']], ['default'] * 3)


class SlicedVersions(unittest.TestCase):
    """A table in column slices, served in two parts on two servers, and a table of whole rows belong to the same versions."""

    IDS = np.arange(1200)

    def test_versions_have_the_rows_that_were_saved_while_all_rows_change(self):
        with tempfile.TemporaryDirectory(prefix='hotbed-serving-') as directory:
            up = local.Up(os.path.join(directory, 'cluster'), '--servers', 1, '--port', 0, '--host-bytes', '64MiB')
            self.addCleanup(up.stop)
            for name in ('r0', 'r1'):
                self.addCleanup(end, serving_server(up.coordinator, name=name)[0])
            place = os.path.join(directory, 'versions')
            with hotbed.connect(f'hotbed://{up.coordinator}', session='serving') as trainer:
                tables = [trainer.create_table(name, dim=5, hashed=True, init='zero', column_slices=slices, optimizer=hotbed.optim.SGD(lr=1.0))
                          for name, slices in (('sliced', 3), ('whole', 1))]
                local.eventually('both servers report', lambda: len(up.json('serve', 'status')['servers']) == 2)
                self.assertEqual(up.cli('serve', 'add', 'sliced', '--parts=2')[0], 0)
                self.assertEqual(up.cli('serve', 'add', 'whole')[0], 0)
                saved = {'v1': self.change(tables, {}, 1)}
                up.json('checkpoint', 'save', place, '--name', 'v1')
                saved['v2'] = self.change(tables, saved['v1'], 2)
                self.assertTrue(up.json('checkpoint', 'save', place, '--name', 'v2', '--incremental')['parent'])
                with hotbed.ServingClient(f'hotbed://{up.coordinator}') as client:
                    self.publish_while_rows_change(up, place, tables, saved, client)

    def change(self, tables, rows, step):
        """Some rows change, some are new, and some go. Returns the rows that there are, by id."""
        pushed, deleted = self.IDS[self.IDS % 3 < step], self.IDS[self.IDS % 7 == step]
        added = np.add.outer(pushed, np.arange(5)).astype(np.float32)
        for table in tables:
            table.push(pushed, -added, step=2 * step)
            table.delete(deleted, step=2 * step + 1)
        rows = rows | {number: rows.get(number, 0) + row for number, row in zip(pushed, added)}
        return {number: row for number, row in rows.items() if number % 7 != step}

    def publish_while_rows_change(self, up, place, tables, saved, client):
        stop, seen, wrong = threading.Event(), [], []

        def train(step):
            for table in tables:
                table.push(self.IDS, np.full((1200, 5), 0.25, np.float32), step=step)
                table.delete(self.IDS[self.IDS % 5 == step // 2 % 5], step=step + 1)
            stop.wait(0.01)  # copies begin to load now, and have to catch up

        def look_up(_):
            version = random.choice(['current', *{name for name, _ in seen}])
            found = client.lookup({'sliced': self.IDS, 'whole': self.IDS}, timeout=20, version=version)
            for table, rows in found.items():
                seen.append((rows.version, rows.server))
                expected, what = saved[rows.version], f'{table} in {rows.version}'
                np.testing.assert_array_equal(rows.exists, [number in expected for number in self.IDS], what)
                np.testing.assert_array_equal(rows.values, [expected.get(number, np.zeros(5)) for number in self.IDS], what)

        def repeat(work):
            try:
                for step in itertools.count(10, 2):
                    if stop.is_set():
                        return
                    work(step)
            except (hotbed.HotbedError, AssertionError) as error:
                wrong.append(error)

        threads = [threading.Thread(target=repeat, args=(work,)) for work in (train, look_up)]
        threads[0].start()
        try:
            self.assertTrue(up.json('publish', 'sliced', 'whole', place, '--from-checkpoint', 'v1')['current'])
            local.eventually('v1 is known', lambda: self.current(client) == 'v1')
            threads[1].start()
            self.assertTrue(up.json('publish', 'sliced', 'whole', place, '--from-checkpoint', 'v2')['current'])
            local.eventually('v2 is looked up', lambda: wrong or {name for name, _ in seen} == {'v1', 'v2'})
            self.assertEqual(up.json('serve', 'rollback')['version'], 'v1')
            local.eventually('v1 is current again', lambda: wrong or self.current(client) == 'v1')
        finally:
            stop.set()
            for thread in threads:
                if thread.ident is not None:
                    thread.join()
        self.assertEqual(wrong, [])
        self.assertIn('r0,r1', {server for _, server in seen})
        self.assertEqual(up.cli('serve', 'unpublish', 'v2')[0], 0)

    @staticmethod
    def current(client):
        try:
            return client.lookup({'sliced': [1]}, timeout=20, version='current')['sliced'].version
        except hotbed.FailedPrecondition:
            return ''


class ServingWithDisk(unittest.TestCase):
    def test_memory_answers_while_damaged_rows_come_again(self):
        with tempfile.TemporaryDirectory(prefix='hotbed-serving-') as directory:
            up = local.Up(os.path.join(directory, 'cluster'), '--servers', 1, '--port', 0, '--host-bytes', '64MiB')
            self.addCleanup(up.stop)
            disk = f'--data-dir={directory}/r0'
            ids = np.arange(500)
            with hotbed.connect(f'hotbed://{up.coordinator}', session='serving') as trainer:
                table = trainer.create_table('user', dim=8, hashed=True, init='zero', optimizer=hotbed.optim.SGD(lr=1.0))
                table.push(ids, np.random.default_rng(7).normal(size=(500, 8)).astype(np.float32), step=1)
                self.assertEqual(up.cli('shard', 'split', 'user/0')[0], 0)
                self.assertEqual(up.cli('serve', 'add', 'user')[0], 0)
                process, _ = serving_server(up.coordinator, disk)
                self.wait_until_ready(up)
                end(process)  # its rows are in files now
                process, _ = serving_server(up.coordinator, disk)
                self.addCleanup(end, process)
                self.wait_until_ready(up)
                damaged = glob.glob(f'{directory}/r0/serving-r0/t*/rows/*.sst')
                self.assertTrue(damaged)
                for path in damaged:
                    self.zero(path)
                with hotbed.ServingClient(f'hotbed://{up.coordinator}') as client:
                    def exist():
                        return client.lookup({'user': ids}, timeout=20)['user'].exists

                    self.assertTrue(exist().all())
                    table.delete([150, 250], step=2)
                    # Rows of a merged shard come again, and before that the noted changes are written to the disk.
                    self.assertEqual(up.cli('shard', 'merge', 'user/0')[0], 0)

                    def come_again():
                        there = exist()
                        self.assertTrue(np.delete(there, [150, 250]).all())
                        return not there[[150, 250]].any() and self.rows_written(up) >= 498
                    local.eventually('all rows but two come again', come_again)
                    local.eventually('the damaged files are gone', lambda: not any(map(self.has_zeros, damaged)))

    def zero(self, path):
        """Most of the file."""
        size = os.path.getsize(path)
        with open(path, 'r+b') as file:
            file.seek(size // 8)
            file.write(bytes(size // 2))

    def has_zeros(self, path):
        try:
            with open(path, 'rb') as file:
                return bytes(os.path.getsize(path) // 2) in file.read()
        except FileNotFoundError:
            return False

    def wait_until_ready(self, up):
        local.eventually('the copy is ready', lambda: [copy['state'] for table in up.json('serve', 'status')['tables']
                                                       for copy in table['copies']] == ['ready'])

    def rows_written(self, up):
        page = local.http(up.json('serve', 'status')['servers'][0]['admin_address'], '/metrics')[2]
        return sum(float(number) for number in re.findall(r'^hotbed_serving_rows_written_total (\S+)', page, re.MULTILINE))


class ServingWithLittleMemory(unittest.TestCase):
    def test_a_table_that_outgrows_its_server_is_cut_while_it_is_looked_up(self):
        with tempfile.TemporaryDirectory(prefix='hotbed-serving-') as directory:
            up = local.Up(os.path.join(directory, 'cluster'), '--servers', 1, '--port', 0, '--host-bytes', '192MiB')
            self.addCleanup(up.stop)
            for name in ('r0', 'r1', 'r2'):  # each has 36 MiB for rows
                self.addCleanup(end, serving_server(up.coordinator, name=name)[0])
            local.eventually('all report', lambda: len(up.json('serve', 'status')['servers']) == 3)
            with hotbed.connect(f'hotbed://{up.coordinator}', session='serving') as trainer:
                table = trainer.create_table('user', dim=256, hashed=True, init='zero', optimizer=hotbed.optim.SGD(lr=1.0))
                half = 24_000  # 23 MiB

                def push(first):
                    for begin in range(first, first + half, 4000):
                        ids = np.arange(begin, begin + 4000)
                        table.push(ids, np.full((4000, 256), -1, np.float32), step=1 + begin // 4000)
                push(0)
                self.assertEqual(up.cli('serve', 'add', 'user')[0], 0)

                def parts():
                    one = up.json('serve', 'status')['tables'][0]
                    return one['parts'], sorted(copy['part'] for copy in one['copies'] if copy['state'] == 'ready')
                local.eventually('one copy has all', lambda: parts() == (1, [0]))
                with hotbed.ServingClient(f'hotbed://{up.coordinator}') as client:
                    stop, found = threading.Event(), []

                    def look_up():
                        try:
                            while not stop.is_set():
                                rows = client.lookup({'user': np.arange(0, half, 97)}, timeout=20)['user']
                                found.append(rows.server if rows.exists.all() and (rows.values == 1).all() else 'wrong rows')
                                stop.wait(0.01)
                        except hotbed.HotbedError as error:
                            found.append(str(error))
                    reader = threading.Thread(target=look_up)
                    reader.start()
                    try:
                        push(half)
                        local.eventually('two parts answer', lambda: parts() == (2, [0, 1]))
                        local.eventually('readers are told', lambda: ',' in found[-1] or ' ' in found[-1])
                    finally:
                        stop.set()
                        reader.join()
                    self.assertRegex(' '.join(sorted(set(found))), r'^r\d r\d,r\d$')  # the whole, then its parts
                    ids = np.arange(0, 2 * half, 31)
                    local.eventually('all rows are served', lambda: client.lookup({'user': ids}, timeout=20)['user'].exists.all())


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
            process, plain = serving_server(up.coordinator, *flags)
            self.addCleanup(end, process)
            bearer = ('-H', 'Authorization: Bearer a token nobody guesses')

            def code_of(table, *words):
                return curl(*words, '-d', '{"ids": [1]}', f'http://{plain}/v1/tables/{table}:lookup')[0]

            self.assertEqual(code_of('ads.user'), 401)
            self.assertEqual(code_of('ads.user', '-H', 'Authorization: Bearer another'), 401)
            self.assertEqual(code_of('user', *bearer), 403)
            self.assertEqual(code_of('ads.user', *bearer), 404)  # allowed, and not served
            self.assertEqual(curl(*bearer, f'http://{plain}/v1/tables')[0], 403)
            self.assertEqual(curl(f'http://{plain}/openapi.json')[0], 200)
            self.https_answers_as_http(up, folder, flags, bearer)

    def https_answers_as_http(self, up, folder, flags, bearer):
        own = os.path.join(folder, '..', 'own')
        os.mkdir(own)
        for end_of in ('crt', 'key'):
            shutil.copy(f'{folder}/server.{end_of}', own)
        flags = [flag.replace(f'{folder}/server', f'{own}/server') for flag in flags]
        process, https = serving_server(up.coordinator, *flags, '--http-secure=on', name='r1')
        self.addCleanup(end, process)
        trusted = ('--cacert', f'{folder}/ca.crt')

        def code_of(table, *words, body='{"ids": [1]}'):
            return curl(*trusted, *words, '-d', '@-', f'https://{https}/v1/tables/{table}:lookup', body=body)[0]

        self.assertEqual(code_of('ads.user'), 401)
        self.assertEqual(code_of('user', *bearer), 403)
        self.assertEqual(code_of('ads.user', *bearer), 404)  # allowed, and not served
        self.assertEqual(code_of('ads.user', *bearer, body='{"ids": [' + '1, ' * 300_000 + '1]}'), 404)  # of many records of TLS
        with self.assertRaisesRegex(AssertionError, 'SSL|certificate'):
            curl(f'https://{https}/openapi.json')  # of an authority that curl does not know
        with self.assertRaises(AssertionError):
            curl(f'http://{https}/openapi.json')  # in the clear
        context = ssl.create_default_context(cafile=f'{folder}/ca.crt')
        connection = http.client.HTTPSConnection(https, context=context, timeout=60)
        self.addCleanup(connection.close)
        documents = []
        for _ in range(3):  # on one connection
            connection.request('GET', '/openapi.json')
            documents.append(connection.getresponse().read())
        self.assertEqual(documents, [curl(*trusted, f'https://{https}/openapi.json')[1]] * 3)

        def shown():
            host, port = https.split(':')
            with socket.create_connection((host, int(port)), timeout=60) as plain, context.wrap_socket(plain, server_hostname=host) as tls:
                return tls.getpeercert()['serialNumber']

        before = shown()
        code, _, err = local.run('hotbed', 'cert', 'create', '--dir', folder, '--name', 'newer', '--role', 'server', '--host', '127.0.0.1')
        self.assertEqual(code, 0, err)
        for end_of in ('key', 'crt'):
            os.replace(f'{folder}/newer.{end_of}', f'{own}/server.{end_of}')
        local.eventually('the new certificate is shown', lambda: shown() != before)
        connection.request('GET', '/openapi.json')  # the connection goes on
        self.assertEqual(connection.getresponse().read(), documents[0])


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
