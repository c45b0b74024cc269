"""The client in Python over the local engine: tables, arrays, futures, errors, forks, kill -9."""

import array
import asyncio
import multiprocessing
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

DIM = 8
MEMORY = '128MiB'


def sgd(client, name='items', rows=1000, **options):
    options.setdefault('init', 'zero')
    return client.create_table(name, dim=DIM, rows=rows, optimizer=hotbed.optim.SGD(lr=1.0), **options)


class LocalCase(unittest.TestCase):
    def setUp(self):
        self.client = hotbed.local(memory=MEMORY, session='trainer/0')
        self.addCleanup(self.client.close)


class Rows(LocalCase):
    def test_random_pushes_give_the_rows_of_a_twin(self):
        seed = int(os.environ.get('HOTBED_TEST_SEED', 18))
        random = np.random.default_rng(seed)
        table = sgd(self.client)
        twin = np.zeros((1000, DIM), np.float32)
        for step in range(1, 30):
            ids = random.integers(0, 1000, 100)
            gradients = random.integers(-8, 8, (100, DIM)).astype(np.float32)
            result = table.push(ids, gradients, step=step)
            self.assertEqual((result.step, result.outcome, result.staged, result.shards), (step, 'applied', False, ()))
            np.subtract.at(twin, ids, gradients)
        np.testing.assert_array_equal(table.pull(np.arange(1000)), twin, f'HOTBED_TEST_SEED={seed}')

    def test_shows_and_clicks(self):
        table = sgd(self.client, 'shown', rows=None, hashed=True, touches=True, shows=True, rows_max=10_000, evict_by='score')
        dim, ids = table.dim, np.array([5, 6, 5])
        table.push(ids, np.ones((3, dim), np.float32), step=1, shows=[2, 3, 4], clicks=np.array([1, 0, 0.5]))
        table.push(ids, np.ones((3, dim), np.float32), step=2, clicks=[1, 1, 1])
        table.push(ids, np.ones((3, dim), np.float32), step=3)
        touches = table.touches(np.array([[5, 6], [7, 7]]))
        np.testing.assert_array_equal(touches['shows'], [[8, 4], [0, 0]])
        np.testing.assert_array_equal(touches['clicks'], [[3.5, 1], [0, 0]])
        np.testing.assert_array_equal(touches['count'], [[3, 3], [0, 0]])
        np.testing.assert_array_equal(table.pull([6])[0], np.full(dim, -3, np.float32) * 1.0)
        self.assertEqual(table.count_by_life(score_least=0.9)['expires'], 0)
        self.assertEqual(table.count_by_life(score_least=1.5, evict_by='lru')['expires'], 1)
        for shows, refused in (([1, -1, 1], 'shows of id 6 at position 1 is -1'), ([1, 2], '3 floats, one per id')):
            with self.assertRaisesRegex(hotbed.HotbedError, refused):
                table.push(ids, np.ones((3, dim), np.float32), step=4, shows=shows)
        with self.assertRaisesRegex(hotbed.InvalidArgument, 'the table keeps none'):
            sgd(self.client, 'unshown').push([1], np.ones((1, dim), np.float32), step=1, clicks=[1])

    def test_touches_and_policies(self):
        table = sgd(self.client, 'living', rows=None, hashed=True, touches=True, ttl_steps=100, rows_max=10_000, evict_by='lfu',
                    admit_after=2)
        self.assertEqual((table.options['touches'], table.options['evict-by'], table.options['admit-after']), ('true', 'lfu', '2'))
        ids = np.array([[5, 2**63], [7, 9]], np.uint64)
        for step, some in ((1, [5, 2**63, 7]), (2, [5])):
            table.push(np.array(some, np.uint64), np.ones((len(some), DIM), np.float32), step=step)
        touches = table.touches(ids)
        np.testing.assert_array_equal(touches['count'], [[2, 1], [1, 0]])
        np.testing.assert_array_equal(touches['step'], [[2, 1], [1, 0]])
        np.testing.assert_array_equal(touches['exists'], [[True, False], [False, False]])
        np.testing.assert_array_equal(touches['candidate'], [[False, True], [True, False]])
        self.assertLess(abs(int(touches['time'][0, 0]) - time.time()), 3600)
        self.assertEqual(table.pull([5, 7])[:, 0].tolist(), [-1, 0])
        self.assertEqual(table.count_by_life(), {'rows': 3, 'expires': 0, 'evicts': 0})
        self.assertEqual(table.count_by_life(ttl_steps=0, rows_max=0, evict_by='lru'), {'rows': 3, 'expires': 0, 'evicts': 0})
        for refused, option in ((dict(rows=10, touches=True), 'touches'), (dict(hashed=True, ttl_s=5), 'ttl_s')):
            with self.assertRaisesRegex(hotbed.InvalidArgument, option):
                self.client.create_table('refused', dim=DIM, **refused)
        with self.assertRaisesRegex(hotbed.InvalidArgument, 'keeps no touches'):
            sgd(self.client).touches([1])

    def test_every_optimizer_and_option(self):
        kinds = [getattr(hotbed.optim, name) for name in hotbed.optim.__all__ if name not in ('Optimizer', 'NoOptimizer')]
        self.assertEqual(len(kinds), 17)
        for kind in kinds:
            with self.subTest(kind.__name__):
                table = self.client.create_table(kind.__name__, dim=4, rows=10, optimizer=kind(lr=0.5), init='constant:1')
                self.assertEqual(table.options['optimizer'], kind.kind)
                self.assertEqual(table.options['learning-rate'], '0.5')
                table.push([3], np.ones((1, 4), np.float32), step=1)
                self.assertNotEqual(table.pull([3])[0, 0], 1.0)
        table = self.client.create_table('options', dim=4, rows=100, init='uniform:-1,1', seed=7, padding_id=0, bounds='modulo',
                                         weight_type='fp16', stochastic_rounding=True, column_slices=2, durability='checkpoint',
                                         optimizer=hotbed.optim.Adam(lr=0.1, beta1=0.5, clip_value=2.0), schedule='cosine',
                                         warmup_steps=5, total_steps=100, reduction='mean', nan='skip')
        for name, value in {'padding-id': '0', 'bounds': 'modulo', 'weight-type': 'fp16', 'beta1': '0.5', 'clip-value': '2',
                            'schedule': 'cosine', 'warmup-steps': '5', 'durability': 'checkpoint', 'nan': 'skip',
                            'column-slices': '2', 'stochastic-rounding': 'true'}.items():
            self.assertEqual(table.options[name], value, name)

    def test_several_tables_in_one_call(self):
        sgd(self.client, 'user')
        self.client.create_table('item', dim=2, hashed=True, optimizer=hotbed.optim.SGD(lr=1.0), init='zero')
        big = np.array([2**64 - 1, 0], np.uint64)
        self.client.push({'user': ([1, 1], np.ones((2, DIM), np.float32)), 'item': (big, np.ones((2, 2), np.float32))}, step=1)
        rows = self.client.pull({'user': np.array([[1], [2]]), 'item': [-1]})
        self.assertEqual(rows['user'].shape, (2, 1, DIM))
        self.assertEqual(rows['user'][0, 0, 0], -2.0)
        self.assertEqual(rows['item'][0, 0], -1.0)
        self.assertEqual([t['name'] for t in self.client.tables()], ['user', 'item'])
        self.client.drop_table('item')
        with self.assertRaises(hotbed.NotFound):
            self.client.table('item')

    def test_bags_and_flags(self):
        table = sgd(self.client)
        table.push(np.arange(4), -np.arange(4 * DIM, dtype=np.float32).reshape(4, DIM), step=1)
        rows = np.arange(4 * DIM, dtype=np.float32).reshape(4, DIM)
        lengths = np.array([2, 0, 1], np.int32)
        np.testing.assert_array_equal(table.pull([1, 2, 3], lengths=lengths)[[0, 2]], [rows[1] + rows[2], rows[3]])
        np.testing.assert_array_equal(table.pull([1, 2, 3], lengths=lengths, pooling='max')[0], rows[2])
        np.testing.assert_array_equal(table.pull([1, 3], lengths=[2], pooling='mean')[0], (rows[1] + rows[3]) / 2)
        np.testing.assert_array_equal(table.pull([1, 3], lengths=[2], weights=[2.0, 0.5])[0], 2 * rows[1] + 0.5 * rows[3])
        exists = np.zeros(2, np.uint8)
        table.pull([3, 9], exists=exists)
        self.assertEqual(exists.tolist(), [1, 0])


