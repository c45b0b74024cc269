"""Top-k by the command and the client, against numpy: over several servers, over the local engine, and while shards move."""

import os
import sys
import tempfile
import threading
import unittest

import numpy as np

import hotbed

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, '..', 'e2e'), HERE]
import local  # noqa: E402  (tests/e2e)

DIM = 24


def joined(terms):
    """Sums over the last axis in the order that row_math/nearness.h states."""
    lanes = np.zeros((*terms.shape[:-1], 8))
    for first in range(0, terms.shape[-1], 8):
        some = terms[..., first:first + 8]
        lanes[..., :some.shape[-1]] += some
    s = [lanes[..., lane] for lane in range(8)]
    return ((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7]))


def twin(rows, ids, vector, k, metric):
    """The nearest of `rows` by brute force in float64: (ids, scores)."""
    w, q = rows.astype(np.float64), np.asarray(vector, np.float32).astype(np.float64)
    if metric == 'l2':
        scores = joined((w - q) * (w - q))
    else:
        scores = joined(w * q)
    if metric == 'cosine':
        norms = np.sqrt(joined(w * w)) * np.sqrt(joined(q * q))
        scores = np.where(norms == 0, 0.0, scores / np.where(norms == 0, 1.0, norms))
    order = np.lexsort((ids, scores if metric == 'l2' else -scores))[:k]
    return ids[order], scores[order]


