#!/usr/bin/env python3
"""A small language model over Hotbed: input embedding and output layer are tables over several shards.

    language_model.py --data tiny_shakespeare.txt --out curves.svg

Words are predicted by a transformer of one block in PyTorch. The rows of both tables are in Hotbed, and so is the softmax.
The same model is trained with torch.nn.Embedding and torch.nn.Linear beside it, from the same weights and on the same
batches; both curves of bits per token are drawn into one picture. Exit code 1: they differ by more than --tolerance.
"""

import argparse
import collections
import math
import re
import sys
import time

import numpy as np
import torch

import hotbed
import hotbed.torch as ht

UNKNOWN = 0
BETAS = (0.9, 0.98)


def words_of(path, words_max):
    """The text as numbers of words, 0 for those that are not among the most frequent."""
    with open(path, encoding='utf-8', errors='replace') as file:
        words = re.findall(r"\w+|[^\w\s]|\n", file.read())
    if len(words) < 1000:
        sys.exit(f'--data {path} has {len(words)} words; allowed: 1000 or more')
    number = {word: n for n, (word, _) in enumerate(collections.Counter(words).most_common(words_max - 1), start=1)}
    return np.array([number.get(word, UNKNOWN) for word in words]), len(number) + 1


def learning_rate(step, peak, warm_up, first=1e-7):
    """Linear from `first` to `peak` in `warm_up` steps, then with the inverse square root of the step."""
    if step <= warm_up:
        return first + (peak - first) * step / warm_up
    return peak * math.sqrt(warm_up / step)


class Block(torch.nn.Module):
    """The dense part: attention to the words before, and a feed-forward network."""

    def __init__(self, dim, length, heads):
        super().__init__()
        self.position = torch.nn.Parameter(torch.randn(length, dim) * 0.02)
        self.before, self.between, self.after = (torch.nn.LayerNorm(dim) for _ in range(3))
        self.attention = torch.nn.MultiheadAttention(dim, heads, batch_first=True)
        self.feed = torch.nn.Sequential(torch.nn.Linear(dim, 4 * dim), torch.nn.GELU(), torch.nn.Linear(4 * dim, dim))
        self.register_buffer('mask', torch.triu(torch.ones(length, length, dtype=torch.bool), 1))

    def forward(self, rows):
        x = rows + self.position
        y = self.before(x)
        x = x + self.attention(y, y, y, attn_mask=self.mask, need_weights=False)[0]
        return self.after(x + self.feed(self.between(x)))


class HotbedEnds(torch.nn.Module):
    """Embedding and output layer in tables: two, or one where they are tied."""

    def __init__(self, client, words, arguments):
        super().__init__()
        options = {'optimizer': hotbed.optim.Adam(lr=arguments.lr, beta1=BETAS[0], beta2=BETAS[1]), 'init': 'normal:0,0.02'}
        self.training_of_tables = ht.training(client)
        self.output = ht.VocabParallelCrossEntropy(words, arguments.dim, client=client, name='lm/output',
                                                   label_smoothing=arguments.label_smoothing, **options)
        self.input = self.output.embedding if arguments.tied else ht.Embedding(words, arguments.dim, client=client,
                                                                               name='lm/input', **options)

    def rows(self, ids):
        return self.input(ids)

    def loss(self, hidden, targets):
        return self.output(hidden, targets), self.output.bits_per_token

    def set_rate(self, rate):
        self.training_of_tables.lr = rate

    def step(self):
        pass  # backward has pushed

    def end(self):
        self.training_of_tables.wait()


class LocalEnds(torch.nn.Module):
    """The same in this process, from the same weights."""

    def __init__(self, client, words, arguments):
        super().__init__()
        ids = np.arange(words, dtype=np.uint64)
        rows = torch.from_numpy(client.table('lm/output').pull(ids).copy())
        self.weight = torch.nn.Parameter(rows)
        self.smoothing = arguments.label_smoothing
        if arguments.tied:
            self.input = lambda ids: torch.nn.functional.embedding(ids, self.weight)
            self.optimizers = [torch.optim.Adam([self.weight], betas=BETAS)]
        else:
            self.input = torch.nn.Embedding(words, arguments.dim, sparse=True)
            self.input.weight.data.copy_(torch.from_numpy(client.table('lm/input').pull(ids).copy()))
            self.optimizers = [torch.optim.Adam([self.weight], betas=BETAS),
                               torch.optim.SparseAdam(list(self.input.parameters()), betas=BETAS)]

    def rows(self, ids):
        return self.input(ids)

    def loss(self, hidden, targets):
        loss = torch.nn.functional.cross_entropy(hidden.reshape(-1, hidden.shape[-1]) @ self.weight.t(), targets.reshape(-1),
                                                 label_smoothing=self.smoothing)
        return loss, loss.item() / math.log(2)

    def set_rate(self, rate):
        for optimizer in self.optimizers:
            optimizer.param_groups[0]['lr'] = rate

    def step(self):
        for optimizer in self.optimizers:
            optimizer.step()
            optimizer.zero_grad()

    def end(self):
        pass


