"""Tables of other systems: state dictionaries, HugeCTR's folders, Parquet."""

import importlib.util
import os
import tempfile
import unittest

import numpy as np

import hotbed
from hotbed import formats

try:
    import torch
except ImportError:
    torch = None


class Sharded:
    """As torch.distributed's ShardedTensor on one rank."""

    class Meta:
        def __init__(self, offsets, size):
            self.shard_offsets, self.size = offsets, size

    class Shard:
        def __init__(self, tensor, meta):
            self.tensor, self.metadata = tensor, meta

    def __init__(self, whole, *ranges):
        self.size = whole.shape
        self.shards = [self.Shard(whole[r0:r1, c0:c1].copy(), self.Meta((r0, c0), (r1 - r0, c1 - c0))) for r0, r1, c0, c1 in ranges]

    def local_shards(self):
        return self.shards

    def metadata(self):
        return self.Meta(None, self.size)


class Formats(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.TemporaryDirectory(prefix='hotbed-formats-')
        self.addCleanup(self.directory.cleanup)
        self.random = np.random.default_rng(5)

    def path(self, name):
        return os.path.join(self.directory.name, name)

    def values(self, *shape):
        return self.random.standard_normal(shape).astype(np.float32)

    def refused(self, message, call, *args, **kwargs):
        with self.assertRaisesRegex(hotbed.InvalidArgument, message):
            call(*args, **kwargs)

    def test_arrays_become_tables_and_misfits_are_refused_before_anything_is_written(self):
        with hotbed.local(self.path('engine')) as client:
            options = {'directory': self.directory.name, 'optimizer': hotbed.optim.SGD(lr=1)}
            want, ids = self.values(50, 4), self.random.integers(-2**63, 2**63, 50)
            self.assertEqual(formats.import_arrays(client, 'bounded', want, **options)['rows'], 50)
            np.testing.assert_array_equal(client.table('bounded').pull(np.arange(50)), want)
            formats.import_arrays(client, 'hashed', want, ids=ids, **options)
            np.testing.assert_array_equal(client.table('hashed').pull(ids), want)
            holes = want.copy()
            holes[7, 2] = np.nan
            before = sorted(os.listdir(self.directory.name))
            for message, array, more in (
                    ('Fortran order', np.asfortranarray(want), {}), ('big-endian', want.astype('>f4'), {}),
                    ('float64', want.astype(np.float64), {}), ('its shape is', want[0], {}), ('row 7, column 2 is nan', holes, {}),
                    ('one per row', want, {'ids': ids[1:]}), ('occurs twice', want, {'ids': ids // 2**62}),
                    ('list; allowed', want.tolist(), {}), ('dim is 5', want, {'dim': 5})):
                self.refused(message, formats.import_arrays, client, 'never', array, **options, **more)
            self.assertEqual(sorted(os.listdir(self.directory.name)), before)
            self.assertEqual(sorted(t['name'] for t in client.tables()), ['bounded', 'hashed'])

    def test_shards_of_all_ranks_are_joined(self):
        whole, other = self.values(10, 6), self.values(3, 2)
        key = 'sparse.embedding_bags.user.weight'
        ranks = [{key: Sharded(whole, (0, 4, 0, 3)), 'embeddings.item.weight': other},
                 {key: Sharded(whole, (4, 10, 0, 3), (0, 10, 3, 6)), 'embeddings.item.weight': other}]
        tables = formats.tables_of_state_dicts(ranks)
        self.assertEqual(sorted(tables), ['item', 'user'])
        np.testing.assert_array_equal(tables['user'], whole)
        np.testing.assert_array_equal(tables['item'], other)
        self.refused('no shard has row 4, column 0', formats.tables_of_state_dicts, [ranks[0], {key: Sharded(whole, (0, 10, 3, 6))}])
        self.refused('overlaps', formats.tables_of_state_dicts, [ranks[0], ranks[0], ranks[1]])
        self.refused('does not fit', formats.tables_of_state_dicts, [ranks[0], {key: Sharded(self.values(11, 6), (0, 11, 3, 6))}])

    def test_flat_weights_of_fbgemm_are_cut(self):
        first, second = self.values(5, 4), self.values(3, 8)
        state = {'tbe.weights_host': first.reshape(-1), 'tbe.weights_dev': second.reshape(-1), 'tbe.weights_uvm': np.empty(0, np.float32),
                 'tbe.weights_offsets': np.array([0, 0]), 'tbe.D_offsets': np.array([0, 4, 12]),
                 'tbe.rows_per_table': np.array([5, 3]), 'tbe.weights_placements': np.array([3, 0])}
        tables = formats.tables_of_state_dicts(state)
        np.testing.assert_array_equal(tables['tbe.0'], first)
        np.testing.assert_array_equal(tables['tbe.1'], second)
        self.refused('cut off: 19 elements', formats.tables_of_state_dicts, {**state, 'tbe.weights_host': first.reshape(-1)[:19]})
        self.refused('has no tbe.D_offsets', formats.tables_of_state_dicts, {k: v for k, v in state.items() if 'D_' not in k})

    @unittest.skipIf(torch is None, 'torch is not installed')
    def test_a_file_of_torch_save(self):
        model = torch.nn.ModuleDict({'users': torch.nn.EmbeddingBag(6, 3), 'norm': torch.nn.LayerNorm(3)})
        torch.save(model.state_dict(), self.path('model.pt'))
        tables = formats.tables_of_state_dicts(torch.load(self.path('model.pt'), map_location='cpu'))
        self.assertEqual(list(tables), ['users.weight'])
        np.testing.assert_array_equal(tables['users.weight'], model['users'].weight.detach().numpy())
        half = formats.tables_of_state_dicts({'e.weight': torch.ones(2, 2, dtype=torch.bfloat16)})['e.weight']
        np.testing.assert_array_equal(half, np.ones((2, 2), np.float32))

    def test_a_sparse_model_of_hugectr(self):
        folder = self.path('wdl_0_sparse_2000.model')
        os.mkdir(folder)
        ids, want = self.random.integers(0, 2**40, 9), self.values(9, 4)
        ids.tofile(os.path.join(folder, 'key'))
        want.tofile(os.path.join(folder, 'emb_vector'))
        got_ids, got = formats.read_hugectr(folder, 4)
        np.testing.assert_array_equal(got_ids, ids)
        np.testing.assert_array_equal(got, want)
        self.refused('9 rows of 4, key has 9|dim is not 5', formats.read_hugectr, folder, 5)
        self.refused('it has 18 rows of 2, key has 9', formats.read_hugectr, folder, 2)
        os.truncate(os.path.join(folder, 'key'), 70)
        self.refused('cut off', formats.read_hugectr, folder, 4)
        os.remove(os.path.join(folder, 'key'))
        with self.assertRaises(hotbed.NotFound):
            formats.read_hugectr(folder, 4)

    @unittest.skipUnless(importlib.util.find_spec('pyarrow'), 'pyarrow is not installed')
    def test_parquet(self):
        import pyarrow as pa
        import pyarrow.parquet as pq
        ids, want = self.random.integers(0, 2**40, 9), self.values(9, 2)
        lists = pa.array(want.tolist(), pa.list_(pa.float32()))
        pq.write_table(pa.table({'key': ids, 'weight': lists, 'a': want[:, 0], 'b': want[:, 1]}), self.path('t.parquet'), row_group_size=4)
        for weights in ('weight', ('a', 'b')):
            got_ids, got = formats.read_parquet(self.path('t.parquet'), weights=weights, ids='key')
            np.testing.assert_array_equal(got_ids, ids)
            np.testing.assert_array_equal(got, want)
        self.assertIsNone(formats.read_parquet(self.path('t.parquet'))[0])
        self.refused('it has no column none, but key, weight, a, b', formats.read_parquet, self.path('t.parquet'), ids='none')
        pq.write_table(pa.table({'weight': [[1.0], [1.0, 2.0]]}), self.path('t.parquet'))
        self.refused('different lengths', formats.read_parquet, self.path('t.parquet'))
        pq.write_table(pa.table({'weight': [[1.0], None]}), self.path('t.parquet'))
        self.refused('has no weights', formats.read_parquet, self.path('t.parquet'))


if __name__ == '__main__':
    unittest.main()
