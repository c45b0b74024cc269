"""Composed tables against the same compositions of torch.nn's modules, on the local engine."""

import itertools
import os
import tempfile
import unittest

try:
    import torch
    from torch.nn import functional
except ImportError:
    torch = None
import numpy as np

import hotbed

ROWS, DIM, BAGS = 50, 8, 12
TOLERANCE = 1e-6
SEED = int(os.environ.get('HOTBED_TEST_SEED', '11'), 0)


class QuotientRemainder(torch.nn.Module if torch else object):
    """Two tables; rows joined per id and then pooled, or pooled and then joined."""

    def __init__(self, weights, buckets, combine, pool_first, mode):
        super().__init__()
        self.parts = torch.nn.ParameterList([torch.nn.Parameter(w.clone()) for w in weights])
        self.buckets, self.combine, self.pool_first, self.mode = buckets, combine, pool_first, mode

    def join(self, q, r):
        if self.combine == 'concatenate':
            return torch.cat([q, r], -1)
        return q * r if self.combine == 'multiply' else q + r

    def forward(self, ids, offsets, weights=None):
        q, r = ids // self.buckets, ids % self.buckets
        if self.pool_first:
            pooled = [functional.embedding_bag(i, w, offsets, mode=self.mode, per_sample_weights=weights)
                      for i, w in ((q, self.parts[0]), (r, self.parts[1]))]
            return self.join(*pooled)
        rows = self.join(self.parts[0][q], self.parts[1][r])
        return functional.embedding_bag(torch.arange(len(ids)), rows, offsets, mode=self.mode, per_sample_weights=weights)


class Blocks(torch.nn.Module if torch else object):
    """Narrow tables and a linear map for each, over ids in the order of `rank`."""

    def __init__(self, weights, dims, mode, rank=None):
        super().__init__()
        self.parts = torch.nn.ParameterList([torch.nn.Parameter(w.clone()) for w in weights])
        self.dims, self.mode, self.rank = dims, mode, rank

    def forward(self, ids, offsets, weights=None):
        rank = ids if self.rank is None else self.rank[ids]
        if len(self.dims) == 1 and self.dims[0] < DIM:
            pooled = functional.embedding_bag(rank, self.parts[0], offsets, mode=self.mode, per_sample_weights=weights)
            return functional.linear(pooled, self.parts[1])
        each, parts, rows = ROWS // len(self.dims), iter(self.parts), torch.zeros(len(ids), DIM)
        for block, dim in enumerate(self.dims):
            first, last = block * each, ROWS if block + 1 == len(self.dims) else (block + 1) * each
            mine = ((rank >= first) & (rank < last)).nonzero()[:, 0]
            found = next(parts)[rank[mine] - first]
            rows = rows.index_add(0, mine, functional.linear(found, next(parts)) if dim < DIM else found)
        return functional.embedding_bag(torch.arange(len(ids)), rows, offsets, mode=self.mode, per_sample_weights=weights)


OPTIMIZERS = {
    'sgd': (lambda: hotbed.optim.SGD(lr=0.1), lambda p: torch.optim.SGD(p, lr=0.1)),
    'adagrad': (lambda: hotbed.optim.Adagrad(lr=0.05, eps=1e-10), lambda p: torch.optim.Adagrad(p, lr=0.05)),
}


