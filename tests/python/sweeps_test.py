"""Policies of rows that change while a cluster runs: the rows go on all replicas, and `hotbed events` says so."""

import os
import sys
import tempfile
import time
import unittest

import numpy as np

import hotbed

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, '..', 'fault')]
import cluster as fault  # noqa: E402  (tests/fault)


class Sweeps(unittest.TestCase):
    def await_true(self, holds, what):
        for _ in range(600):
            if holds():
                return
            time.sleep(0.1)
        self.fail(f'not within a minute: {what}')

    def test_rows_of_a_low_score_go_once_the_table_says_so(self):
        directory = tempfile.TemporaryDirectory(prefix='hotbed-sweeps-')
        self.addCleanup(directory.cleanup)
        cluster = fault.Cluster(os.environ['HOTBED_BIN'], directory.name, 2, server_flags=('--host-bytes=64MiB',))
        self.addCleanup(cluster.stop)
        cluster.start()
        with hotbed.connect(f'hotbed://{cluster.address}', session='sweeps', deadline=120) as client:
            table = client.create_table('living', dim=4, hashed=True, touches=True, shows=True, durability='replicated=2',
                                        show_decay=0.5, show_period_s=1 << 31, optimizer=hotbed.optim.SGD(lr=1.0))
            ids, clicks = np.arange(400), np.arange(400) % 4
            table.push(ids, np.ones((400, 4), np.float32), step=1, clicks=clicks)
            table.push(ids, np.ones((400, 4), np.float32), step=2, shows=np.full(400, 3), clicks=clicks)
            self.assertEqual(table.count_by_life(score_least=5)['expires'], 300)
            status, _, err = cluster.run('table', 'alter', 'living', '--score-least', '5')
            self.assertEqual(status, 0, err)
            wanted = clicks == 3
            self.await_true(lambda: table.touches(ids)['exists'].sum() <= 100, 'rows of a low score are gone')
            np.testing.assert_array_equal(table.touches(ids)['exists'], wanted)
            self.await_true(lambda: any(event['kind'] == 'rows_swept' and 'table living: ' in event['text'] for event in
                                        cluster.json('events')), 'an event of kind rows_swept')
            cluster.servers[0].kill()
            touches = table.touches(ids)  # at the other replica of each shard
            np.testing.assert_array_equal(touches['exists'], wanted)
            np.testing.assert_array_equal(touches['clicks'], np.where(wanted, 6, 0))
            np.testing.assert_array_equal(touches['shows'], np.where(wanted, 4, 0))


if __name__ == '__main__':
    unittest.main()