def train(name, ends, batches, arguments):
    """Bits per token of each step."""
    torch.manual_seed(1)
    block = Block(arguments.dim, arguments.length, arguments.heads)
    dense = torch.optim.Adam(block.parameters(), betas=BETAS)
    bits, begun = [], time.monotonic()
    for step, batch in enumerate(batches, start=1):
        rate = learning_rate(step, arguments.lr, arguments.warm_up)
        dense.param_groups[0]['lr'] = rate
        ends.set_rate(rate)
        loss, of_step = ends.loss(block(ends.rows(batch[:, :-1])), batch[:, 1:])
        loss.backward()
        dense.step()
        dense.zero_grad()
        ends.step()
        bits.append(of_step)
        if step % 20 == 0 or step == len(batches):
            seconds = time.monotonic() - begun
            print(f'{name}: step {step} of {len(batches)}, {np.mean(bits):.4f} bits per token on average, {of_step:.4f} in this '
                  f'step, learning rate {rate:.2e}, {1000 * seconds / step:.0f} ms per step, '
                  f'{seconds / step * (len(batches) - step):.0f} s left', flush=True)
    ends.end()
    return np.array(bits)


def picture(curves, title):
    """The curves as SVG: the first drawn wide, the second thin on top of it."""
    width, height, left, below = 820, 460, 60, 50
    low = math.floor(min(c.min() for _, c in curves))
    high = math.ceil(max(c.max() for _, c in curves))
    steps = len(curves[0][1])
    x = lambda step: left + (width - left - 20) * step / steps
    y = lambda bits: 40 + (height - below - 40) * (high - bits) / (high - low)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif" font-size="12">',
           '<rect width="100%" height="100%" fill="white"/>', f'<text x="{left}" y="22" font-size="15">{title}</text>']
    for bits in range(low, high + 1):
        out.append(f'<path d="M{left} {y(bits):.1f}H{width - 20}" stroke="#ddd"/>'
                   f'<text x="{left - 8}" y="{y(bits) + 4:.1f}" text-anchor="end">{bits}</text>')
    for step in range(0, steps + 1, max(1, steps // 6)):
        out.append(f'<text x="{x(step):.1f}" y="{height - below + 20}" text-anchor="middle">{step}</text>')
    out.append(f'<text x="{width / 2}" y="{height - 10}" text-anchor="middle">step</text>'
               f'<text x="16" y="{height / 2}" text-anchor="middle" transform="rotate(-90 16 {height / 2})">bits per token</text>')
    for place, ((name, bits), color, stroke) in enumerate(zip(curves, ('#f4a261', '#1d3557'), (6, 1.5))):
        points = ' '.join(f'{x(step):.1f},{y(b):.1f}' for step, b in enumerate(bits, start=1))
        out.append(f'<polyline points="{points}" fill="none" stroke="{color}" stroke-width="{stroke}"/>'
                   f'<path d="M{width - 260} {60 + 20 * place}h30" stroke="{color}" stroke-width="{stroke}"/>'
                   f'<text x="{width - 222}" y="{64 + 20 * place}">{name}</text>')
    return '\n'.join(out + ['</svg>', ''])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split('\n', maxsplit=1)[0])
    parser.add_argument('--data', required=True, help='a text, such as tiny_shakespeare.txt')
    parser.add_argument('--out', default='language_model.svg', help='the picture; default: %(default)s')
    parser.add_argument('--target', help='hotbed://HOST:PORT; default: the engine in this process')
    parser.add_argument('--steps', type=int, default=120)
    parser.add_argument('--words', type=int, default=10000, help='words of the vocabulary, at most; default: %(default)s')
    parser.add_argument('--dim', type=int, default=64)
    parser.add_argument('--length', type=int, default=32, help='words per sequence; default: %(default)s')
    parser.add_argument('--batch', type=int, default=8, help='sequences per step; default: %(default)s')
    parser.add_argument('--heads', type=int, default=4)
    parser.add_argument('--lr', type=float, default=2e-3, help='at the end of the warm-up; default: %(default)s')
    parser.add_argument('--warm-up', type=int, default=30, help='steps; default: %(default)s')
    parser.add_argument('--label-smoothing', type=float, default=0.1)
    parser.add_argument('--tied', action='store_true', help='one table for both ends')
    parser.add_argument('--tolerance', type=float, default=1e-3, help='bits per token; default: %(default)s')
    arguments = parser.parse_args()
    text, words = words_of(arguments.data, arguments.words)
    random = np.random.default_rng(3)
    starts = random.integers(0, len(text) - arguments.length - 1, (arguments.steps, arguments.batch))
    batches = [torch.from_numpy(text[s[:, None] + np.arange(arguments.length + 1)]) for s in starts]
    client = ht.connect(arguments.target, job='language-model') if arguments.target else hotbed.local(memory='512MiB')
    with client:
        in_hotbed = HotbedEnds(client, words, arguments)
        local = LocalEnds(client, words, arguments)  # before the first step: it copies the first rows
        print(f'{words} words of dim {arguments.dim}, {arguments.batch * arguments.length} tokens per step; of equal words each has '
              f'{math.log2(words):.2f} bits')
        curves = [('layers of torch.nn', train('local', local, batches, arguments)),
                  ('tables in Hotbed', train('Hotbed', in_hotbed, batches, arguments))]
    with open(arguments.out, 'w', encoding='utf-8') as file:
        file.write(picture(curves, 'A language model with its ends in Hotbed, and in PyTorch'))
    difference = float(np.abs(curves[0][1] - curves[1][1]).max())
    print(f'the curves differ by at most {difference:.2e} bits per token; {arguments.out} shows them')
    return 0 if difference <= arguments.tolerance else 1


if __name__ == '__main__':
    sys.exit(main())