@unittest.skipUnless(torch, 'torch is not installed')
class ComposedTest(unittest.TestCase):

    def setUp(self):
        self.client = hotbed.local(memory='128MiB')
        self.addCleanup(self.client.close)
        self.random = np.random.default_rng(SEED)

    def batch(self, weighted):
        lengths = self.random.integers(0, 5, BAGS)
        ids = torch.from_numpy(self.random.integers(0, ROWS, int(lengths.sum())))
        offsets = torch.from_numpy(np.cumsum(lengths) - lengths)
        weights = torch.from_numpy(self.random.random(len(ids), np.float32)) if weighted else None
        return ids, offsets, weights

    def compare(self, ours, plain, optimizer, weighted=False):
        """The outputs of five steps, and the weights after them."""
        trained = OPTIMIZERS[optimizer][1](plain.parameters())
        target = torch.from_numpy(self.random.random((BAGS, DIM), np.float32))
        for step in range(5):
            batch = self.batch(weighted)
            outputs = [module(*batch) for module in (ours, plain)]
            torch.testing.assert_close(outputs[0], outputs[1], rtol=0, atol=TOLERANCE, msg=lambda m: f'step {step}: {m}')
            trained.zero_grad()
            for output in outputs:
                ((output - target) ** 2).mean().backward()
            trained.step()
        ours._training.wait()
        for mine, theirs in zip(ours.get_weights(), plain.parts):
            torch.testing.assert_close(mine, theirs.detach(), rtol=0, atol=TOLERANCE)

    def bag(self, name, optimizer, mode, **options):
        import hotbed.torch as ht
        return ht.EmbeddingBag(ROWS, DIM, client=self.client, name=name, mode=mode, optimizer=OPTIMIZERS[optimizer][0](),
                               **options)

    def test_quotient_remainder(self):
        cases = itertools.product(('multiply', 'add', 'concatenate'), (False, True), ('sum', 'mean', 'max'), OPTIMIZERS)
        for combine, pool_first, mode, optimizer in cases:
            with self.subTest(combine=combine, pool_first=pool_first, mode=mode, optimizer=optimizer):
                ours = self.bag(f'{combine}{pool_first}{mode}{optimizer}', optimizer, mode, compose='quotient-remainder',
                                combine=combine, pool_first=pool_first)
                plain = QuotientRemainder(ours.get_weights(), 8, combine, pool_first, mode)
                self.compare(ours, plain, optimizer, weighted=mode == 'sum')

    def test_blocks(self):
        for dims, mode, optimizer in itertools.product(((3,), (8,), (8, 3, 2)), ('sum', 'mean', 'max'), OPTIMIZERS):
            if len(dims) > 1 and mode == 'max':
                continue  # a maximum over several blocks is of their pooled rows: tests/local
            with self.subTest(dims=dims, mode=mode, optimizer=optimizer):
                ours = self.bag(f'{dims}{mode}{optimizer}'.translate(str.maketrans('', '', '(), ')), optimizer, mode,
                                compose='block', block_dims=dims)
                self.compare(ours, Blocks(ours.get_weights(), dims, mode), optimizer, weighted=mode == 'sum')

    def test_frequency_blocks(self):
        counts = self.random.zipf(1.5, ROWS).astype(np.uint64)
        for mode in ('sum', 'mean'):
            ours = self.bag(f'frequency-{mode}', 'adagrad', mode, histogram=counts, blocks=3)
            order = np.argsort(-counts.astype(np.int64), kind='stable')
            rank = torch.empty(ROWS, dtype=torch.int64)
            rank[torch.from_numpy(order)] = torch.arange(ROWS)
            dims = [int(n) for n in self.client.table(f'frequency-{mode}').options['block-dims'].split(',')]
            self.assertEqual(dims[0], max(dims))
            self.compare(ours, Blocks(ours.get_weights(), dims, mode, rank), 'adagrad')
        with self.assertRaisesRegex(hotbed.errors.InvalidArgument, 'needs the counts of ids'):
            self.bag('uncounted', 'sgd', 'sum', compose='frequency', block_dims=(8, 2))

    def test_pull_and_push_without_torch_modules(self):
        table = self.client.create_table('user', DIM, rows=ROWS, optimizer=hotbed.optim.SGD(lr=1.0), compose='quotient-remainder',
                                         combine='add', padding_id=-1, bounds='zero')
        self.assertEqual([part.name for part in table.parts], ['user/quotient', 'user/remainder'])
        self.assertEqual(table.options['padding-id'], str(ROWS - 1))
        quotient, remainder = table.get_weights()
        ids = np.array([0, 9, ROWS - 1, ROWS, 17])
        rows = table.pull(ids)
        np.testing.assert_allclose(rows[[0, 1, 4]], quotient[[0, 1, 2]] + remainder[[0, 1, 1]], atol=TOLERANCE)
        self.assertFalse(rows[2:4].any())
        table.push(ids, np.ones((5, DIM), np.float32), step=1)
        np.testing.assert_allclose(table.pull(ids)[[0, 1, 4]], rows[[0, 1, 4]] - np.array([[2], [3], [3]], np.float32),
                                   atol=TOLERANCE)
        self.assertIs(self.client.table('user'), table)
        self.client.drop_table('user')
        with self.assertRaises(hotbed.errors.NotFound):
            self.client.table('user/quotient')

    def test_a_checkpoint_has_the_parts_and_brings_the_table_back(self):
        counts = self.random.integers(1, 100, ROWS)
        table = self.client.create_table('user', DIM, histogram=counts, blocks=2, optimizer=hotbed.optim.SGD(lr=1.0))
        table.push(np.arange(ROWS), self.random.random((ROWS, DIM), np.float32), step=1)
        rows = table.pull(np.arange(ROWS))
        names = [part.name for part in table.parts]
        with tempfile.TemporaryDirectory(dir='/dev/shm' if os.access('/dev/shm', os.W_OK) else None) as directory:
            saved = hotbed.save(self.client, directory)
            self.assertEqual([t['name'] for t in saved['tables']], names)
            self.client.drop_table('user')
            with self.assertRaisesRegex(hotbed.errors.InvalidArgument, 'needs part "user/block0"'):
                hotbed.restore(self.client, saved['path'], tables=names[:1])
            hotbed.restore(self.client, saved['path'], weight_type='fp16')
            np.testing.assert_allclose(self.client.table('user').pull(np.arange(ROWS)), rows, atol=1e-2)
            hotbed.restore(self.client, saved['path'], tables={names[1]: 'alone'})
        self.assertEqual(self.client.table('alone').parts, [])
        self.client.drop_table('alone')

    def test_pretrained_block_is_frozen_or_trained(self):
        import hotbed.torch as ht
        weights = [0.3 * torch.randn(ROWS, 3), 0.3 * torch.randn(DIM, 3)]
        batch = self.batch(False)
        for freeze in (True, False):
            bag = ht.EmbeddingBag.from_pretrained(weights, freeze, client=self.client, name=f'pretrained-{freeze}', mode='sum',
                                                  optimizer=hotbed.optim.SGD(lr=0.1), compose='block')
            plain = Blocks(weights, (3,), 'sum')
            if freeze:
                output = bag(*batch)
                torch.testing.assert_close(output, plain(*batch), rtol=0, atol=TOLERANCE)
                self.assertFalse(output.requires_grad)
            else:
                self.compare(bag, plain, 'sgd')
        for mine, given in zip(self.client.table('pretrained-True').get_weights(), weights):
            np.testing.assert_array_equal(mine, given.numpy())
        with self.assertRaisesRegex(hotbed.errors.ArrayError, 'allowed: .*50, 3'):
            ht.import_weights(self.client, self.client.table('pretrained-True'), [weights[0].T, weights[1]])

    def test_max_norm_and_negative_padding_are_those_of_torch(self):
        import hotbed.torch as ht
        torch.manual_seed(SEED)
        start = torch.randn(ROWS, DIM)
        for norm_type in (2.0, 1.0, float('inf')):
            plain = torch.nn.EmbeddingBag(ROWS, DIM, mode='mean', max_norm=1.0, norm_type=norm_type, padding_idx=-3)
            with torch.no_grad():
                plain.weight[:] = start
                plain.weight[-3] = 0
            ours = ht.EmbeddingBag.from_pretrained(start, False, client=self.client, name=f'norm-{norm_type}', mode='mean',
                                                   max_norm=1.0, norm_type=norm_type, padding_idx=-3,
                                                   optimizer=hotbed.optim.SGD(lr=0.5))
            trained = torch.optim.SGD(plain.parameters(), lr=0.5)
            for _ in range(4):
                ids, offsets, _ = self.batch(False)
                outputs = [ours(ids, offsets), plain(ids, offsets)]
                torch.testing.assert_close(outputs[0], outputs[1], rtol=0, atol=TOLERANCE)
                trained.zero_grad()
                for output in outputs:
                    output.square().sum().backward()
                trained.step()


if __name__ == '__main__':
    unittest.main()
