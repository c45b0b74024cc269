"""Whole tables out of a cluster and into it, as NumPy arrays."""

import json
import os
import struct
import sys
import tempfile
import time
import unittest

import numpy as np

import hotbed

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, '..', 'e2e'), HERE]
import local  # noqa: E402  (tests/e2e)

DIM = 4


TYPES = {'F32': np.float32, 'F16': np.float16, 'U64': np.uint64}


def write_safetensors(path, arrays):
    header, at = {}, 0
    for name, array in arrays.items():
        dtype = next(t for t, d in TYPES.items() if d == array.dtype)
        header[name] = {'dtype': dtype, 'shape': array.shape, 'data_offsets': [at, at + array.nbytes]}
        at += array.nbytes
    text = json.dumps(header).encode()
    with open(path, 'wb') as file:
        file.write(struct.pack('<Q', len(text)) + text + b''.join(array.tobytes() for array in arrays.values()))


def read_safetensors(path):
    with open(path, 'rb') as file:
        data = file.read()
    length, = struct.unpack('<Q', data[:8])
    arrays = {}
    for name, tensor in json.loads(data[8:8 + length]).items():
        first, limit = tensor['data_offsets']
        arrays[name] = np.frombuffer(data[8 + length + first:8 + length + limit], TYPES[tensor['dtype']]).reshape(tensor['shape'])
    return arrays


