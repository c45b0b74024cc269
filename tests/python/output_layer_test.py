"""Tables as output layers in PyTorch, against torch.nn: losses, gradients and rows after several steps, over servers and locally."""

import os
import sys
import tempfile
import unittest

import numpy as np
import torch

import hotbed
import hotbed.torch as ht

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, '..', 'fault'), HERE]
import cluster as fault  # noqa: E402  (tests/fault)

# Of Adam: with its usual 1e-8, an element whose gradient is almost zero moves by what rounding made of it.
EPS = 1e-2


def batch(seed, tokens, dim, classes):
    random = torch.Generator().manual_seed(seed)
    hidden = torch.randn(tokens, dim, generator=random, requires_grad=True)
    targets = torch.randint(0, classes, (tokens,), generator=random)
    return hidden, targets


def rows_of(table):
    return torch.from_numpy(table.pull(np.arange(table.rows, dtype=np.uint64)).copy())


class LocalTest(unittest.TestCase):
    def setUp(self):
        self.client = hotbed.local(memory='256MiB', session='output')
        self.addCleanup(self.client.close)

    def test_equals_cross_entropy_over_several_steps(self):
        for reduction, smoothing, bias in (('mean', 0.0, False), ('sum', 0.1, True), ('none', 0.2, False)):
            with self.subTest(reduction), hotbed.local(memory='256MiB') as client:  # of its own: Adam counts the client's steps
                self.compare(client, reduction, smoothing, bias)

    def compare(self, client, reduction, smoothing, bias):
        classes, dim, tokens = 1500, 24, 40
        layer = ht.VocabParallelCrossEntropy(classes, dim, client=client, name='out', bias=bias, label_smoothing=smoothing,
                                             reduction=reduction, optimizer=hotbed.optim.Adam(lr=0.01, eps=EPS),
                                             init='normal:0,0.1')
        weight = rows_of(layer.table).requires_grad_()
        optimizer = torch.optim.Adam([weight], lr=0.01, eps=EPS)
        for step in range(4):
            hidden, targets = batch(step, tokens, dim, classes)
            targets[step] = -100
            ours = layer(hidden, targets)
            (ours if ours.dim() == 0 else ours.sum()).backward()
            gradient = hidden.grad.clone()
            hidden.grad = None
            logits = hidden @ weight[:, :dim].t() + (weight[:, dim] if bias else 0)
            theirs = torch.nn.functional.cross_entropy(logits, targets, label_smoothing=smoothing, reduction=reduction)
            (theirs if theirs.dim() == 0 else theirs.sum()).backward()
            torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-6)
            torch.testing.assert_close(gradient, hidden.grad, rtol=1e-5, atol=1e-6)
            counted = targets != -100
            self.assertAlmostEqual(layer.accuracy, (logits.argmax(1) == targets)[counted].float().mean().item(), places=6)
            optimizer.step()
            optimizer.zero_grad()
            ht.training(client).wait()
            torch.testing.assert_close(rows_of(layer.table), weight.detach(), rtol=1e-5, atol=1e-6)
        logits = hidden @ weight[:, :dim].t() + (weight[:, dim] if bias else 0)
        torch.testing.assert_close(layer.logits(hidden), logits.detach(), rtol=1e-5, atol=1e-5)

    def test_tied_rows_get_one_update(self):
        classes, dim = 300, 16
        layer = ht.VocabParallelCrossEntropy(classes, dim, client=self.client, name='tied', bias=True,
                                             optimizer=hotbed.optim.Adam(lr=0.05, eps=EPS), init='normal:0,0.1')
        weight = rows_of(layer.table).requires_grad_()
        optimizer = torch.optim.Adam([weight], lr=0.05, eps=EPS)
        dense = torch.randn(dim, dim, generator=torch.Generator().manual_seed(1))
        for step in range(4):
            _, targets = batch(step, 12, dim, classes)
            ids = (targets + 1) % 20
            loss = layer(torch.tanh(layer.embedding(ids) @ dense), targets)
            loss.backward()
            rows = torch.nn.functional.embedding(ids, weight)[:, :dim]
            theirs = torch.nn.functional.cross_entropy(torch.tanh(rows @ dense) @ weight[:, :dim].t() + weight[:, dim], targets)
            theirs.backward()
            torch.testing.assert_close(loss, theirs, rtol=1e-6, atol=1e-6)
            optimizer.step()
            optimizer.zero_grad()
        ht.training(self.client).wait()
        torch.testing.assert_close(rows_of(layer.table), weight.detach(), rtol=1e-5, atol=1e-6)

    def test_nothing_is_pushed_in_evaluation(self):
        layer = ht.VocabParallelCrossEntropy(50, 4, client=self.client, name='still', optimizer=hotbed.optim.SGD(lr=1.0))
        before = rows_of(layer.table)
        hidden, targets = batch(0, 5, 4, 50)
        with torch.no_grad():
            self.assertFalse(layer(hidden, targets).requires_grad)
        ht.training(self.client).wait()
        torch.testing.assert_close(rows_of(layer.table), before, rtol=0, atol=0)

    def test_a_sampled_softmax_learns_what_the_full_loss_sees(self):
        classes, dim = 400, 16
        layer = ht.SampledSoftmaxLoss(classes, dim, 64, client=self.client, name='sampled', optimizer=hotbed.optim.Adagrad(lr=0.5),
                                      init='normal:0,0.05')
        hidden, targets = batch(3, 32, dim, classes)
        targets %= 40
        hidden = hidden.detach()

        def full():
            layer.eval()
            with torch.no_grad():
                loss = layer(hidden, targets).item()
            layer.train()
            return loss

        first = full()
        theirs = torch.nn.functional.cross_entropy(hidden @ rows_of(layer.table).t(), targets).item()
        self.assertAlmostEqual(first, theirs, places=5)
        for _ in range(30):
            layer(hidden, targets).backward()
        ht.training(self.client).wait()
        self.assertLess(full(), 0.5 * first)

    def test_bad_arguments_are_named(self):
        sgd = hotbed.optim.SGD(lr=1.0)
        layer = ht.VocabParallelCrossEntropy(50, 4, client=self.client, name='bad', optimizer=sgd)
        hidden, targets = batch(0, 5, 4, 50)
        for call, error, said in (
            (lambda: layer(hidden, targets + 50), hotbed.InvalidArgument, 'allowed: 0..49 of table bad'),
            (lambda: layer(hidden[:, :3], targets), hotbed.ArrayError, 'allowed: (..., 4) and (...)'),
            (lambda: layer(hidden * float('nan'), targets), hotbed.InvalidArgument, 'hidden: element 0 of token 0 is nan'),
            (lambda: ht.Embedding(50, 4, client=self.client, name='bad', optimizer=sgd), hotbed.InvalidArgument, 'trained by another module'),
            (lambda: ht.VocabParallelCrossEntropy(50, 4, client=self.client, name='bad2', reduction='max'), hotbed.InvalidArgument,
             'reduction is "max"; allowed: mean, sum, none'),
            (lambda: ht.SampledSoftmaxLoss(50, 4, 51, client=self.client, name='bad3'), hotbed.InvalidArgument,
             'samples is 51, allowed: 1..50'),
            (lambda: ht.VocabParallelCrossEntropy(50, 4, client=self.client, name='bad4', label_smoothing=2.0),
             hotbed.InvalidArgument, 'label_smoothing is 2, allowed: 0 to 1'),
        ):
            with self.assertRaises(error) as raised:
                call()
            self.assertIn(said, str(raised.exception))
        with self.assertRaises(hotbed.InvalidArgument):
            with ht.training(self.client).accumulate():
                layer(hidden, targets)


