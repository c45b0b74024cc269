"""The blocks of docs/python.md and python/README.md run as they stand, and so do the examples in a short form."""

import importlib.util
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
try:
    import torch
except ImportError:
    torch = None


def blocks(page):
    with open(os.path.join(ROOT, page), encoding='utf-8') as file:
        return re.findall(r'^```python\n(.*?)^```', file.read(), re.MULTILINE | re.DOTALL)


def run(*arguments):
    return subprocess.run([sys.executable, '-B', *arguments], capture_output=True, text=True, timeout=200, check=False)


class Pages(unittest.TestCase):
    def check(self, page, count):
        found = blocks(page)
        self.assertGreaterEqual(len(found), count)
        done = run('-c', '\n'.join(found))
        self.assertEqual((done.returncode, done.stdout), (0, ''), done.stderr)

    @unittest.skipIf(torch is None, 'python3-torch is not installed')
    def test_the_page(self):
        self.check('docs/python.md', 6)

    def test_the_page_of_the_package(self):
        self.check('python/README.md', 1)


@unittest.skipIf(torch is None, 'python3-torch is not installed')
class Examples(unittest.TestCase):
    def example(self, name, *arguments):
        done = run(os.path.join(ROOT, 'examples', 'python', name), *arguments)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def test_the_notebook(self):
        """All cells, but those whose `needs` is not installed."""
        with open(os.path.join(ROOT, 'examples', 'python', 'tour.ipynb'), encoding='utf-8') as file:
            cells = [cell for cell in json.load(file)['cells'] if cell['cell_type'] == 'code']
        there = [c for c in cells if importlib.util.find_spec(c['metadata'].get('needs', 'json')) is not None]
        self.assertGreaterEqual(len(there), 3)
        done = subprocess.run([sys.executable, '-B', '-c', '\n'.join(''.join(c['source']) for c in there)],
                              capture_output=True, text=True, timeout=200, check=False, env={**os.environ, 'MPLBACKEND': 'Agg'})
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn('loss ', done.stdout)

    def test_dlrm_learns(self):
        out = self.example('dlrm.py', '--steps', '40', '--samples', '512', '--rows', '2000', '--memory', '256MiB')
        first, last = map(float, re.search(r'loss ([\d.]+) -> ([\d.]+)', out).groups())
        self.assertLess(last, first - 0.02, out)

    def test_two_towers_find_what_users_like(self):
        out = self.example('two_tower.py', '--epochs', '4')
        recalls = [float(r) for r in re.findall(r'recall@10 ([\d.]+)', out)]
        self.assertGreater(recalls[-1], recalls[0] + 0.1, out)

    def test_a_language_model_has_the_curve_of_one_in_pytorch(self):
        """On the text of the license: 40 steps, untied and tied."""
        with tempfile.TemporaryDirectory() as directory:
            for flags in ((), ('--tied',)):
                picture = os.path.join(directory, 'curves.svg')
                out = self.example('language_model.py', '--data', os.path.join(ROOT, 'LICENSE'), '--out', picture, '--steps', '40',
                                   '--dim', '32', '--warm-up', '10', *flags)
                bits = [float(b) for b in re.findall(r'Hotbed: .* ([\d.]+) in this step', out)]
                self.assertLess(bits[-1], bits[0] - 0.3, out)
                with open(picture, encoding='utf-8') as file:
                    self.assertEqual(file.read().count('<polyline'), 2)


if __name__ == '__main__':
    unittest.main()
