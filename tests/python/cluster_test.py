"""The package against a cluster of three servers: parity, fail-over of a trainer, two ranks with DistributedDataParallel."""

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest

try:
    import torch
except ImportError:
    torch = None
import numpy as np

import hotbed

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, '..', 'e2e'), HERE]
import local  # noqa: E402  (tests/e2e)
import torch_test  # noqa: E402


@unittest.skipIf(torch is None, 'python3-torch is not installed')
class Cluster(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.directory = tempfile.TemporaryDirectory(prefix='hotbed-python-')
        cls.addClassCleanup(cls.directory.cleanup)
        cls.up = local.Up(cls.directory.name, '--servers', 3, '--port', 0, '--host-bytes', '64MiB')
        cls.addClassCleanup(cls.up.stop)
        cls.target = f'hotbed://{cls.up.coordinator}'

    def test_three_servers_train_as_torch_does(self):
        import hotbed.torch as ht
        with hotbed.connect(self.target, session='parity') as client:
            ours, plain = torch_test.twins(client, hotbed.optim.RowWiseAdagrad(lr=0.05))
            batches, labels = torch_test.data(100)
            got = torch_test.losses(ours, [torch.optim.SGD(ours.over.parameters(), lr=0.1)], batches, labels)
            ht.training(client).wait()
            want = torch_test.losses(plain, [torch.optim.SGD(plain.over.parameters(), lr=0.1),
                                             torch_test.RowWiseAdagrad(plain.embeddings.parameters(), lr=0.05)], batches, labels)
            np.testing.assert_allclose(got, want, atol=1e-5)
            for name in torch_test.TABLES:
                client.drop_table(name)

    def test_a_trainer_that_starts_again_repeats_nothing(self):
        ones = np.ones((1, 4), np.float32)
        for life in range(2):
            with hotbed.connect(self.target, session='again') as client:
                table = client.create_table('again', dim=4, rows=10, init='zero', optimizer=hotbed.optim.SGD(lr=1.0),
                                            if_not_exists=True)
                for step in range(1, 6 + life):
                    table.push([1], ones, step=step)
                self.assertEqual(table.pull([1])[0, 0], -(5.0 + life))

    def test_two_ranks_train_dlrm_together(self):
        program = os.path.join(HERE, '..', '..', 'examples', 'python', 'dlrm.py')
        place = {'WORLD_SIZE': '2', 'MASTER_ADDR': '127.0.0.1', 'MASTER_PORT': str(local.free_port()), 'OMP_NUM_THREADS': '1'}
        ranks = [subprocess.Popen([sys.executable, '-B', program, '--target', self.target, '--steps', '30', '--samples', '256',
                                   '--rows', '1000'], env={**os.environ, **place, 'RANK': str(rank), 'LOCAL_RANK': str(rank)},
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for rank in range(2)]
        for rank, process in enumerate(ranks):
            out, err = process.communicate(timeout=200)
            self.assertEqual(process.returncode, 0, err)
            first, last = map(float, re.search(rf'rank {rank}: loss ([\d.]+) -> ([\d.]+)', out).groups())
            self.assertLess(last, first)

    def lines_of(self, server, trace):
        """Returns the lines of a server's log with `trace`, or none where it writes none within 2 s."""
        path = os.path.join(self.directory.name, 'logs', f'{server}.log')
        for _ in range(20):
            with open(path, encoding='utf-8') as log:
                lines = [line for line in log if trace in line]
            if lines:
                return lines
            time.sleep(0.1)
        return []

    def test_a_push_that_waits_for_a_replica_is_logged_with_its_trace(self):
        with hotbed.connect(self.target, session='slow') as client:
            table = client.create_table('slow', dim=4, rows=10, durability='replicated=2', init='zero')
            table.push([1], np.ones((1, 4), np.float32), step=1)
            with self.assertRaisesRegex(hotbed.InvalidArgument, 'traceparent is "00-1"'), hotbed.trace('00-1'):
                self.fail('the block has no trace')
            shard = self.up.json('shard', 'list', '--table', 'slow')[0]
            primary = shard['primary']
            backup = next(member for member in shard['members'] if member != primary)
            # A busy machine may send a push so late that it waits less than the threshold of 1 s.
            for step in range(2, 7):
                trace = f'4bf92f3577b34da6a3ce929d0e0e473{step}'
                os.kill(self.up.pids()[backup], signal.SIGSTOP)
                try:
                    with hotbed.trace(f'00-{trace}-00f067aa0ba902b7-01'):
                        pushed = table.push_async([1], np.ones((1, 4), np.float32), step=step)
                    time.sleep(1.3)  # a server is given up after 3 s
                finally:
                    os.kill(self.up.pids()[backup], signal.SIGCONT)
                pushed.result(timeout=30)
                lines = self.lines_of(primary, trace)
                if lines:
                    break
            self.assertRegex(''.join(lines), r'slow push of [1-9]\d{3} ms: table slow, shards \d; 1 rows, .*'
                                             r' log \d+ ms.*, replicas \d+ ms \(slow/\d\), rows')
            client.drop_table('slow')

    def test_a_dropped_table_is_told(self):
        with hotbed.connect(self.target) as client:
            table = client.create_table('gone', dim=4, rows=10)
            client.drop_table('gone')
            with self.assertRaises(hotbed.HotbedError):
                table.pull([1])


if __name__ == '__main__':
    unittest.main()