class TableArrays(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.directory = tempfile.TemporaryDirectory(prefix='hotbed-rows-')
        cls.addClassCleanup(cls.directory.cleanup)
        cls.up = local.Up(os.path.join(cls.directory.name, 'data'), '--servers', 2, '--port', 0, '--host-bytes', '64MiB')
        cls.addClassCleanup(cls.up.stop)
        cls.client = hotbed.connect(f'hotbed://{cls.up.coordinator}', session='rows')
        cls.addClassCleanup(cls.client.close)
        cls.random = np.random.default_rng(3)

    def path(self, name):
        return os.path.join(self.directory.name, name)

    def values(self, rows, dim=DIM):
        return self.random.standard_normal((rows, dim)).astype(np.float32)

    def test_a_bounded_table_goes_out_and_comes_in(self):
        table = self.client.create_table('out', dim=6, rows=5000, init='normal:0,1', column_slices=2, row_statistics='slice',
                                         optimizer=hotbed.optim.RowWiseAdagrad(lr=0.1))
        table.push(np.arange(0, 5000, 7), self.values(len(range(0, 5000, 7)), 6), step=1)
        want = table.pull(np.arange(5000))
        answer = self.up.json('table', 'export', 'out', self.path('out.npy'))
        self.assertEqual((answer['rows'], answer['dim']), (5000, 6))
        np.testing.assert_array_equal(np.load(self.path('out.npy')), want)
        for name, options in (('in', ()), ('slices', ('--column-slices', 3)), ('half', ('--weight-type', 'fp16'))):
            answer = self.up.json('table', 'import', name, self.path('out.npy'), '--optimizer', 'sgd', '--lr', 1, *options)
            self.assertEqual(answer['rows'], 5000)
            got = self.client.table(name).pull(np.arange(5000))
            np.testing.assert_array_equal(got, want if name != 'half' else want.astype(np.float16).astype(np.float32))
        self.client.table('in').push([17], np.ones((1, 6), np.float32), step=1)
        np.testing.assert_array_equal(self.client.table('in').pull([17])[0], want[17] - 1)
        self.assertEqual([n for n in os.listdir(self.directory.name) if 'port' in n], [])  # export, import

    def test_a_hashed_table_has_its_ids_beside_it(self):
        ids = self.random.integers(0, 2**64, 3000, dtype=np.uint64)
        ids[:2] = 0, 2**64 - 1
        want = self.values(3000)
        np.save(self.path('ids.npy'), ids)
        np.save(self.path('rows.npy'), want)
        self.up.json('table', 'import', 'hash', self.path('rows.npy'), '--ids', self.path('ids.npy'), '--hashed', '--optimizer',
                     'adam')
        np.testing.assert_array_equal(self.client.table('hash').pull(ids), want)
        answer = self.up.json('table', 'export', 'hash', self.path('again.npy'), '--ids', self.path('again-ids.npy'))
        self.assertEqual(answer['rows'], 3000)
        found, rows = np.load(self.path('again-ids.npy')), np.load(self.path('again.npy'))
        np.testing.assert_array_equal(rows[np.argsort(found)], want[np.argsort(ids)])

    def test_the_state_of_the_optimizer_goes_along(self):
        options = ('--optimizer', 'adam', '--column-slices', 2)
        self.client.create_table('state', dim=DIM, rows=300, optimizer=hotbed.optim.Adam(lr=0.1), column_slices=2)
        for name, pushed in (('state', range(0, 300, 2)), ('hashed-state', range(0, 300, 2))):
            hashed = name != 'state'
            if hashed:
                self.client.create_table(name, dim=DIM, hashed=True, optimizer=hotbed.optim.Adam(lr=0.1), column_slices=2)
            table, ids = self.client.table(name), np.array(pushed)
            for step in (1, 2):
                table.push(ids, self.values(len(ids)), step=step)
            path = self.path(name + '.safetensors')
            answer = self.up.json('table', 'export', name, path, '--state', path)
            self.assertEqual(answer['rows'], len(ids) if hashed else 300)
            self.up.json('table', 'import', name + '-again', path, '--state', path, *options, *(('--hashed',) if hashed else ()),
                         '--lr', 0.1)
            gradient = self.values(len(ids))
            for each in (name, name + '-again'):
                self.client.table(each).push(ids, gradient, step=3)
            np.testing.assert_array_equal(self.client.table(name + '-again').pull(ids), table.pull(ids))
            self.refused('the optimizer state of this table', path, '--state', path, '--optimizer', 'adam', '--state-type', 'bf16',
                         *(('--hashed',) if hashed else ()))

    def test_tensors_of_a_model_are_found_by_name(self):
        want = self.values(50).astype(np.float16)
        other = self.values(3, 2)
        path = self.path('model.safetensors')
        write_safetensors(path, {'model.norm': other[0], 'model.embed_tokens.weight': want, 'model.small': other})
        self.refused('Name one with --tensor', path)
        self.refused('it has no tensor "embed"', path, '--tensor', 'embed')
        self.up.json('table', 'import', 'model', path, '--tensor', 'model.embed_tokens.weight')
        np.testing.assert_array_equal(self.client.table('model').pull(np.arange(50)), want.astype(np.float32))
        out = self.path('out.safetensors')
        self.up.json('table', 'export', 'model', out)
        np.testing.assert_array_equal(read_safetensors(out)['weight'], want.astype(np.float32))

    def test_the_same_calls_in_python_also_of_the_local_engine(self):
        want = self.values(40)
        path = self.path('calls.npy')
        np.save(path, want)
        with tempfile.TemporaryDirectory() as directory, hotbed.local(os.path.join(directory, 'engine')) as engine:
            for client, target in ((self.client, f'hotbed://{self.up.coordinator}'), (self.client, self.client), (engine, engine)):
                name, out = f'calls-{id(target)}', self.path(f'calls-{id(target)}.npy')
                done = hotbed.import_table(target, name, path, optimizer=hotbed.optim.SGD(lr=1))
                self.assertEqual(done, {'rows': 40, 'dim': DIM, 'bytes': want.nbytes, 'resumed': False})
                client.table(name).push([7], np.ones((1, DIM), np.float32), step=1)
                self.assertEqual(hotbed.export_table(target, name, out)['rows'], 40)
                changed = want.copy()
                changed[7] -= 1
                np.testing.assert_array_equal(np.load(out), changed)
                with self.assertRaises(hotbed.AlreadyExists):
                    hotbed.export_table(target, name, out)
                with self.assertRaises(hotbed.InvalidArgument):
                    hotbed.import_table(target, name + '-never', path, optimizer=hotbed.optim.SGD(lr=1), dim=DIM + 1)

    def test_broken_calls_go_on(self):
        """Calls that are killed again and again end with the same arrays as calls that are not."""
        rows = 200_000
        table = self.client.create_table('long', dim=16, rows=rows)
        table.push(np.arange(0, rows, 3), self.values(len(range(0, rows, 3)), 16), step=1)
        want = table.pull(np.arange(rows))
        hashed = self.client.create_table('long-hashed', dim=16, hashed=True)
        hashed.push(np.arange(rows // 4), self.values(rows // 4, 16), step=1)
        for name, command in (('long', ()), ('long-hashed', ('--ids', self.path('long-ids.npy')))):
            path = self.path(name + '.npy')
            answer = self.killed_until_done('table', 'export', name, path, *command, '--rate', '4MiB')
            self.assertTrue(answer['resumed'])
            got = np.load(path)
            if not command:
                np.testing.assert_array_equal(got, want)
                continue
            ids = np.load(command[1])
            self.assertEqual(sorted(ids), list(range(rows // 4)))
            np.testing.assert_array_equal(got, hashed.pull(ids))
        self.killed_until_done('table', 'import', 'long-again', self.path('long.npy'), '--optimizer', 'sgd')
        np.testing.assert_array_equal(self.client.table('long-again').pull(np.arange(rows)), want)
        self.assertEqual([n for n in os.listdir(self.directory.name) if 'port' in n], [])

    def killed_until_done(self, *command):
        """Kills the call when it has begun, twice more a little later, and lets it end then."""
        def begun():
            names = os.listdir(self.directory.name)
            return any('.import-' in name or os.path.exists(self.path(os.path.join(name, 'progress.json'))) for name in names)
        for seconds in (0, 0.05, 0.3):
            process = self.up.start(*command)
            while process.poll() is None and not begun():
                time.sleep(0.01)
            time.sleep(seconds)
            process.kill()
            process.communicate()
        try:
            return self.up.json(*command)
        except AssertionError as error:  # an import that was done when it was killed
            if 'exists already' not in str(error):
                raise
            return {'resumed': True}

    def test_an_import_that_has_ended_is_not_taken_up_again(self):
        path = self.path('once.npy')
        np.save(path, self.values(20))
        self.up.json('table', 'import', 'once', path, '--optimizer', 'sgd', '--lr', 1)
        table = self.client.table('once')
        table.push([3], np.ones((1, DIM), np.float32), step=1)
        trained = table.pull(np.arange(20))
        self.refused_with('exists already', 'table', 'import', 'once', path, '--optimizer', 'sgd')
        np.testing.assert_array_equal(table.pull(np.arange(20)), trained)

    def refused_with(self, message, *command):
        code, _, err = self.up.cli(*command)
        self.assertEqual(code, 1, err)
        self.assertIn(message, err)

    def test_an_npy_file_gets_one_array(self):
        self.client.create_table('two', dim=DIM, hashed=True, optimizer=hotbed.optim.Adam(lr=0.1))
        self.client.table('two').push([1], np.ones((1, DIM), np.float32), step=1)
        both = self.path('both.npy')
        self.refused_with('named twice', 'table', 'export', 'two', self.path('two.npy'), '--ids', both, '--state', both)
        self.assertFalse(os.path.exists(both))

    def test_the_memory_report_equals_what_the_servers_count(self):
        row_wise, of_element = hotbed.optim.RowWiseAdagrad(lr=0.1), hotbed.optim.Adagrad(lr=0.1)
        for name, optimizer, options, weight in (('mem', row_wise, {}, 4),
                                                 ('mem-slices', of_element, {'column_slices': 2, 'weight_type': 'fp16'}, 2)):
            table = self.client.create_table(name, dim=3, rows=3000, optimizer=optimizer, **options)
            table.push(np.arange(0, 3000, 4), self.values(750, 3), step=1)
            report = self.up.json('table', 'memory', name)['tables'][0]
            self.assertGreater(report['rows'], 0)
            self.assertEqual((report['weight_bytes_per_row'], report['state_bytes_per_row']), (3 * weight, 12 if options else 4))
            for shard in report['shards']:
                elements = shard['rows'] * shard['columns']
                self.assertEqual(shard['weight_bytes'], elements * weight)
                self.assertEqual(shard['state_bytes'], elements * 4 if options else shard['rows'] * 4)
                self.assertEqual(shard['host_bytes'], shard['weight_bytes'] + shard['state_bytes'] + shard['overhead_bytes'])
            for key in ('rows', 'weight_bytes', 'state_bytes', 'overhead_bytes', 'host_bytes', 'device_bytes'):
                self.assertEqual(sum(shard[key] for shard in report['shards']), report[key], key)
            for key, gauge in (('rows', 'resident_rows'), ('host_bytes', 'hot_bytes'), ('overhead_bytes', 'overhead_bytes')):
                self.assertEqual(report[key], self.gauge(f'hotbed_table_{gauge}{{table="{name}"}}'), key)
        whole = self.up.json('table', 'memory')
        for server in whole['servers']:
            self.assertEqual(server['host_bytes'] + server['granted_bytes'], server['hot_bytes'])
            self.assertEqual(server['host_bytes'], sum(shard['host_bytes'] for table in whole['tables'] for shard in table['shards']
                                                       if shard['server'] == server['name']))
        code, text, _ = self.up.cli('table', 'memory', '--by-shard')
        self.assertEqual(code, 0)
        self.assertIn('mem', self.up.cli('table', 'memory')[1])
        self.assertIn('overhead', text)

    def gauge(self, name):
        servers = [s['admin_address'] for s in self.up.json('status')['servers']]
        lines = [line for server in servers for line in local.http(server, '/metrics')[2].splitlines()]
        return sum(int(float(line.split()[-1])) for line in lines if line.startswith(name + ' '))

    def test_sizes_are_estimated_by_formula(self):
        def estimate(*flags):
            return self.up.json('table', 'memory', '--estimate', *flags)
        adam = estimate('--rows', 5000, '--dim', 3072, '--optimizer', 'adam', '--parts', 2)
        self.assertEqual((adam['weight_bytes'], adam['bytes'], adam['largest_shard_bytes']), (61_440_000, 184_320_000, 92_160_000))
        model = ('--rows', 1_048_576, '--dim', 512, '--optimizer', 'sgd')
        self.assertEqual(estimate(*model, '--block-dim', 128)['block']['saved_elements'], 402_587_648)
        self.assertEqual(estimate(*model, '--block-dim', 128, '--parts', 4)['block']['saved_elements'], 402_391_040)
        self.assertEqual(estimate(*model, '--quotient', 1024)['quotient_remainder']['saved_elements'], 535_822_336)
        code, _, err = self.up.cli('table', 'memory', '--estimate', '--rows', 5, '--dim', 2, '--parts', 6)
        self.assertEqual(code, 1)
        self.assertIn('--parts is 6; allowed: 1..5', err)

    def test_an_export_writes_over_nothing(self):
        self.client.create_table('kept', dim=2, rows=10)
        path = self.path('kept.npy')
        np.save(path, self.values(3))
        before = sorted(os.listdir(self.directory.name))
        for message, command in (('exists already', ('kept', path)), ('leave --ids out', ('kept', path, '--ids', path)),
                                 ("no table 'none'", ('none', self.path('none.npy')))):
            code, _, err = self.up.cli('table', 'export', *command)
            self.assertEqual(code, 1, err)
            self.assertIn(message, err)
        self.assertEqual(sorted(os.listdir(self.directory.name)), before)
        self.assertEqual(np.load(path).shape, (3, DIM))

    def test_arrays_that_do_not_fit_are_refused_before_anything_is_written(self):
        good = self.values(10)
        cases = {
            'fortran': (np.asfortranarray(good), 'Fortran order'),
            'big': (good.astype('>f4'), 'big-endian'),
            'double': (good.astype(np.float64), "'<f8'"),
            'flat': (good[:, 0].copy(), 'one dimension'),
            'cube': (good.reshape(10, 2, 2), 'its shape is'),
            'nan': (np.where(np.arange(40).reshape(10, 4) == 21, np.nan, good).astype(np.float32), 'row 5, column 1 is nan'),
            'infinite': (np.full((10, 4), np.inf, np.float32), 'row 0, column 0 is inf'),
        }
        before = sorted(os.listdir(self.directory.name))
        with tempfile.TemporaryDirectory() as arrays:
            for name, (array, message) in cases.items():
                path = os.path.join(arrays, name + '.npy')
                np.save(path, array)
                self.refused(message, path)
            path = os.path.join(arrays, 'good.npy')
            np.save(path, good)
            self.refused('it has 4 columns, the table\'s dim is 5', path, '--dim', 5)
            self.refused('it has 10 rows, the table\'s rows are 11', path, '--rows', 11)
            self.refused('name it with --ids', path, '--hashed')
            self.refused('leave --ids out', path, '--ids', path)
            ids = os.path.join(arrays, 'ids.npy')
            for array, message in ((np.arange(9), 'allowed: 10'), (np.arange(10) % 9, 'id 0 occurs twice, in rows 0 and 9'),
                                   (np.arange(10, dtype=np.int32), "'<i4'")):
                np.save(ids, array)
                self.refused(message, path, '--hashed', '--ids', ids)
            os.truncate(path, os.path.getsize(path) - 1)
            self.refused('it is cut off', path)
            with open(path, 'w', encoding='ascii') as file:
                file.write('no array at all')
            self.refused('it is no .npy file', path)
        self.assertEqual(sorted(os.listdir(self.directory.name)), before)
        self.assertNotIn('never', [t['name'] for t in self.up.json('table', 'list')])

    def refused(self, message, path, *options):
        code, _, err = self.up.cli('table', 'import', 'never', path, *options)
        self.assertEqual(code, 1, err)
        self.assertIn(message, err)


if __name__ == '__main__':
    unittest.main()
