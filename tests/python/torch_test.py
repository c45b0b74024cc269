"""hotbed.torch against plain torch, on the local engine."""

import copy
import unittest

try:
    import torch
except ImportError:
    torch = None
import numpy as np

import hotbed

MEMORY = '128MiB'
SAMPLES = 32
TABLES = {'user': (200, 8), 'item': (300, 8), 'shop': (50, 4)}


def configs(pooling='sum'):
    import hotbed.torch as ht
    return [ht.EmbeddingBagConfig(num_embeddings=rows, embedding_dim=dim, name=name, feature_names=[f'f_{name}'], pooling=pooling)
            for name, (rows, dim) in TABLES.items()]


def batch(random, length_max=4):
    import hotbed.torch as ht
    lengths = torch.from_numpy(random.integers(0, length_max + 1, (len(TABLES), SAMPLES)))
    values = [torch.from_numpy(random.integers(0, rows, int(n))) for (rows, _), n in zip(TABLES.values(), lengths.sum(1))]
    return ht.KeyedJaggedTensor([f'f_{t}' for t in TABLES], torch.cat(values), lengths=lengths.reshape(-1))


class Plain(torch.nn.Module if torch else object):
    """The same features over torch.nn.EmbeddingBag."""

    def __init__(self, pooling='sum'):
        super().__init__()
        self.bags = torch.nn.ModuleList([torch.nn.EmbeddingBag(rows, dim, mode=pooling) for rows, dim in TABLES.values()])

    def forward(self, features):
        pooled = []
        for key, bag in zip(features.keys(), self.bags):
            one = features[key]
            pooled.append(bag(one.values(), one.offsets()[:-1]))
        return torch.cat(pooled, 1)


class Dense(torch.nn.Module if torch else object):
    def __init__(self, embeddings):
        super().__init__()
        self.embeddings = embeddings
        self.over = torch.nn.Sequential(torch.nn.Linear(20, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))

    def forward(self, features):
        pooled = self.embeddings(features)
        return self.over(pooled if isinstance(pooled, torch.Tensor) else pooled.values())


class RowWiseAdagrad(torch.optim.Optimizer if torch else object):
    """The rule of docs/tables.md, plainly."""

    def __init__(self, parameters, lr, eps=1e-8):
        super().__init__(parameters, {'lr': lr, 'eps': eps})

    @torch.no_grad() if torch else (lambda f: f)
    def step(self):
        for group in self.param_groups:
            for p in group['params']:
                if p.grad is None:
                    continue
                touched = (p.grad != 0).any(1)
                state = self.state.setdefault(p, {'sum': torch.zeros(len(p))})
                state['sum'][touched] += (p.grad[touched] ** 2).mean(1)
                p[touched] -= group['lr'] / (state['sum'][touched].sqrt() + group['eps'])[:, None] * p.grad[touched]


def connect(**options):
    return hotbed.local(memory=MEMORY, **options)


def twins(client, optimizer, pooling='sum', **options):
    """A model over Hotbed and the same one over torch, with the same weights."""
    import hotbed.torch as ht
    torch.manual_seed(7)
    plain = Dense(Plain(pooling))
    ours = Dense(ht.EmbeddingBagCollection(configs(pooling), client=client, optimizer=optimizer, **options))
    ours.over.load_state_dict(plain.over.state_dict())
    for (name, _), bag in zip(TABLES.items(), plain.embeddings.bags):
        ht.import_weights(client, client.table(name), bag.weight.detach())
    return ours, plain


def losses(model, optimizers, batches, labels):
    found = []
    for features, label in zip(batches, labels):
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss = torch.nn.functional.binary_cross_entropy_with_logits(model(features)[:, 0], label)
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
        found.append(float(loss))
    return found


def data(steps, seed=3):
    random = np.random.default_rng(seed)
    batches = [batch(random) for _ in range(steps)]
    return batches, [torch.from_numpy(random.integers(0, 2, SAMPLES).astype(np.float32)) for _ in range(steps)]


