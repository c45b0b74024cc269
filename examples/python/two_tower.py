#!/usr/bin/env python3
"""Two-tower retrieval over Hotbed, on ratings in MovieLens' format (user::item::rating::time, or with commas or tabs).

    two_tower.py                        # made-up ratings, the engine in this process
    two_tower.py --ratings ratings.dat  # of MovieLens, which you download yourself

A user and an item that the user liked get a high dot product, other items of the batch a low one. Prints how often the
liked item is among the best ten of all items.
"""

import argparse
import re

import numpy as np
import torch

import hotbed
import hotbed.torch as ht


class TwoTower(torch.nn.Module):
    def __init__(self, client, users, items, dim):
        super().__init__()
        optimizer = hotbed.optim.RowWiseAdagrad(lr=0.1)
        self.user = ht.Embedding(users, dim, client=client, name='user', optimizer=optimizer)
        self.item = ht.Embedding(items, dim, client=client, name='item', optimizer=optimizer)
        self.over_user = torch.nn.Linear(dim, dim)
        self.over_item = torch.nn.Linear(dim, dim)

    def users(self, ids):
        return torch.nn.functional.normalize(self.over_user(self.user(ids)), dim=1)

    def items(self, ids):
        return torch.nn.functional.normalize(self.over_item(self.item(ids)), dim=1)

    def forward(self, users, items):
        return self.users(users) @ self.items(items).t() / 0.1


def made_up(users=400, items=300, groups=10, per_user=20, seed=1):
    """Users like the items of their group."""
    random = np.random.default_rng(seed)
    user = np.repeat(np.arange(users), per_user)
    item = (random.integers(0, items // groups, len(user)) * groups + user % groups) % items
    return np.stack([user, item], 1)


def of_file(path):
    with open(path, encoding='latin-1') as file:
        fields = [re.split(r'::|[,\t]', line.strip()) for line in file]
    liked = [(int(f[0]), int(f[1])) for f in fields if f[0].isdigit() and float(f[2]) >= 4]
    _, user = np.unique([u for u, _ in liked], return_inverse=True)
    _, item = np.unique([i for _, i in liked], return_inverse=True)
    return np.stack([user, item], 1)


def recall(model, pairs, items, best=10):
    """The part of pairs whose item is among the `best` of all items for its user."""
    model.eval()
    with torch.no_grad():
        scores = model.users(torch.from_numpy(pairs[:, 0])) @ model.items(torch.arange(items)).t()
        top = scores.topk(best, dim=1).indices
    model.train()
    return float((top == torch.from_numpy(pairs[:, 1])[:, None]).any(1).float().mean())


def main():
    parser = argparse.ArgumentParser(description=__doc__.split('\n', maxsplit=1)[0])
    parser.add_argument('--ratings', help="MovieLens' ratings.dat or ratings.csv; default: made-up ones")
    parser.add_argument('--epochs', type=int, default=5)
    parser.add_argument('--dim', type=int, default=16)
    parser.add_argument('--target', help='hotbed://HOST:PORT; default: the engine in this process')
    arguments = parser.parse_args()
    torch.manual_seed(1)
    random = np.random.default_rng(2)
    pairs = of_file(arguments.ratings) if arguments.ratings else made_up()
    random.shuffle(pairs)
    held, pairs = pairs[:len(pairs) // 20], pairs[len(pairs) // 20:]
    users, items = int(pairs[:, 0].max()) + 1, int(max(pairs[:, 1].max(), held[:, 1].max())) + 1
    client = ht.connect(arguments.target, job='two-tower') if arguments.target else hotbed.local(memory='256MiB')
    model = TwoTower(client, max(users, int(held[:, 0].max()) + 1), items, arguments.dim)
    dense = torch.optim.Adam(model.parameters(), lr=0.01)
    print(f'before: recall@10 {recall(model, held, items):.3f}')
    for epoch in range(arguments.epochs):
        random.shuffle(pairs)
        for first in range(0, len(pairs) - 255, 256):
            chunk = torch.from_numpy(pairs[first:first + 256])
            dense.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(chunk[:, 0], chunk[:, 1]), torch.arange(len(chunk)))
            loss.backward()
            dense.step()
        print(f'epoch {epoch + 1}: loss {float(loss):.4f}, recall@10 {recall(model, held, items):.3f}', flush=True)
    ht.training(client).wait()
    client.close()


if __name__ == '__main__':
    main()