class Arrays(LocalCase):
    def test_integers_of_any_type_and_layout(self):
        table = sgd(self.client)
        table.push(np.arange(100), np.repeat(np.arange(100, dtype=np.float32)[:, None], DIM, 1), step=1)
        for dtype in ('int8', 'uint8', 'int16', 'uint16', 'int32', 'uint32', 'int64', 'uint64'):
            ids = np.array([[1, 2], [3, 4]], dtype)
            np.testing.assert_array_equal(table.pull(ids)[..., 0], -ids.astype(np.float32), dtype)
            np.testing.assert_array_equal(table.pull(ids.T)[..., 0], -ids.T.astype(np.float32), dtype)
        for ids in ([1, 2], (1, 2), range(1, 3), array.array('i', [1, 2]), memoryview(array.array('q', [1, 2]))):
            np.testing.assert_array_equal(table.pull(ids)[:, 0], [-1, -2])
        np.testing.assert_array_equal(table.pull(np.arange(100)[::-7])[:, 0], -np.arange(100, dtype=np.float32)[::-7])

    def test_gradients_of_any_float_type_and_layout(self):
        table = sgd(self.client)
        step = 0
        for gradients in (np.ones((2, DIM), np.float16), np.ones((2, DIM)), np.ones((DIM, 2), np.float32).T,
                          [[1.0] * DIM] * 2, np.ones((4, DIM), np.float32)[::2]):
            step += 1
            table.push([1, 2], gradients, step=step)
        self.assertEqual(table.pull([2])[0].tolist(), [-float(step)] * DIM)

    def test_rows_are_written_where_the_caller_says(self):
        table = sgd(self.client, init='constant:3')
        out = np.empty((2, DIM), np.float32)
        self.assertIs(table.pull([1, 2], out), out)
        self.assertTrue((out == 3).all())
        pinned = array.array('f', bytes(4 * DIM))
        table.pull([1], pinned)
        self.assertEqual(pinned.tolist(), [3.0] * DIM)

    def test_bad_arrays_name_the_argument_and_what_is_allowed(self):
        table = sgd(self.client)
        before = self.client.stats()['messages']
        frozen = np.empty((1, DIM), np.float32)
        frozen.flags.writeable = False
        ones = np.ones((1, DIM), np.float32)
        for call, words in (
                (lambda: table.pull(np.array([1.0])), ['ids is float64 of shape (1)', 'integers']),
                (lambda: table.pull([0.5]), ['ids is float32', 'integers']),
                (lambda: table.pull('text'), ['ids is', 'str']),
                (lambda: table.pull([1], np.empty((2, DIM), np.float32)), ['out is float32 of shape (2, 8)', '(1, 8)', 'items']),
                (lambda: table.pull([1], np.empty((1, DIM))), ['out is float64']),
                (lambda: table.pull([1, 2], np.empty((DIM, 2), np.float32).T), ['out is not contiguous', '(2, 8)']),
                (lambda: table.pull([1], frozen), ['out', 'read-only']),
                (lambda: table.push([1, 2], ones, step=1), ['gradients is float32 of shape (1, 8)', '(2, 8)']),
                (lambda: table.push([1], ones.astype(np.int32), step=1), ['gradients is int32']),
                (lambda: table.push([1], ones[:, :4], step=1), ['gradients is float32 of shape (1, 4)']),
                (lambda: table.push([1], ones, step=-1), ['step is -1']),
                (lambda: table.push([1], ones, step=1.5), ['step is 1.5']),
                (lambda: table.pull([1], lengths=[-1]), ['lengths']),
        ):
            with self.assertRaises(hotbed.ArrayError) as caught:
                call()
            for word in words:
                self.assertIn(word, str(caught.exception))
            self.assertIsInstance(caught.exception, (TypeError, ValueError))
        self.assertEqual(self.client.stats()['messages'], before)

    def test_bad_ids_name_table_value_and_limit(self):
        table = sgd(self.client)
        for bad, value in ((-1, '-1'), (1000, '1000')):
            for call in (lambda: table.pull([5, bad]), lambda: table.push([5, bad], np.ones((2, DIM), np.float32), step=1)):
                with self.assertRaises(hotbed.OutOfRange) as caught:
                    call()
                self.assertEqual((caught.exception.table, caught.exception.value), ('items', value), str(caught.exception))
                self.assertIn('0..999', caught.exception.limit)
                self.assertIn('position 1', str(caught.exception))
        self.assertEqual(sgd(self.client, 'zero', bounds='zero').pull([-1, 1000]).sum(), 0)