@unittest.skipIf(torch is None, 'python3-torch is not installed')
class Parity(unittest.TestCase):
    def setUp(self):
        self.client = connect(session='rank/0')
        self.addCleanup(self.client.close)

    def compare(self, optimizer, plain_optimizer, pooling='sum', steps=100):
        ours, plain = twins(self.client, optimizer, pooling)
        batches, labels = data(steps)
        got = losses(ours, [torch.optim.SGD(ours.over.parameters(), lr=0.1)], batches, labels)
        want = losses(plain, [torch.optim.SGD(plain.over.parameters(), lr=0.1), plain_optimizer(plain.embeddings.parameters())],
                      batches, labels)
        np.testing.assert_allclose(got, want, atol=1e-5)
        self.assertNotAlmostEqual(want[0], want[-1])
        for (name, (rows, _)), bag in zip(TABLES.items(), plain.embeddings.bags):
            np.testing.assert_allclose(self.client.table(name).pull(torch.arange(rows)), bag.weight.detach(), atol=1e-4)

    def test_a_hundred_steps_of_sgd(self):
        self.compare(hotbed.optim.SGD(lr=0.5), lambda p: torch.optim.SGD(p, lr=0.5))

    def test_a_hundred_steps_of_row_wise_adagrad(self):
        self.compare(hotbed.optim.RowWiseAdagrad(lr=0.05), lambda p: RowWiseAdagrad(p, lr=0.05))

    def test_means(self):
        self.compare(hotbed.optim.SGD(lr=0.5), lambda p: torch.optim.SGD(p, lr=0.5), pooling='mean', steps=20)

    def test_prefetched_rows_are_those_of_a_pull(self):
        import hotbed.torch as ht
        ours, plain = twins(self.client, hotbed.optim.SGD(lr=0.5))
        batches, labels = data(30)
        optimizer = torch.optim.SGD(ours.over.parameters(), lr=0.1)
        got = []
        with ht.prefetch(zip(batches, labels), ours, lambda pair: pair[0], depth=3) as ahead:
            for features, label in ahead:
                got += losses(ours, [optimizer], [features], [label])
        want = losses(plain, [torch.optim.SGD(plain.parameters(), lr=0.1)], batches[:1], labels[:1])
        self.assertAlmostEqual(got[0], want[0], places=5)
        self.assertEqual(ahead.stats()['batches'], 30)
        again, _ = twins(connect(), hotbed.optim.SGD(lr=0.5))
        np.testing.assert_allclose(got, losses(again, [torch.optim.SGD(again.over.parameters(), lr=0.1)], batches, labels), atol=1e-5)

    def test_accumulated_gradients_are_one_step(self):
        import hotbed.torch as ht
        ours, plain = twins(self.client, hotbed.optim.SGD(lr=0.5))
        batches, labels = data(4)
        step = ht.training(self.client).step
        with ht.training(self.client).accumulate(scale=0.25):
            for features, label in zip(batches, labels):
                torch.nn.functional.binary_cross_entropy_with_logits(ours(features)[:, 0], label).backward()
        ht.training(self.client).wait()
        self.assertEqual(ht.training(self.client).step, step)
        for features, label in zip(batches, labels):
            (torch.nn.functional.binary_cross_entropy_with_logits(plain(features)[:, 0], label) / 4).backward()
        torch.optim.SGD(plain.embeddings.parameters(), lr=0.5).step()
        for (name, (rows, _)), bag in zip(TABLES.items(), plain.embeddings.bags):
            np.testing.assert_allclose(self.client.table(name).pull(np.arange(rows)), bag.weight.detach(), atol=1e-5)

    def test_an_overflow_is_skipped_everywhere(self):
        import hotbed.torch as ht
        ours, _ = twins(self.client, hotbed.optim.SGD(lr=0.5))
        (features,), (label,) = data(1)
        scaler = ht.GradScaler(self.client, init_scale=1024.0)
        optimizer = torch.optim.SGD(ours.over.parameters(), lr=0.1)
        rows = self.client.table('user').pull(np.arange(200))
        weight = ours.over[0].weight.detach().clone()
        for factor, applied in ((float('inf'), False), (1.0, True)):
            optimizer.zero_grad()
            loss = torch.nn.functional.binary_cross_entropy_with_logits(ours(features)[:, 0], label)
            scaler.scale(loss * factor).backward()
            self.assertEqual(scaler.step(optimizer), applied)
            scaler.update()
            ht.training(self.client).wait()
            self.assertEqual(not np.array_equal(self.client.table('user').pull(np.arange(200)), rows), applied)
            self.assertEqual(not torch.equal(ours.over[0].weight, weight), applied)
        self.assertEqual(scaler.get_scale(), 512.0)


