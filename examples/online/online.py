#!/usr/bin/env python3
"""Online inference from the start to the end, on one machine: a click model is trained, published, served and asked for scores.

    ./dev example online                        # about two minutes
    ./dev example online --seconds 30 --report page.html

Two trainers train a factorization machine on made-up clicks as they come, each once, on two servers. A publisher publishes its rows as a version
every few seconds. Serving servers hold copies of them in int8, and a load generator scores unseen clicks at a fixed rate with
the current version, open loop: a request's time counts from when it was due. Meanwhile a replica is killed, a server of the
trainers is killed, and the version is rolled back. At the end the text, and a page with --report, say what each of these did, what
the format costs in AUC at each time, and how much memory serving and training took.
"""

import argparse
import collections
import concurrent.futures
import html
import itertools
import json
import math
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time

import numpy as np

import hotbed

PREFIX = 'clicks'
TABLES = (f'{PREFIX}_integers', f'{PREFIX}_categories')
TRAINING = ('s0', 's1')  # servers of the trainers
INTEGERS, CATEGORIES, BUCKETS, FACTORS = 13, 26, 512, 15
BIAS = INTEGERS * BUCKETS  # the id of the model's bias, behind those of the integers
MASK = 2**64 - 1
BATCH = 32  # clicks of a request
CHUNK_SECONDS = 2  # clicks come to trainers in files of so much time


# --- clicks, as hotbed-train-ctr reads them (trainer/criteo_format.h)

def mix64(x):
    x = (x + 0x9e3779b97f4a7c15) & MASK
    x = ((x ^ x >> 30) * 0xbf58476d1ce4e5b9) & MASK
    x = ((x ^ x >> 27) * 0x94d049bb133111eb) & MASK
    return x ^ x >> 31


def category_id(field, text):
    value = 0xcbf29ce484222325
    for byte in text.encode():
        value = ((value ^ byte) * 0x100000001b3) & MASK
    value = ((value ^ len(text)) * 0x100000001b3) & MASK
    return mix64(value ^ mix64(field + 1))


def integer_id(field, text):
    if not text:
        bucket = 0
    elif int(text) < 0:
        bucket = 1
    else:
        bucket = min(2 + math.floor(math.log(int(text) + 1.0)**2), BUCKETS - 1)
    return field * BUCKETS + bucket


def read_clicks(lines):
    """(labels, ids of integers, ids of categories)"""
    known = {}
    labels, integers, categories = [], [], []
    for line in lines:
        columns = line.rstrip('\n').split('\t')
        labels.append(int(columns[0]))
        integers.append([integer_id(f, text) for f, text in enumerate(columns[1:1 + INTEGERS])])
        for f, text in enumerate(columns[1 + INTEGERS:]):
            if (f, text) not in known:
                known[f, text] = category_id(f, text)
        categories.append([known[f, text] for f, text in enumerate(columns[1 + INTEGERS:])])
    return np.array(labels), np.array(integers, np.uint64), np.array(categories, np.uint64)


def auc(labels, scores):
    """The area under the ROC curve; None where all labels are the same."""
    positives = int(np.sum(labels))
    negatives = len(labels) - positives
    if not positives or not negatives:
        return None
    order = np.argsort(scores, kind='stable')
    ranks = np.empty(len(scores))
    ranks[order] = np.arange(1, len(scores) + 1)
    _, at, count = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = (np.bincount(at, ranks) / count)[at]  # equal scores share a rank
    return float((ranks[labels == 1].sum() - positives * (positives + 1) / 2) / (positives * negatives))


def scores_of(bias, rows):
    """Scores by a factorization machine, whose rows have a weight in front of their factors: clicks x features x (1 + FACTORS)."""
    total, factors = rows.sum(1), rows[:, :, 1:]
    return bias + total[:, 0] + 0.5 * ((total[:, 1:]**2).sum(1) - (factors**2).sum((1, 2)))


