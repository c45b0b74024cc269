#!/usr/bin/env python3
"""clang-tidy on what changed, or with --all on everything; a file that passed is not looked at again until it changes.

A pass is remembered in .cache/tidy under a hash of the file, of the repository's headers that it reaches and of .clang-tidy.
What changed: against the merge base with origin/main (or the parent of HEAD), and what is not committed.
"""

import argparse
import concurrent.futures
import hashlib
import json
import os
import subprocess
import sys
import time

import cpp_source

CACHE = '.cache/tidy'


def git(*arguments):
    result = subprocess.run(['git', *arguments], capture_output=True, text=True, check=False)
    return result.stdout.split('\n')[:-1] if result.returncode == 0 else None


def changed_files():
    base = git('merge-base', 'HEAD', 'origin/main')
    head = git('rev-parse', 'HEAD')
    if not base or base == head:
        base = git('rev-parse', '--verify', '-q', 'HEAD~1')
    changed = git('diff', '--name-only', base[0]) if base else None
    untracked = git('ls-files', '--others', '--exclude-standard')
    return None if changed is None else set(changed) | set(untracked or [])


def reached(path, seen):
    """`path` and the headers of the repository that it includes, however far."""
    if path in seen or not os.path.isfile(path):
        return seen
    seen.add(path)
    with open(path, encoding='utf-8') as file:
        for _, name, quoted in cpp_source.includes(file.read()):
            if quoted:
                reached(name, seen)
                reached(f'client/include/{name}', seen)
    return seen


def fingerprint(files, command):
    digest = hashlib.sha256(command.encode())
    for path in ['.clang-tidy', *sorted(files)]:
        with open(path, 'rb') as file:
            digest.update(path.encode() + b'\0' + hashlib.sha256(file.read()).digest())
    return digest.hexdigest()


def check(build, path):
    # clang 14 has _Float16, which the tests' twins use, only with this.
    command = ['clang-tidy', '--quiet', '-p', build, '--extra-arg=-mavx512fp16', path]
    if not path.startswith('tests/'):  # gcc knows nothing of thread annotations: here they are checked
        command.insert(-1, '--extra-arg=-Wthread-safety')
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    return result.returncode, result.stdout + (result.stderr if result.returncode else '')


def compile_commands(build):
    with open(os.path.join(build, 'compile_commands.json'), encoding='utf-8') as file:
        return {os.path.relpath(os.path.realpath(e['file'])): e['command'] for e in json.load(file)}


def plan(commands, changed):
    """[(path, stamp)] of what must be looked at, what changed itself before what includes it."""
    work = []
    for path, command in sorted(commands.items()):
        if not path.endswith('.cc') or path.startswith('..') or path.startswith('build'):
            continue
        files = reached(path, set())
        if changed is not None and not files & changed:
            continue
        stamp = os.path.join(CACHE, fingerprint(files, command))
        if not os.path.exists(stamp):
            work.append((path, stamp))
    return sorted(work, key=lambda item: changed is not None and item[0] not in changed)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--build', required=True, help='folder with compile_commands.json of single files (preset tidy)')
    parser.add_argument('--all', action='store_true', help='everything, not only what changed')
    parser.add_argument('--seconds', type=float, default=1e9, help='start no file after this time')
    parser.add_argument('files', nargs='*', help='only these files')
    arguments = parser.parse_args()
    changed = set(arguments.files) if arguments.files else None if arguments.all else changed_files()
    work = plan(compile_commands(arguments.build), changed)
    os.makedirs(CACHE, exist_ok=True)
    end = time.monotonic() + arguments.seconds
    statuses = []

    def run(path, stamp):
        if time.monotonic() > end:
            return
        status, output = check(arguments.build, path)
        statuses.append(status)
        if status != 0:
            print(output, flush=True)
            return
        with open(stamp, 'w', encoding='utf-8') as file:
            file.write(path + '\n')

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for future in [pool.submit(run, *item) for item in work]:
            future.result()
    failed = sum(status != 0 for status in statuses)
    late = len(work) - len(statuses)
    print(f'clang-tidy: {len(statuses)} files looked at, {failed} with findings'
          + (f', {late} left for `./dev lint` (time is up)' if late else ''))
    return 1 if failed else 0


if __name__ == '__main__':
    sys.exit(main())