class Errors(LocalCase):
    def test_bad_options(self):
        for options, words in (({'optimizer': hotbed.optim.Adam(beta1=2.0)}, ['beta1', '2', '[0, 1)']),
                               ({'durability': 'lgo'}, ['durability', 'lgo', 'checkpoint, log, replicated']),
                               ({'init': 'uniform:1'}, ['init'])):
            with self.assertRaises(hotbed.InvalidArgument) as caught:
                self.client.create_table('bad', dim=4, rows=10, **options)
            for word in words:
                self.assertIn(word, str(caught.exception))
        with self.assertRaises(TypeError):
            hotbed.local(memory=MEMORY, sesion='x')
        with self.assertRaises(hotbed.InvalidArgument):
            hotbed.local(memory='lots')
        with self.assertRaises(hotbed.InvalidArgument):
            hotbed.connect('nowhere')
        with self.assertRaises(hotbed.HotbedError):
            hotbed.connect('hotbed://127.0.0.1:1', deadline=0.2)

    def test_names_are_taken_once(self):
        table = sgd(self.client)
        with self.assertRaises(hotbed.AlreadyExists):
            sgd(self.client)
        self.assertEqual(sgd(self.client, if_not_exists=True).name, table.name)

    def test_a_closed_client_says_so(self):
        table = sgd(self.client)
        self.client.close()
        self.client.close()
        with self.assertRaises(hotbed.ClosedError):
            table.pull([1])

    def test_steps_grow(self):
        table = sgd(self.client)
        table.push([1], np.ones((1, DIM), np.float32), step=5)
        for step in (4, 5):
            with self.assertRaises(hotbed.InvalidArgument) as caught:
                table.push([2], np.ones((1, DIM), np.float32), step=step)
            self.assertIn(f'step {step} after step 5', str(caught.exception))

    def test_a_newer_client_of_a_session_fences_the_older(self):
        with tempfile.TemporaryDirectory() as directory:
            first = hotbed.local(directory, memory=MEMORY, session='job', deadline=5)
            table = sgd(first)
            table.push([1], np.ones((1, DIM), np.float32), step=1)
            with hotbed.local(directory, session='job') as second:
                second.table('items').push([1], np.ones((1, DIM), np.float32), step=2)
                with self.assertRaises(hotbed.HotbedError):
                    table.push([1], np.ones((1, DIM), np.float32), step=3)
                self.assertEqual(second.table('items').pull([1])[0, 0], -2.0)
            first.close()