class TopK(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.directory = tempfile.TemporaryDirectory(prefix='hotbed-topk-')
        cls.addClassCleanup(cls.directory.cleanup)
        cls.up = local.Up(os.path.join(cls.directory.name, 'data'), '--servers', 3, '--port', 0, '--host-bytes', '64MiB')
        cls.addClassCleanup(cls.up.stop)
        cls.client = hotbed.connect(f'hotbed://{cls.up.coordinator}', session='topk')
        cls.addClassCleanup(cls.client.close)
        cls.seed = int(os.environ.get('HOTBED_TEST_SEED', 11))
        cls.random = np.random.default_rng(cls.seed)

    def path(self, name, text):
        path = os.path.join(self.directory.name, name)
        with open(path, 'w', encoding='utf-8') as file:
            file.write(text)
        return path

    def filled(self, client, name, count, **options):
        table = client.create_table(name, dim=DIM, init='zero', optimizer=hotbed.optim.SGD(lr=1.0), **options)
        space = 10 * count if options.get('hashed') else options['rows']
        ids = np.sort(self.random.choice(space, count, replace=False)).astype(np.uint64)
        table.push(ids, self.random.standard_normal((count, DIM)).astype(np.float32), step=1)
        return table, ids, table.pull(ids)

    def compare(self, got, want):
        np.testing.assert_array_equal(got[0], want[0], f'HOTBED_TEST_SEED={self.seed}')
        np.testing.assert_array_equal(got[1], want[1], f'HOTBED_TEST_SEED={self.seed}')

    def check(self, client, prefix):
        for hashed in (False, True):
            for weight_type in ('fp32', 'fp16', 'bf16'):
                options = {'hashed': True} if hashed else {'rows': 9000}
                table, ids, rows = self.filled(client, f'{prefix}-{int(hashed)}-{weight_type}', 4000, weight_type=weight_type,
                                               **options)
                vectors = self.random.standard_normal((3, DIM)).astype(np.float32)
                for metric in ('dot', 'cosine', 'l2'):
                    for got, vector in zip(table.topk(vectors, 50, metric=metric), vectors):
                        self.compare(got, twin(rows, ids, vector, 50, metric))
                some = np.sort(self.random.choice(ids, 700, replace=False))
                known = np.isin(ids, some)
                asked = np.concatenate([some, some[:5]])
                self.compare(table.topk(vectors[0], 9, filter=asked), twin(rows[known], ids[known], vectors[0], 9, 'dot'))
                first, last = sorted(int(i) for i in self.random.choice(ids, 2, replace=False))
                within = (ids >= first) & (ids <= last)
                self.compare(table.topk(vectors[1], 40, metric='l2', first_id=first, last_id=last),
                             twin(rows[within], ids[within], vectors[1], 40, 'l2'))
                found, _ = table.topk(vectors[0], 16384)
                self.assertEqual(len(found), 4000)
                self.assertEqual([len(part) for part in table.topk(vectors[0], 3, filter=[])], [0, 0])
                client.drop_table(table.name)

    def test_equals_numpy_over_three_servers(self):
        self.check(self.client, 'net')

    def test_equals_numpy_over_the_local_engine(self):
        with hotbed.local(memory='128MiB', session='topk') as client:
            self.check(client, 'local')

    def test_ties_are_in_the_order_of_ids(self):
        table = self.client.create_table('ties', dim=DIM, hashed=True, init='zero', optimizer=hotbed.optim.SGD(lr=1.0))
        ids = np.arange(1000, 4000, dtype=np.uint64)
        table.push(ids, np.full((3000, DIM), -0.5, np.float32), step=1)
        for metric in ('dot', 'cosine', 'l2'):
            found, scores = table.topk(np.ones(DIM, np.float32), 100, metric=metric)
            np.testing.assert_array_equal(found, ids[:100])
            self.assertEqual(len(set(scores)), 1)
        # The cosine of a vector of zeros is 0 with every row.
        found, scores = table.topk(np.zeros(DIM, np.float32), 3, metric='cosine')
        self.assertEqual((found.tolist(), scores.tolist()), ([1000, 1001, 1002], [0.0] * 3))
        self.client.drop_table('ties')

    def test_the_command(self):
        table, ids, rows = self.filled(self.client, 'command', 500, rows=600)
        vectors = self.random.standard_normal((2, DIM)).astype(np.float32)
        file = self.path('vectors.txt', '\n'.join(str(v.tolist()) for v in vectors) + '\n')
        answers = self.up.json('topk', 'command', '--vector-file', file, '--k', 7, '--metric', 'cosine')
        self.assertEqual([a['vector'] for a in answers], [0, 1])
        for answer, vector in zip(answers, vectors):
            want, scores = twin(rows, ids, vector, 7, 'cosine')
            self.assertEqual([(r['id'], r['score']) for r in answer['rows']], list(zip(want.tolist(), scores.tolist())))
        of = int(ids[17])
        answer = self.up.json('topk', 'command', '--id', of, '--k', 3, '--metric', 'l2')[0]
        self.assertEqual((answer['of_id'], answer['rows'][0]), (of, {'id': of, 'score': 0.0}))
        few = self.path('few.txt', '\n'.join(map(str, ids[:4].tolist())))
        answer = self.up.json('topk', 'command', '--id', of, '--k', 9, '--filter', few)[0]
        self.assertEqual(sorted(r['id'] for r in answer['rows']), ids[:4].tolist())
        code, out, _ = self.up.cli('topk', 'command', '--id', of, '--k', 2)
        self.assertEqual(code, 0)
        self.assertIn(f'id {of}', out)
        absent = next(i for i in range(600) if i not in set(ids.tolist()))
        for words, said in (
            (('--id', of, '--k', 0), 'k is 0, allowed: 1..16384'),
            (('--id', of, '--k', 16385), 'k is 16385, allowed: 1..16384'),
            (('--id', of, '--metric', 'near'), '--metric is near, allowed: dot, cosine, l2'),
            (('--id', absent), f'--id {absent}: table command has no such row'),
            (('--id', 600), '600'),
            ((), 'give either --vector-file or --id'),
            (('--vector-file', self.path('short', '1 2 3')), f'has 3 numbers, allowed: {DIM}, the dim of table command'),
            (('--vector-file', self.path('word', '1 2 x')), 'line 1: "x" is no number'),
            (('--vector-file', self.path('nan', ' '.join(['nan'] * DIM))), 'element 0 of vector 0 is nan, allowed: finite numbers'),
            (('--vector-file', self.path('empty', '')), 'has no vector'),
            (('--id', of, '--filter', self.path('out', '600')), 'only_ids: id 600 is outside table command, allowed: 0..599'),
            (('--id', of, '--first', 5, '--last', 4), 'first_id is 5, allowed: at most last_id, 4'),
        ):
            code, _, err = self.up.cli('topk', 'command', *words)
            self.assertIn(code, (1, 2), words)
            self.assertIn(said, err)
        code, _, err = self.up.cli('topk', 'nobody', '--id', 1)
        self.assertEqual(code, 1)
        self.assertIn('table nobody does not exist', err)
        self.client.create_table('cut', dim=DIM, rows=100, column_slices=2, optimizer=hotbed.optim.SGD(lr=1.0))
        code, _, err = self.up.cli('topk', 'cut', '--vector-file', file)
        self.assertEqual(code, 1)
        self.assertIn('table cut has 2 column slices', err)
        code, _, err = self.up.cli('topk', 'cut', '--id', 1)
        self.assertIn('table cut has 2 column slices', err, 'it is told before the row is looked for')

    def test_bad_arguments_in_python(self):
        table, _, _ = self.filled(self.client, 'bad', 10, rows=10)
        for call, error, said in (
            (lambda: table.topk(np.ones(3, np.float32), 1), hotbed.ArrayError, 'vectors has shape (3,)'),
            (lambda: table.topk(np.full(DIM, np.inf, np.float32), 1), hotbed.InvalidArgument, 'element 0 of vector 0 is inf'),
            (lambda: table.topk(np.ones(DIM, np.float32), 0), hotbed.InvalidArgument, 'k is 0'),
            (lambda: table.topk(np.ones(DIM, np.float32), 1, metric='max'), hotbed.InvalidArgument, 'metric is "max"'),
            (lambda: table.topk(np.ones((1025, DIM), np.float32), 1), hotbed.InvalidArgument, 'there are 1025 vectors'),
            (lambda: table.topk(np.ones((1024, DIM), np.float32), 1025), hotbed.InvalidArgument, 'allowed: at most 1048576'),
            (lambda: table.topk(np.ones(DIM, np.float32), 1, first_id=-1), hotbed.InvalidArgument, 'first_id is -1'),
            (lambda: table.topk(np.ones(DIM, np.float32), 1, last_id=2**64), hotbed.InvalidArgument, 'last_id is 18446'),
        ):
            with self.assertRaises(error) as raised:
                call()
            self.assertIn(said, str(raised.exception))
        self.assertEqual(table.topk([1.0] * DIM, 2)[0].shape, (2,))

    def test_shards_are_moved_and_split_and_rows_pushed_meanwhile(self):
        table, ids, _ = self.filled(self.client, 'moving', 20000, rows=20000)
        # The nearest rows are always the same ones, and only they change.
        near = ids[::2000]
        step = 2
        table.push(near, np.full((len(near), DIM), -100.0, np.float32), step=step)
        done = threading.Event()
        failures = []

        def change():
            try:
                moved = 0
                for number in range(3):
                    code, _, err = self.up.cli('shard', 'split', f'moving/{number}')
                    self.assertEqual(code, 0, err)
                servers = [server['name'] for server in self.up.json('status')['servers']]
                for number in range(3):
                    for server in servers:  # one of them has it
                        code, _, err = self.up.cli('shard', 'move', f'moving/{number}', '--to', server)
                        self.assertTrue(code == 0 or f'is on {server} already' in err, err)
                        moved += code == 0
                self.assertGreater(moved, 0)
            except Exception as error:  # shown by the test
                failures.append(error)
            finally:
                done.set()

        thread = threading.Thread(target=change)
        thread.start()
        lowest, calls = 0.0, 0
        while not done.is_set() or calls < 5:
            found, scores = table.topk(np.ones(DIM, np.float32), len(near))
            self.assertEqual(sorted(found.tolist()), near.tolist())
            self.assertGreaterEqual(scores.min(), lowest)
            lowest = scores.min()
            step += 1
            table.push(near, np.full((len(near), DIM), -1.0, np.float32), step=step)
            calls += 1
        thread.join()
        self.assertEqual(failures, [])
        rows = table.pull(ids)
        vector = self.random.standard_normal(DIM).astype(np.float32)
        self.compare(table.topk(vector, 200), twin(rows, ids, vector, 200, 'dot'))
        metrics = ''.join(local.http(server['admin_address'], '/metrics')[2] for server in self.up.json('status')['servers'])
        self.assertIn('hotbed_server_top_k_rows_total', metrics)


if __name__ == '__main__':
    unittest.main()
