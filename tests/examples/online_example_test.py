"""examples/online, shortened: the model is trained, published and served, while servers are killed and a version is rolled back."""

import json
import os
import re
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


class Online(unittest.TestCase):
    def test_a_short_run(self):
        with tempfile.TemporaryDirectory(prefix='hotbed-online-') as directory:
            report = os.path.join(directory, 'page.html')
            words = ('--seconds', '10', '--publish-every', '2', '--rate', '20', '--click-rate', '6000', '--unseen', '2000', '--windows',
                     '4', '--replicas', '2', '--report', report, '-o', 'json')
            done = subprocess.run([sys.executable, '-B', os.path.join(ROOT, 'examples', 'online', 'online.py'), *words],
                                  capture_output=True, text=True, timeout=250, check=False)
            self.assertEqual(done.returncode, 0, done.stderr)
            result = json.loads(done.stdout)
            with open(report, encoding='utf-8') as file:
                page = file.read()
        # Nobody who asks meets an error, whatever ends: another replica answers.
        whole = result['all']
        self.assertEqual(whole['errors'], 0, result['first_error'])
        self.assertGreater(whole['requests'], 100)
        # The scores are those of the model and of these clicks: it has learned something.
        self.assertGreater(whole['auc'], 0.55)
        # int8 costs little, and something: the rows of both are those of the same versions.
        self.assertAlmostEqual(whole['auc'], whole['auc_fp32'], delta=0.01)
        self.assertNotEqual(whole['auc'], whole['auc_fp32'])
        events = [event['event'] for event in result['events']]
        self.assertEqual([event.split(' ')[0] for event in events], ['a', 'a', 'rolled', 'the'], events)
        # After the roll back an older version answers than the newest one.
        self.assertGreaterEqual(len(result['publications']), 2)
        back, newest = (re.search(r'v(\d+)', event)[0] for event in events[2:])
        self.assertLess(int(back[1:]), int(newest[1:]))
        self.assertIn(back, result['events'][2]['versions'])
        self.assertTrue(any(int(version[1:]) >= int(newest[1:]) for version in result['events'][3]['versions']), result)
        self.assertGreater(result['trained_clicks'], 10_000)
        self.assertGreater(result['memory']['copy_rows'], 1000)
        self.assertEqual(sorted(result['memory']['resident']), ['s0', 's1', 'serving0', 'serving1'])
        for kind in ('training', 'serving', 'copy'):
            self.assertGreater(whole[f'{kind}_bytes'], 1e5, kind)
        for text in ('<svg', 'AUC of the served model', 'the same versions, in fp32', 'Resident memory, MB', *events):
            self.assertIn(text, page)


if __name__ == '__main__':
    unittest.main()