@unittest.skipIf(torch is None, 'python3-torch is not installed')
class Modules(unittest.TestCase):
    def setUp(self):
        self.client = connect(session='rank/0')
        self.addCleanup(self.client.close)

    def test_embedding_and_bag_take_the_place_of_torchs(self):
        import hotbed.torch as ht
        torch.manual_seed(1)
        model = torch.nn.ModuleDict({'words': torch.nn.Embedding(500, 6, padding_idx=0), 'small': torch.nn.Embedding(5, 6),
                                     'bag': torch.nn.EmbeddingBag(400, 6, mode='mean')})
        plain = copy.deepcopy(model)
        model = ht.convert(model, client=self.client, min_rows=100, optimizer=hotbed.optim.SGD(lr=1.0))
        self.assertIsInstance(model['words'], ht.Embedding)
        self.assertIsInstance(model['bag'], ht.EmbeddingBag)
        self.assertIsInstance(model['small'], torch.nn.Embedding)
        ids = torch.randint(0, 400, (5, 3))
        ids[0, 0] = 0
        optimizer = torch.optim.SGD(plain.parameters(), lr=1.0)
        for _ in range(3):
            for which in ('words', 'bag'):
                got, want = model[which](ids), plain[which](ids)
                torch.testing.assert_close(got, want, atol=1e-5, rtol=0)
                (got ** 2).sum().backward()
                (want ** 2).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
        offsets = torch.tensor([0, 2, 2])
        torch.testing.assert_close(model['bag'](ids.reshape(-1), offsets), plain['bag'](ids.reshape(-1), offsets), atol=1e-5, rtol=0)

    def test_a_module_run_twice_in_a_step_pushes_once(self):
        import hotbed.torch as ht
        tower = ht.Embedding(100, 4, client=self.client, name='shared', optimizer=hotbed.optim.SGD(lr=1.0), init='constant:1')
        query, item = tower(torch.tensor([1, 2])), tower(torch.tensor([2, 3]))
        (query.sum() + item.sum()).backward()
        ht.training(self.client).wait()
        self.assertEqual(self.client.table('shared').pull([1, 2, 3])[:, 0].tolist(), [0.0, -1.0, 0.0])

    def test_sequences_come_by_feature(self):
        import hotbed.torch as ht
        module = ht.EmbeddingCollection([ht.EmbeddingConfig(100, 4, 'a', ['x', 'y'])], client=self.client, init='constant:2')
        out = module(ht.KeyedJaggedTensor(['x', 'y'], torch.tensor([1, 2, 3]), lengths=torch.tensor([2, 0, 0, 1])))
        self.assertEqual(out['x'].values().shape, (2, 4))
        self.assertEqual(out['y'].lengths().tolist(), [0, 1])
        (out['x'].values().sum() + out['y'].values().sum()).backward()
        ht.training(self.client).wait()

    def test_eval_pushes_nothing_and_creates_no_row(self):
        import hotbed.torch as ht
        module = ht.EmbeddingBag(0, 4, client=self.client, name='any', hashed=True, mode='sum').eval()
        module(torch.tensor([[5, 6]]))
        exists = np.ones(2, np.uint8)
        self.client.table('any').pull([5, 6], exists=exists)
        self.assertEqual(exists.tolist(), [0, 0])

    def test_a_state_dict_refers_to_the_tables(self):
        import hotbed.torch as ht
        module = ht.EmbeddingBagCollection(configs(), client=self.client)
        state = module.state_dict()
        self.assertEqual(list(state), ['_extra_state'])
        self.assertEqual(state['_extra_state'], {'tables': ['item', 'shop', 'user'], 'step': 1})
        module.load_state_dict(state)
        self.assertEqual(ht.training(self.client).step, 2)
        state['_extra_state']['tables'] = ['other']
        with self.assertRaises(Exception) as caught:
            module.load_state_dict(state)
        self.assertIn('other', str(caught.exception))

    def test_mistakes_are_told(self):
        import hotbed.torch as ht
        module = ht.EmbeddingBagCollection(configs(), client=self.client)
        with self.assertRaises(hotbed.InvalidArgument) as caught:
            ht.EmbeddingBagCollection(configs(), client=self.client)
        self.assertIn('another module', str(caught.exception))
        with self.assertRaises(hotbed.InvalidArgument):
            ht.EmbeddingBag(10, 4, client=self.client, name='x', mode='median')
        with self.assertRaises(hotbed.ArrayError):
            module(ht.KeyedJaggedTensor(['f_user'], torch.tensor([1.0]), lengths=torch.tensor([1])))
        with self.assertRaises(hotbed.HotbedError):
            module(ht.KeyedJaggedTensor(['f_other'], torch.tensor([1]), lengths=torch.tensor([1])))
        with self.assertRaises(hotbed.FailedPrecondition):
            copy.deepcopy(module)

    def test_a_data_loader_with_workers(self):
        import hotbed.torch as ht
        module = ht.Embedding(100, 4, client=self.client, name='loaded')
        loader = torch.utils.data.DataLoader(torch.arange(64), batch_size=16, num_workers=2)
        rows = [module(ids) for ids in loader]
        self.assertEqual([r.shape for r in rows], [(16, 4)] * 4)


if __name__ == '__main__':
    unittest.main()
