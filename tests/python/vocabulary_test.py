"""Vocabularies on a cluster: numbers and counts are exact over kills, fail-overs, moves, checkpoints and for many clients."""

import collections
import os
import random
import sys
import tempfile
import threading
import unittest

import numpy as np

import hotbed

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, '..', 'fault')]
import cluster as fault  # noqa: E402  (tests/fault)

SEED = int(os.environ.get('HOTBED_SEED', 0)) or random.SystemRandom().randrange(1, 2**31)
KEYS, NUMBERS, CLIENTS = 3000, 2000, 3


class VocabularyOnACluster(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory(prefix='hotbed-words-')
        self.addCleanup(directory.cleanup)
        self.directory = directory.name
        self.cluster = fault.Cluster(os.environ['HOTBED_BIN'], self.directory, 3, server_flags=('--host-bytes=64MiB',))
        self.addCleanup(self.cluster.stop)
        self.cluster.start()
        self.target = f'hotbed://{self.cluster.address}'

    def command(self, *words):
        status, out, err = self.cluster.run(*words)
        self.assertEqual(status, 0, f'hotbed {" ".join(words)}: {err or out}')
        return out

    def primary(self, table):
        replicas = self.cluster.json('shard', 'list', '--table', table)[0]['replicas']
        name = next(replica['server'] for replica in replicas if replica['role'] == 'primary')
        return next(server for server in self.cluster.servers if server.name == name)

    def look(self, number, calls, kills):
        random_ = np.random.default_rng(SEED + number)
        with hotbed.connect(self.target, session=f'words-{number}') as client:
            words = client.vocabulary('words', deadline=120)
            for call in range(calls):
                keys = (random_.zipf(1.2, 300) % KEYS).astype(np.uint64) * np.uint64(0x9e3779b97f4a7c15)
                found = words(keys)
                for key, number_ in zip(keys.tolist(), found.tolist()):
                    self.counted[number][key] += 1
                    if self.seen[number].setdefault(key, number_) != number_:
                        self.errors.append((key, self.seen[number][key], number_))
                if number == 0 and call in kills:
                    kills[call]()

    def check(self, client, name):
        keys, counts = client.vocabulary(name).frequencies()
        counted = sum(self.counted, collections.Counter())
        self.assertEqual(len(keys), min(NUMBERS, len(counted)) + 1)
        self.assertEqual(len(set(keys.tolist())), len(keys))
        self.assertEqual(sum(counts.tolist()), sum(counted.values()))
        number_of = {key: number for number, key in enumerate(keys.tolist()) if number > 0}
        for key, number in number_of.items():
            self.assertEqual(counts[number], counted[key], key)
        for seen in self.seen:
            for key, number in seen.items():
                self.assertEqual(number, number_of.get(key, 0), key)

    def test_clients_agree_over_kills_moves_and_restores(self):
        self.seen = [{} for _ in range(CLIENTS)]
        self.counted = [collections.Counter() for _ in range(CLIENTS)]
        self.errors = []
        with hotbed.connect(self.target) as client:
            client.create_vocabulary('words', NUMBERS, durability='replicated=2')
            for change in (lambda t: t.push([3], np.zeros((1, 4), np.float32), step=1, assign=True), lambda t: t.delete([3], step=1)):
                with self.assertRaisesRegex(hotbed.InvalidArgument, 'is a vocabulary'):
                    change(client.table('words'))

            def kill():
                victim = self.primary('words')
                victim.kill()
                victim.start()

            def move():
                spare = [s.name for s in self.cluster.servers if s.name != self.primary('words').name]
                self.cluster.run('shard', 'move', 'words/0', '--to', random.Random(SEED).choice(spare))

            try:
                threads = [threading.Thread(target=self.look, args=(n, 60, {10: kill, 30: move, 45: kill}))
                           for n in range(CLIENTS)]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join()
                self.assertEqual(self.errors, [])
                self.check(client, 'words')
                saved = os.path.join(self.directory, 'saved')
                self.command('checkpoint', 'save', saved)
                self.command('checkpoint', 'restore', saved, '--table', 'words', '--as', 'again')
                self.check(client, 'again')
                words = client.vocabulary('again')
                given = words.size
                fresh = words(np.arange(5) + 10)
                np.testing.assert_array_equal(words.find(np.arange(5) + 10), fresh)
                np.testing.assert_array_equal(fresh, given + 1 + np.arange(5) if given + 5 <= NUMBERS else fresh)
            except BaseException:
                print(f'HOTBED_SEED={SEED} python3 -m unittest vocabulary_test', file=sys.stderr)
                raise

    def test_a_vocabulary_is_one_shard_and_the_command_says_so(self):
        self.command('table', 'create', 'tokens', '--vocabulary', '3000000')
        self.assertEqual(len(self.cluster.json('shard', 'list', '--table', 'tokens')), 1)
        status, _, err = self.cluster.run('table', 'create', 'more', '--vocabulary', '10', '--shards', '2')
        self.assertNotEqual(status, 0)
        self.assertIn('1 for a vocabulary, which gives its numbers in one order', err)
        status, _, err = self.cluster.run('shard', 'split', 'tokens/0')
        self.assertNotEqual(status, 0)
        self.assertIn('is a vocabulary, which gives its numbers in one order', err)
        with hotbed.connect(self.target) as client:
            tokens = client.vocabulary('tokens')
            np.testing.assert_array_equal(tokens(np.array([[7, 9], [7, -1]])), [[1, 2], [1, 0]])
            self.assertEqual((len(tokens), tokens.max), (2, 3_000_000))
            np.testing.assert_array_equal(tokens.counts([7, 9, 5]), [2, 1, 0])
            with self.assertRaisesRegex(hotbed.InvalidArgument, 'is no vocabulary'):
                hotbed.Vocabulary(client.create_table('plain', dim=4, rows=10))
            with self.assertRaisesRegex(hotbed.InvalidArgument, 'numbers is 0'):
                client.create_vocabulary('none', 0)


class VocabularyInThisProcess(unittest.TestCase):
    def test_the_case_of_integer_lookup(self):
        with hotbed.local() as client:
            words = client.create_vocabulary('words', 3)
            np.testing.assert_array_equal(words(np.array([7, 9, 7, 4, 5])), [1, 2, 1, 3, 0])
            np.testing.assert_array_equal(words.counts([7, 9, 4, 5]), [2, 1, 1, 0])
            with self.assertRaisesRegex(hotbed.FailedPrecondition, 'the local engine lists no rows'):
                words.frequencies()


if __name__ == '__main__':
    unittest.main()
