"""The package against a cluster of three servers: parity, fail-over of a trainer, two ranks with DistributedDataParallel."""

import os
import re
import subprocess
import sys
import tempfile
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

    def test_a_dropped_table_is_told(self):
        with hotbed.connect(self.target) as client:
            table = client.create_table('gone', dim=4, rows=10)
            client.drop_table('gone')
            with self.assertRaises(hotbed.HotbedError):
                table.pull([1])


if __name__ == '__main__':
    unittest.main()