def fp32_scores(checkpoint, integers, categories):
    """Scores by the rows of a version as they were trained: its files are restored into an engine in this process."""
    with hotbed.local(memory='512MiB') as client:
        hotbed.restore(client, checkpoint, tables=TABLES, durability='checkpoint')

        def rows_of(table, ids):
            distinct, at = np.unique(ids, return_inverse=True)
            there = np.zeros(len(distinct), np.uint8)
            rows = client.table(table).pull(distinct, exists=there) * there[:, np.newaxis]  # served rows that do not exist are zeros
            return rows[at.reshape(-1)]
        numbers = rows_of(TABLES[0], np.append(integers.ravel(), np.uint64(BIAS)))
        rows = [numbers[:-1].reshape(*integers.shape, -1), rows_of(TABLES[1], categories.ravel()).reshape(*categories.shape, -1)]
        return scores_of(numbers[-1, 0], np.concatenate(rows, 1))


def median_of(values):
    """The median of those that are not None."""
    return quantile([value for value in values if value is not None], 0.5)


def quantile(values, part):
    return float(np.quantile(values, part)) if len(values) else None


# --- the cluster

class Cluster:
    def __init__(self, arguments, directory):
        self.bin = arguments.bin_dir
        self.serving = [f'serving{i}' for i in range(arguments.replicas)]
        self.log = open(os.path.join(directory, 'cluster.log'), 'w', encoding='utf-8')
        self.process = self.start('hotbed', 'up', '--data-dir', os.path.join(directory, 'cluster'), '--servers', 2, '--serving',
                                  arguments.replicas, '--port', 0, '--host-bytes', '512MiB', '-o', 'json', stdout=subprocess.PIPE)
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f'online: the cluster did not start; see {self.log.name}')
        self.info = json.loads(line)
        self.coordinator = self.info['coordinator']
        self.target = f'hotbed://{self.coordinator}'

    def start(self, program, *words, stdout=None, priority=0):
        return subprocess.Popen([os.path.join(self.bin, program), *map(str, words)], text=True, stdin=subprocess.DEVNULL,
                                stdout=stdout or self.log, stderr=self.log,
                                preexec_fn=(lambda: os.nice(priority)) if priority else None)

    def json(self, *words):
        done = subprocess.run([os.path.join(self.bin, 'hotbed'), *map(str, words), '--coordinator', self.coordinator, '-o', 'json'],
                              capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
        if done.returncode != 0:
            raise RuntimeError(f'hotbed {" ".join(map(str, words))}: {done.stderr.strip()}')
        return json.loads(done.stdout)

    def pid(self, name):
        """The process as it is now: 'hotbed up' starts one that has ended again."""
        for line in subprocess.run(['ps', '--ppid', str(self.process.pid), '-o', 'pid=,args='], capture_output=True, text=True,
                                   check=True).stdout.splitlines():
            number, _, words = line.strip().partition(' ')
            if f'--name={name}' in words.split():
                return int(number)
        return None

    def resident(self, name):
        with open(f'/proc/{self.pid(name)}/status', encoding='ascii') as status:
            return next(int(line.split()[1]) << 10 for line in status if line.startswith('VmRSS'))

    def memory(self):
        """Bytes: resident ones of the trainers' servers and of the serving servers, and those that a copy's rows take. None: one is away."""
        def together(names):
            try:
                return sum(self.resident(name) for name in names)
            except (OSError, StopIteration):  # it has ended
                return None
        tables = self.json('serve', 'status')['tables']
        ready = [[copy['bytes'] for copy in table['copies'] if copy['state'] == 'ready'] for table in tables]
        return {'training': together(TRAINING), 'serving': together(self.serving),
                'copy': sum(map(max, ready)) if ready and all(ready) else None}

    def copies_ready(self):
        tables = self.json('serve', 'status')['tables']
        return bool(tables) and all(copy['state'] == 'ready' for table in tables for copy in table['copies'])

    def stop(self):
        self.process.send_signal(signal.SIGINT)
        self.process.wait(timeout=60)
        self.log.close()


def wait_for(what, check, seconds=60):
    deadline = time.monotonic() + seconds
    while not check():
        if time.monotonic() > deadline:
            raise RuntimeError(f'not within {seconds} s: {what}')
        time.sleep(0.05)


# --- the load

Request = collections.namedtuple('Request', 'due seconds version first scores error')


class Load:
    """Scores unseen clicks at a fixed rate, until it is stopped."""

    def __init__(self, target, clicks, rate, begin):
        self.client = hotbed.ServingClient(target)
        self.labels, self.integers, self.categories = clicks
        self.rate, self.begin = rate, begin
        self.requests, self.ages = [], []
        self.ends = threading.Event()
        self.threads = [threading.Thread(target=self.run), threading.Thread(target=self.watch_age)]
        for thread in self.threads:
            thread.start()

    def stop(self):
        self.ends.set()
        for thread in self.threads:
            thread.join()
        self.client.close()

    def run(self):
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            for number in itertools.count():
                due = self.begin + number / self.rate
                if self.ends.wait(max(0, due - time.monotonic())):
                    return
                pool.submit(self.ask, due, number * BATCH % (len(self.labels) - BATCH + 1))

    def ask(self, due, first):
        integers = np.append(self.integers[first:first + BATCH].ravel(), np.uint64(BIAS))
        try:
            found = self.client.lookup({TABLES[0]: integers, TABLES[1]: self.categories[first:first + BATCH].ravel()}, timeout=2,
                                       hedge_after=0.02, version='current')
        except hotbed.HotbedError as error:
            self.requests.append(Request(due, time.monotonic() - due, None, first, None, str(error)))
            return
        values = [found[table].values for table in TABLES]
        rows = np.concatenate([values[0][:-1].reshape(BATCH, INTEGERS, -1), values[1].reshape(BATCH, CATEGORIES, -1)], 1)
        scores = scores_of(values[0][-1, 0], rows)
        self.requests.append(Request(due, time.monotonic() - due, found[TABLES[0]].version, first, scores, None))

    def watch_age(self):
        """How old the newest rows are that a lookup can have."""
        while not self.ends.wait(0.25):
            try:
                found = self.client.lookup({TABLES[0]: [BIAS]}, timeout=1)
                self.ages.append((time.monotonic(), found[TABLES[0]].age))
            except hotbed.HotbedError:
                self.ages.append((time.monotonic(), None))


class MemoryWatch(threading.Thread):
    """Looks at the memory every second, until it is stopped."""

    def __init__(self, cluster):
        super().__init__()
        self.cluster, self.seen, self.errors, self.ends = cluster, [], [], threading.Event()
        self.start()

    def run(self):
        while not self.ends.wait(1):
            at = time.monotonic()
            try:
                self.seen.append((at, self.cluster.memory()))
            except RuntimeError:  # the coordinator does not answer
                pass
            except Exception as error:  # the report says why seconds of it are missing
                self.errors.append(repr(error))

    def stop(self):
        self.ends.set()
        self.join()


class Trainer(threading.Thread):
    """Trains on one file after another, as clicks come, until there are none or it is stopped."""

    def __init__(self, cluster, files):
        super().__init__()
        self.cluster, self.files, self.process = cluster, files, None
        self.trained, self.errors, self.ends = 0, [], threading.Event()

    def run(self):
        begin = time.monotonic()
        for number, name in enumerate(self.files):
            if self.ends.wait(max(0, begin + number * CHUNK_SECONDS - time.monotonic())):
                return
            self.process = self.cluster.start(
                'hotbed-train-ctr', f'--coordinator={self.cluster.coordinator}', f'--train={name}', '--test-fraction=0', '--threads=1',
                f'--table-prefix={PREFIX}', f'--factors={FACTORS}', '--epochs=1', '--durability=replicated=2', '-o', 'json',
                stdout=subprocess.PIPE, priority=10)
            out, _ = self.process.communicate()
            if self.process.returncode == 0:
                self.trained += json.loads(out)['examples']
            elif not self.ends.is_set():
                self.errors.append(f'hotbed-train-ctr has ended with {self.process.returncode}')

    def stop(self):
        self.ends.set()
        while self.is_alive():
            if self.process is not None and self.process.poll() is None:
                self.process.kill()
            self.join(0.1)


class Publisher(threading.Thread):
    """Publishes a version every `every` seconds, until it is stopped."""

    def __init__(self, cluster, directory, every):
        super().__init__()
        self.cluster, self.directory, self.every = cluster, directory, every
        self.ends, self.versions, self.errors = threading.Event(), [], []
        self.publishes = threading.Lock()

    def publish(self):
        with self.publishes:
            self.publish_now()

    def publish_now(self):
        begin = time.monotonic()
        done = self.cluster.json('publish', *TABLES, self.directory, '--name', f'v{len(self.versions) + len(self.errors) + 1}')
        self.versions.append({'name': done['version'], 'checkpoint': done['checkpoint'], 'at': begin, 'seconds': time.monotonic() - begin, 'bytes': done['bytes']})

    def run(self):
        begin = time.monotonic()
        for number in itertools.count(1):
            if self.ends.wait(max(0, begin + number * self.every - time.monotonic())):
                return
            try:
                self.publish()
            except RuntimeError as error:
                self.errors.append(str(error))

    def stop(self):
        self.ends.set()
        self.join()


# --- the story

class Story:
    def __init__(self, arguments, directory):
        self.arguments, self.directory = arguments, directory
        self.events = []
        self.begin = self.end = 0
        self.publisher = self.load = self.unseen = self.watch = None
        self.fp32 = {}  # by version: the score of each unseen click
        self.cluster = Cluster(arguments, directory)
        self.trainers = []

    def say(self, text):
        print(text, file=sys.stderr, flush=True)

    def clicks(self):
        """Files of clicks, as they come to each trainer, and unseen ones, all of one planted model."""
        path = os.path.join(self.directory, 'clicks.tsv')
        chunks = math.ceil(self.arguments.seconds / CHUNK_SECONDS) + 1
        lines, unseen = round(self.arguments.click_rate * CHUNK_SECONDS / 2), self.arguments.unseen
        done = subprocess.run([os.path.join(self.cluster.bin, 'hotbed'), 'datagen', 'criteo', '--rows',
                               str(2 * chunks * lines + unseen), '--out', path], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(f'hotbed datagen: {done.stderr}')
        names = [os.path.join(self.directory, f'clicks-{number}.tsv') for number in range(2 * chunks)]
        with open(path, encoding='ascii') as clicks:
            for name in names:
                with open(name, 'w', encoding='ascii') as part:
                    part.writelines(itertools.islice(clicks, lines))
            self.unseen = read_clicks(clicks)
        return names

    def train(self, names):
        self.trainers = [Trainer(self.cluster, names[part::2]) for part in range(2)]
        for trainer in self.trainers:
            trainer.start()

    def event(self, text):
        self.events.append((time.monotonic(), text))
        self.say(f'  {time.monotonic() - self.begin:5.1f} s  {text}')

    def kill(self, name, what):
        pid = self.cluster.pid(name)
        os.kill(pid, signal.SIGKILL)
        self.event(f'{what} ({name}) is killed')

    def at(self, part):
        """Waits until this part of the time is over."""
        time.sleep(max(0, self.begin + part * self.arguments.seconds - time.monotonic()))

    def run(self):
        self.say('making clicks ...')
        self.train(self.clicks())
        listed = lambda: {table['name'] for table in self.cluster.json('table', 'list')}  # noqa: E731
        wait_for('the trainers have made their tables', lambda: listed() >= set(TABLES))
        self.cluster.json('serve', 'add', *TABLES, '--format', self.arguments.format, '--replicas', self.arguments.replicas)
        wait_for('all copies are ready', self.cluster.copies_ready)
        publisher = Publisher(self.cluster, os.path.join(self.directory, 'versions'), self.arguments.publish_every)
        publisher.publish()
        self.begin = time.monotonic()
        self.publisher, self.load = publisher, Load(self.cluster.target, self.unseen, self.arguments.rate, self.begin)
        publisher.start()
        try:
            self.watch = MemoryWatch(self.cluster)
            self.live()
            memory = self.memory()
        finally:
            if self.watch is not None:
                self.watch.stop()
            publisher.stop()
            self.load.stop()
            self.stop_trainers()
        self.score_in_fp32()
        return self.result(memory)

    def score_in_fp32(self):
        """What the versions that were served would score without rounding."""
        self.say('scoring with the fp32 rows of the same versions ...')
        used = {r.version for r in self.load.requests}
        for version in self.publisher.versions:
            if version['name'] in used:
                self.fp32[version['name']] = fp32_scores(version['checkpoint'], *self.unseen[1:])

    def scored_by(self, version, or_later=False):
        def is_wanted(found):
            return found == version or bool(or_later and found and int(found[1:]) > int(version[1:]))

        since = time.monotonic()
        wait_for(f'scores are of version {version}', lambda: any(
            r.due > since and is_wanted(r.version) for r in self.load.requests[-20:]))

    def live(self):
        self.say(f'{self.arguments.replicas} replicas serve {self.arguments.format}, {self.arguments.rate * BATCH} scores/s are asked for')
        self.at(0.3)
        self.kill('serving1', 'a replica')
        self.at(0.5)
        self.kill('s1', 'a server of the trainers')
        self.at(0.7)
        wait_for('there is a version to go back to', lambda: len(self.publisher.versions) > 1)
        with self.publisher.publishes:  # a version that is being taken up is not left
            back = self.cluster.json('serve', 'rollback')
        self.event(f'rolled back to {back["version"]}')
        self.scored_by(back['version'])
        self.at(0.85)
        newest = self.cluster.json('serve', 'pin', '--off')
        self.event(f'the newest version, {newest["version"]}, again')
        self.scored_by(newest['version'], or_later=True)
        self.at(1)
        self.end = time.monotonic()

    def memory(self):
        """Resident bytes of the processes, and what a copy's rows take of them."""
        copies = [copy for table in self.cluster.json('serve', 'status')['tables'] for copy in table['copies']]
        names = [*TRAINING, *self.cluster.serving]
        wait_for('all servers run', lambda: all(self.cluster.pid(name) is not None for name in names))
        return {'resident': {name: self.cluster.resident(name) for name in names},
                'copy_bytes': sum(copy['bytes'] for copy in copies) // self.arguments.replicas,
                'copy_rows': sum(copy['rows'] for copy in copies) // self.arguments.replicas}

    def window(self, first, last):
        """What the requests that were due in this time had."""
        found = [r for r in self.load.requests if first <= r.due < last]
        good = [r for r in found if r.error is None]
        labels = np.concatenate([self.load.labels[r.first:r.first + BATCH] for r in good]) if good else np.array([], int)
        published = {v['name']: v['at'] for v in self.publisher.versions}
        ages = [r.due - published[r.version] for r in good if r.version in published]
        newest = [age for at, age in self.load.ages if first <= at < last and age is not None]
        versions = list(dict.fromkeys(r.version for r in sorted(good, key=lambda r: r.due)))
        memory = [seen for at, seen in self.watch.seen if first <= at < last]
        return {'from': first - self.begin, 'to': last - self.begin, 'requests': len(found), 'errors': len(found) - len(good),
                'auc': auc(labels, np.concatenate([r.scores for r in good])) if good else None,
                'auc_fp32': self.auc_in_fp32(good),
                'versions': versions, **{f'{kind}_bytes': median_of(seen[kind] for seen in memory) for kind in ('training', 'serving', 'copy')},
                'p50_ms': ms(quantile([r.seconds for r in good], 0.5)), 'p99_ms': ms(quantile([r.seconds for r in good], 0.99)),
                'version_age_s': quantile(ages, 0.5), 'newest_age_ms': ms(quantile(newest, 0.5))}

    def auc_in_fp32(self, requests):
        known = [r for r in requests if r.version in self.fp32]
        if not known:
            return None
        return auc(np.concatenate([self.load.labels[r.first:r.first + BATCH] for r in known]),
                   np.concatenate([self.fp32[r.version][r.first:r.first + BATCH] for r in known]))

    def result(self, memory):
        end = self.end
        edges = np.linspace(self.begin, end, self.arguments.windows + 1)
        events = []
        for number, (at, text) in enumerate(self.events):
            until = min([later for later, _ in self.events[number + 1:]] + [end])
            events.append({'event': text, **self.window(at, until)})
        return {'windows': [self.window(a, b) for a, b in zip(edges, edges[1:])], 'events': events,
                'before_events': self.window(self.begin, self.events[0][0]), 'all': self.window(self.begin, end),
                'publications': [{'name': v['name'], 'at_s': v['at'] - self.begin, 'seconds': v['seconds'], 'bytes': v['bytes']}
                                 for v in self.publisher.versions],
                'trained_clicks': sum(trainer.trained for trainer in self.trainers),
                'trainer_errors': [error for trainer in self.trainers for error in trainer.errors],
                'publication_errors': self.publisher.errors, 'memory_errors': self.watch.errors, 'memory': memory, 'format': self.arguments.format,
                'first_error': next((r.error for r in self.load.requests if r.error), None)}

    def stop_trainers(self):
        for trainer in self.trainers:
            trainer.stop()

    def stop(self):
        self.stop_trainers()
        self.cluster.stop()


# --- what is shown

def ms(seconds):
    return None if seconds is None else 1e3 * seconds


def mb(size):
    return None if size is None else size / 1e6


def text_of(value, form):
    return '-' if value is None else format(value, form)


def cells(window):
    return [f'{window["from"]:.0f} to {window["to"]:.0f} s', text_of(window['auc'], '.4f'), text_of(window['auc_fp32'], '.4f'),
            str(window['requests']),
            str(window['errors']), text_of(window['p50_ms'], '.1f'), text_of(window['p99_ms'], '.1f'),
            text_of(window['newest_age_ms'], '.0f'), text_of(window['version_age_s'], '.1f'), text_of(mb(window['training_bytes']), '.0f'),
            text_of(mb(window['serving_bytes']), '.0f'), text_of(mb(window['copy_bytes']), '.1f'), ' '.join(window['versions'])]


HEAD = ['time', 'AUC', 'AUC in fp32', 'requests', 'errors', 'p50 ms', 'p99 ms', 'newest rows, ms old', 'version, s old', 'training MB',
        'serving MB', "a copy's rows MB", 'versions']


def tables_of(result):
    """(title, rows of text) of each table that is shown."""
    yield 'Over time', [HEAD, *map(cells, result['windows'])]
    yield 'After each event', [['event', *HEAD], *([e['event'], *cells(e)] for e in
                                                   [{'event': 'before all', **result['before_events']}, *result['events']])]
    yield 'Publications', [['version', 'at s', 'took s', 'MB'], *([p['name'], f'{p["at_s"]:.1f}', f'{p["seconds"]:.1f}',
                                                                  f'{p["bytes"] / 1e6:.1f}'] for p in result['publications'])]
    memory = result['memory']
    rows = [[name, f'{size / 1e6:.0f}'] for name, size in memory['resident'].items()]
    yield 'Resident memory in the end', [['process', 'MB'], *rows]


def plain(result):
    for title, rows in tables_of(result):
        widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
        yield f'\n{title}'
        for row in rows:
            yield '  ' + '  '.join(text.ljust(width) for text, width in zip(row, widths)).rstrip()
    memory = result['memory']
    yield (f'\nA copy of all rows takes {memory["copy_bytes"] / 1e6:.1f} MB in {result["format"]} ({memory["copy_rows"]} rows, '
           f'{memory["copy_bytes"] / max(1, memory["copy_rows"]):.0f} bytes each, index included).')
    whole = result['all']
    if whole['auc'] is not None and whole['auc_fp32'] is not None:
        yield (f'All scores have an AUC of {whole["auc"]:.5f} in {result["format"]}, and of {whole["auc_fp32"]:.5f} in fp32 '
               f'({whole["auc"] - whole["auc_fp32"]:+.5f}).')
    if result['first_error']:
        yield f'First error: {result["first_error"]}'
    yield f'The trainers have trained {result["trained_clicks"]} clicks.'
    for error in result['trainer_errors']:
        yield f'A trainer failed: {error}'
    for error in result['publication_errors']:
        yield f'A publication failed: {error}'
    for error in result['memory_errors']:
        yield f'A look at the memory failed: {error}'


COLOURS = ('#246', '#e80')


def chart(result, label, lines, unit=1):
    """A line over time for each {name of a window's value: what it is}, with the events, as SVG."""
    width, height = 760, 150
    end = result['windows'][-1]['to']
    points = {name: [((w['from'] + w['to']) / 2, w[name] / unit) for w in result['windows'] if w[name] is not None] for name in lines}
    values = [value for line in points.values() for _, value in line]
    if not values:
        return ''
    low, high = min(values), max(values)
    if low == high:
        high = low + 1
    x = lambda at: 50 + (width - 60) * at / end  # noqa: E731
    y = lambda value: height - 20 - (height - 40) * (value - low) / (high - low)  # noqa: E731
    marks = ''.join(f'<line x1="{x(e["from"]):.1f}" x2="{x(e["from"]):.1f}" y1="10" y2="{height - 20}" stroke="#c44"/>'
                    f'<text x="{x(e["from"]) + 3:.1f}" y="20" fill="#c44">{number + 1}</text>'
                    for number, e in enumerate(result['events']))
    drawn, legend = '', ''
    for number, (name, what) in enumerate(lines.items()):
        colour, dash = COLOURS[number], ' stroke-dasharray="6 3"' if number else ''
        at = ' '.join(f'{x(when):.1f},{y(value):.1f}' for when, value in points[name])
        drawn += f'<polyline points="{at}" fill="none" stroke="{colour}" stroke-width="2"{dash}/>'
        if len(lines) > 1:
            legend += f'<text x="{50 + 240 * number}" y="{height - 4}" fill="{colour}">{html.escape(what)}</text>'
    return (f'<h3>{html.escape(label)}</h3><svg width="{width}" height="{height}" font-size="11">{marks}{drawn}{legend}'
            f'<text x="0" y="{y(high) + 4:.0f}">{high:.4g}</text><text x="0" y="{y(low) + 4:.0f}">{low:.4g}</text></svg>')


def page(result):
    parts = ['<!doctype html><meta charset="utf-8"><title>Hotbed: online</title><style>body{font:14px sans-serif;margin:2em}'
             'td,th{padding:2px 10px;text-align:left;white-space:nowrap}</style><h1>A click model, trained and served</h1>',
             '<ol>', *(f'<li>{html.escape(e["event"])} at {e["from"]:.1f} s</li>' for e in result['events']), '</ol>']
    parts.append(chart(result, 'AUC of the served model', {'auc': f'served, in {result["format"]}', 'auc_fp32': 'the same versions, in fp32'}))
    for name, label in (('p99_ms', 'p99 of a request, ms'), ('p50_ms', 'p50 of a request, ms'),
                        ('newest_age_ms', 'Age of the newest rows, ms'), ('version_age_s', 'Age of the current version, s')):
        parts.append(chart(result, label, {name: label}))
    servers = f'{len(result["memory"]["resident"]) - len(TRAINING)} serving servers'
    parts.append(chart(result, 'Resident memory, MB', {'training_bytes': f'{len(TRAINING)} servers of the trainers', 'serving_bytes': servers},
                       unit=1e6))
    parts.append(chart(result, f'Rows of one copy, in {result["format"]}, MB', {'copy_bytes': 'rows'}, unit=1e6))
    for title, rows in tables_of(result):
        parts.append(f'<h3>{title}</h3><table>')
        for number, row in enumerate(rows):
            cell = 'th' if number == 0 else 'td'
            parts.append('<tr>' + ''.join(f'<{cell}>{html.escape(text)}</{cell}>' for text in row) + '</tr>')
        parts.append('</table>')
    return '\n'.join(parts) + '\n'


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--bin-dir', default=os.environ.get('HOTBED_BIN', 'build/bin'), help='where the programs are')
    parser.add_argument('--seconds', type=float, default=80, help='of load')
    parser.add_argument('--publish-every', type=float, default=10, help='seconds')
    parser.add_argument('--rate', type=float, default=40, help=f'requests per second, of {BATCH} clicks each')
    parser.add_argument('--replicas', type=int, default=3)
    parser.add_argument('--format', default='int8', choices=['fp32', 'fp16', 'bf16', 'int8', 'int4', 'int2'])
    parser.add_argument('--click-rate', type=float, default=5000, help='clicks per second to train on')
    parser.add_argument('--unseen', type=int, default=20_000, help='clicks to score, again and again')
    parser.add_argument('--windows', type=int, default=16, help='rows of the table over time')
    parser.add_argument('--report', help='write a page of HTML there, too')
    parser.add_argument('-o', '--output', choices=['table', 'json'], default='table')
    arguments = parser.parse_args()
    if arguments.replicas < 2:
        parser.error(f'--replicas is {arguments.replicas}; allowed: 2 or more, as one of them is killed')
    with tempfile.TemporaryDirectory(prefix='hotbed-online-') as directory:
        story = Story(arguments, directory)
        try:
            result = story.run()
        finally:
            story.stop()
    print(json.dumps(result) if arguments.output == 'json' else '\n'.join(plain(result)))
    if arguments.report:
        with open(arguments.report, 'w', encoding='utf-8') as file:
            file.write(page(result))
        print(f'the page is {arguments.report}', file=sys.stderr)


if __name__ == '__main__':
    main()
