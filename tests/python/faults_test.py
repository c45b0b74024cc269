"""Trainings through the package while servers and trainers are killed: faults cost time, and change no number."""

import os
import subprocess
import sys
import tempfile
import threading
import time
import unittest

try:
    import torch
except ImportError:
    torch = None
import numpy as np

import hotbed

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, '..', 'fault'), HERE]
import cluster as fault  # noqa: E402  (tests/fault)
import torch_test  # noqa: E402

STEPS = 40
# A trainer that notes each step before it takes it, and goes on from the last one that it noted.
TRAINER = '''
import os, sys, time
import numpy as np
import hotbed
target, notes, steps = sys.argv[1], sys.argv[2], int(sys.argv[3])
first = int(open(notes).read() or 1) if os.path.exists(notes) else 1
with hotbed.connect(target, session='killed') as client:
    table = client.table('counted')
    for step in range(first, steps + 1):
        with open(notes + '.new', 'w') as file:
            file.write(str(step))
        os.replace(notes + '.new', notes)
        ids = np.arange(step, step + 64, dtype=np.int64) % 100
        table.push(np.unique(ids), np.ones((len(np.unique(ids)), 4), np.float32), step=step)
        time.sleep(0.002)
'''


def noted(notes):
    try:
        with open(notes, encoding='ascii') as file:
            return int(file.read())
    except FileNotFoundError:
        return 0


@unittest.skipIf(torch is None, 'python3-torch is not installed')
class Faults(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory(prefix='hotbed-python-')
        self.addCleanup(directory.cleanup)
        self.directory = directory.name
        self.cluster = fault.Cluster(os.environ['HOTBED_BIN'], self.directory, 3)
        self.addCleanup(self.cluster.stop)
        self.cluster.start()
        self.target = f'hotbed://{self.cluster.address}'

    def test_a_killed_server_and_a_move_change_no_loss(self):
        import hotbed.torch as ht
        moves = []

        def server_of(table):
            replicas = self.cluster.json('shard', 'list', '--table', table)[0]['replicas']
            return next(replica['server'] for replica in replicas if replica['role'] == 'primary')

        def kill_and_move():
            victim = next(server for server in self.cluster.servers if server.name == server_of('user'))
            victim.kill()
            time.sleep(0.5)
            victim.start()
            to = next(server.name for server in self.cluster.servers if server.name != server_of('item'))
            moves.append(self.cluster.run('shard', 'move', 'item/all', '--to', to))

        with hotbed.connect(self.target, session='faults') as client:
            ours, plain = torch_test.twins(client, hotbed.optim.RowWiseAdagrad(lr=0.05), durability='log')
            batches, labels = torch_test.data(STEPS)
            dense = [torch.optim.SGD(ours.over.parameters(), lr=0.1)]
            got = torch_test.losses(ours, dense, batches[:10], labels[:10])
            faults = threading.Thread(target=kill_and_move)
            faults.start()
            for n in range(10, STEPS):
                got += torch_test.losses(ours, dense, batches[n:n + 1], labels[n:n + 1])
                if n < STEPS - 5:  # steps before, during and after both faults
                    time.sleep(0.05)
            faults.join()
            ht.training(client).wait()
            want = torch_test.losses(plain, [torch.optim.SGD(plain.over.parameters(), lr=0.1),
                                             torch_test.RowWiseAdagrad(plain.embeddings.parameters(), lr=0.05)], batches, labels)
            np.testing.assert_allclose(got, want, atol=1e-5)
            self.assertEqual(moves[0][0], 0, moves)
            for (name, (rows, _)), bag in zip(torch_test.TABLES.items(), plain.embeddings.bags):
                np.testing.assert_allclose(client.table(name).pull(np.arange(rows)), bag.weight.detach().numpy(), atol=1e-5)

    def train_under_kills(self, steps, between=lambda: None):
        """Trains the table "counted" for so many steps; `between` is called after each of four kills of the trainer."""
        notes, kills = os.path.join(self.directory, 'step'), 0
        for goal in (*(steps * n // 5 for n in range(1, 5)), None):
            trainer = subprocess.Popen([sys.executable, '-B', '-c', TRAINER, self.target, notes, str(steps)])
            while goal and trainer.poll() is None and noted(notes) < goal:
                time.sleep(0.002)
            if goal and trainer.poll() is None:
                trainer.kill()
                kills += 1
                trainer.wait()
                between()
            else:
                self.assertEqual(trainer.wait(timeout=120), 0)
        self.assertGreater(kills, 0)

    def test_a_killed_trainer_goes_on_exactly_once(self):
        with hotbed.connect(self.target) as client:
            table = client.create_table('counted', dim=4, rows=100, init='zero', optimizer=hotbed.optim.SGD(lr=1.0))
            self.train_under_kills(400)
            want = np.zeros(100, np.float32)
            for step in range(1, 401):
                want[np.unique(np.arange(step, step + 64) % 100)] -= 1
            np.testing.assert_array_equal(table.pull(np.arange(100)), np.repeat(want[:, None], 4, 1))

    def test_a_composed_table_takes_each_push_once_in_every_part(self):
        def kill_a_server():
            victim = self.cluster.servers[kills.pop()]
            victim.kill()
            victim.start()

        kills = [0, 1, 2, 0]
        with hotbed.connect(self.target) as client:
            table = client.create_table('counted', dim=4, rows=100, init='zero', optimizer=hotbed.optim.SGD(lr=1.0),
                                        durability='log', compose='quotient-remainder', combine='add', buckets=7)
            self.train_under_kills(200, kill_a_server)
            want = [np.zeros((len(part), 4), np.float32) for part in table.get_weights()]
            for step in range(1, 201):
                for id_ in range(step, step + 64):
                    want[0][id_ % 100 // 7] -= 1
                    want[1][id_ % 100 % 7] -= 1
            for got, part in zip(table.get_weights(), want):
                np.testing.assert_array_equal(got, part)


if __name__ == '__main__':
    unittest.main()