class ClusterTest(unittest.TestCase):
    """Real servers, one of which is killed, and shards that are split and moved, within the steps."""

    def test_steps_are_applied_once_over_kills_splits_and_moves(self):
        directory = tempfile.TemporaryDirectory(prefix='hotbed-output-')
        self.addCleanup(directory.cleanup)
        servers = fault.Cluster(os.environ['HOTBED_BIN'], directory.name, 2)
        self.addCleanup(servers.stop)
        servers.start()
        client = hotbed.connect(f'hotbed://{servers.address}', session='output')
        self.addCleanup(client.close)
        classes, dim = 9000, 32  # above 1 MiB: at least eight shards
        layer = ht.VocabParallelCrossEntropy(classes, dim, client=client, name='vocabulary',
                                             optimizer=hotbed.optim.SGD(lr=1.0), init='normal:0,0.1')
        weight = rows_of(layer.table).requires_grad_()

        def change(step):
            """Before or while the push of this step is under way."""
            if step in (1, 2):
                servers.servers[step - 1].kill()
                servers.servers[step - 1].start()
            if step == 3:
                code, _, err = servers.run('shard', 'split', 'vocabulary/0')
                self.assertEqual(code, 0, err)
            if step == 4:
                for server in servers.servers:  # one of them has it
                    code, _, err = servers.run('shard', 'move', 'vocabulary/1', '--to', server.name)
                    self.assertTrue(code == 0 or f'is on {server.name} already' in err, err)

        for step in range(8):
            hidden, targets = batch(step, 20, dim, classes)
            loss = layer(hidden, targets)
            if step % 2 == 1:
                change(step)
            loss.backward()
            if step % 2 == 0:
                change(step)
            theirs = torch.nn.functional.cross_entropy(hidden @ weight.t(), targets)
            theirs.backward()
            torch.testing.assert_close(loss, theirs, rtol=1e-6, atol=1e-6)
            weight = (weight - weight.grad).detach().requires_grad_()
            ht.training(client).wait()
            torch.testing.assert_close(rows_of(layer.table), weight.detach(), rtol=1e-5, atol=1e-6)
        self.assertLess(layer.wire_bytes, 2 * 20 * (4 * dim + 100) + 9 * 100)  # the table has 1.1 MiB


if __name__ == '__main__':
    unittest.main()