class Futures(LocalCase):
    def test_results_and_callbacks(self):
        table = sgd(self.client, init='constant:2')
        future = table.pull_async(np.arange(10))
        done = threading.Event()
        future.add_done_callback(lambda f: done.set())
        self.assertEqual(future.result(timeout=20)[3, 0], 2.0)
        self.assertTrue(future.done() and done.wait(20))
        future.add_done_callback(lambda f: done.clear())
        self.assertFalse(done.is_set())
        for step in range(1, 50):  # dropped while under way
            table.push_async(np.arange(100), np.ones((100, DIM), np.float32), step=step)
        table.push(np.arange(100), np.ones((100, DIM), np.float32), step=50)
        self.assertEqual(table.pull([7])[0, 0], 2.0 - 50)

    def test_asyncio(self):
        table = sgd(self.client)

        async def train():
            await asyncio.gather(*[table.push_async([i], np.ones((1, DIM), np.float32), step=1 + i) for i in range(20)])
            rows = await asyncio.gather(*[table.pull_async([i]) for i in range(20)])
            with self.assertRaises(hotbed.OutOfRange):
                await table.pull_async([5000])
            return rows

        self.assertEqual([r[0, 0] for r in asyncio.run(train())], [-1.0] * 20)

    def test_other_threads_run_during_a_wait_and_ctrl_c_ends_it(self):
        # One of two trainers ends its step, and waits for the other, which never does.
        script = ('import hotbed, numpy, sys\n'
                  'a, b = (hotbed.local(sys.argv[1], memory="128MiB", session=s, trainer_group="g", trainer_lease=600) for s in "ab")\n'
                  't = a.create_table("t", dim=4, rows=10, consistency="sync")\n'
                  'step = max(a.join_trainers(), b.join_trainers())\n'
                  'a.begin_step(step)\n'
                  't.push([1], numpy.ones((1, 4), numpy.float32), step=step)\n'
                  'print("waits", flush=True)\n'
                  'a.end_step(step)\n')
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        child = subprocess.Popen([sys.executable, '-B', '-c', script, directory.name], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.assertEqual(child.stdout.readline(), b'waits\n')
        time.sleep(0.3)
        child.send_signal(signal.SIGINT)
        _, err = child.communicate(timeout=30)
        self.assertNotEqual(child.returncode, 0, err)
        self.assertIn(b'KeyboardInterrupt', err)

    def test_threads_share_a_client(self):
        table = sgd(self.client)
        failed = []

        def work(rank):
            try:
                for _ in range(50):
                    table.pull(np.arange(rank, 1000, 7))
            except hotbed.HotbedError as error:
                failed.append(error)

        threads = [threading.Thread(target=work, args=(rank,)) for rank in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(failed, [])


def pull_in_child(queue, table):
    try:
        table.pull([1])
        queue.put('pulled')
    except hotbed.ForkedError as error:
        queue.put(str(error))


def train_in_child(queue, directory):
    with hotbed.local(directory, memory=MEMORY, session='child') as client:
        sgd(client).push([1], np.ones((1, DIM), np.float32), step=1)
        queue.put(float(client.table('items').pull([1])[0, 0]))


class Processes(unittest.TestCase):
    def test_a_fork_is_told(self):
        with hotbed.local(memory=MEMORY) as client:
            table = sgd(client)
            fork = multiprocessing.get_context('fork')
            queue = fork.Queue()
            child = fork.Process(target=pull_in_child, args=(queue, table))
            child.start()
            self.assertIn('forked', queue.get(timeout=60))
            child.join(60)
            self.assertEqual(child.exitcode, 0)
            self.assertEqual(table.pull([1]).shape, (1, DIM))

    def test_spawn_works_and_a_directory_outlives_its_process(self):
        with tempfile.TemporaryDirectory() as directory:
            spawn = multiprocessing.get_context('spawn')
            queue = spawn.Queue()
            child = spawn.Process(target=train_in_child, args=(queue, directory))
            child.start()
            self.assertEqual(queue.get(timeout=60), -1.0)
            child.join(60)
            self.assertEqual(child.exitcode, 0)
            with hotbed.local(directory, memory=MEMORY) as client:
                self.assertEqual(client.table('items').pull([1])[0, 0], -1.0)

    def test_killing_a_trainer_loses_nothing_and_repeats_nothing(self):
        script = ('import hotbed, numpy, sys\n'
                  'c = hotbed.local(sys.argv[1], memory="128MiB", session="job")\n'
                  't = c.create_table("t", dim=4, rows=10, init="zero", optimizer=hotbed.optim.SGD(lr=1.0), if_not_exists=True)\n'
                  'for step in range(1, 10000):\n'
                  '  t.push([1], numpy.ones((1, 4), numpy.float32), step=step); print(step, flush=True)\n')
        with tempfile.TemporaryDirectory() as directory:
            child = subprocess.Popen([sys.executable, '-B', '-c', script, directory], stdout=subprocess.PIPE, text=True)
            while int(child.stdout.readline()) < 20:
                pass
            child.kill()
            rest = child.communicate()[0].split()
            acknowledged = int(rest[-1]) if rest else 20
            with hotbed.local(directory, memory=MEMORY, session='job') as client:
                table = client.table('t')
                applied = -int(table.pull([1])[0, 0])
                self.assertIn(applied, (acknowledged, acknowledged + 1))
                for step in range(1, applied + 3):  # the restarted trainer repeats its steps
                    table.push([1], np.ones((1, 4), np.float32), step=step)
                self.assertEqual(table.pull([1])[0, 0], -(applied + 2))


if __name__ == '__main__':
    unittest.main()
