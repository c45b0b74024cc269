#!/usr/bin/env python3
"""House rules that no compiler checks (docs/contributing.md). Prints one line per violation, and the cure.

house_rules.py --root DIR: checks the files that git knows there, or all files where there is no git. Exceptions, each with a
reason, stand in tests/tidy/exceptions.txt as `rule path reason` (a path may be a pattern); an unused one is a violation too.
"""

import argparse
import ast
import fnmatch
import os
import re
import subprocess
import sys

import cpp_source
import include_rules
import structure_rules

COLUMNS = 100
FUNCTION_LINES = 70
PROSE_COLUMNS = 120
FILE_BYTES = 256 << 10
CPP = ('.h', '.cc', '.cu', '.cuh')
EXCEPTIONS = 'tests/tidy/exceptions.txt'
# In code, outside comments and literals: pattern, what to use instead, folders that may use it.
BANNED = [
    (r'std::(recursive_|shared_|timed_)?mutex\b', 'absl::Mutex, annotated', ('common/threads/await_for.cc',)),
    (r'std::condition_variable', 'absl::Mutex with Await or absl::CondVar', ('common/threads/await_for.cc',)),
    (r'std::(lock_guard|unique_lock|scoped_lock)\b', 'absl::MutexLock', ('common/threads/await_for.cc',)),
    (r'\b(Await|Wait|WaitForNotification)With(Timeout|Deadline)\b',
     'AwaitFor of common/threads/await_for.h: the time of day may be set back', ('tests/', 'bench/', 'cmake/')),
    (r'\bsleep_(for|until)\b|(?<![\w.>])u?sleep\s*\(',
     'a wait on a condition, or Clock::SleepNs', ('tests/', 'bench/')),
    (r'absl::SleepFor\b', 'a wait on a condition, or Clock::SleepNs', ('tests/', 'bench/', 'cli/', 'trainer/')),
    (r'(?<![\w.>:])s?rand\s*\(|std::rand\b|std::random_device',
     'Random of common/random.h, seeded by constructor', ()),
    (r'using\s+namespace\s+std\b', 'std:: in front of each name', ()),
    (r'(?<![\w.>_])assert\s*\(', 'HOTBED_CHECK or HOTBED_DCHECK', ()),
    (r'\bthrow\b', 'absl::Status', ()),
]
# In any text, comments too.
BANNED_TEXT = [
    (r'\b(TO' r'DO|FIX' r'ME|XX' r'X)\b', 'do it, or open an issue'),
    (r'(?<![\w.])/(wor' r'k|tmp/bui' r'ld)/', 'no paths of one machine'),
]
BANNED_NAMES = r'(manager|helper|util|handler)s?(_|\.|$)'
BANNED_TYPES = r'\b(?:class|struct)\s+\w*(Manager|Helper|Util|Handler)\b'
# Words that cite pages outside the repository, and openings that are no sentence.
BANNED_CITATIONS = r'DECISIONS|DESIGN section|(reliability|reference) page'
FRAGMENT = re.compile(r'^\s*// Of ', re.MULTILINE)
PAGE = re.compile(r'\bdocs/\w+\.md\b')
# In pages: a path of this repository in backticks. `server/shard/shard` may stand for a header and its source.
QUOTED_PATH = re.compile(r'`([a-z_]+/[\w./*-]*)`')


def list_files(root):
    if os.path.exists(os.path.join(root, '.git')):
        command = ['git', '-C', root, 'ls-files', '-z', '--cached', '--others', '--exclude-standard']
        names = subprocess.run(command, check=True, capture_output=True).stdout.decode().split('\0')
        return sorted(n for n in set(names) if n and os.path.isfile(os.path.join(root, n)))
    found = []
    for folder, _, names in os.walk(root):
        found += [os.path.relpath(os.path.join(folder, n), root) for n in names if not n.endswith('.pyc')]
    return sorted(found)


def check_lines(path, lines):
    for number, line in enumerate(lines, 1):
        if path.endswith(CPP + ('.proto',)) and len(line) > COLUMNS:
            yield 'columns', number, f'{len(line)} columns, allowed {COLUMNS}'
        for pattern, instead in BANNED_TEXT:
            found = re.search(pattern, line)
            if found and path != 'tests/tidy/house_rules_test.py':
                yield 'words', number, f'"{found.group(0)}": {instead}'


def check_references(path, lines, files):
    """Whatever a text points at is there."""
    folders = {f.split('/')[0] for f in files if '/' in f}
    for number, line in enumerate(lines, 1):
        found = re.search(BANNED_CITATIONS, line)
        if found:
            yield 'reference', number, f'"{found.group(0)}" is no page of this repository: give the reason, or name the page'
        for page in PAGE.findall(line):
            if page not in files:
                yield 'reference', number, f'there is no {page}'
        for named in QUOTED_PATH.findall(line) if path.endswith('.md') else ():
            if named.split('/')[0] not in folders:
                continue
            stem = named.rstrip('/')
            if not any(f == stem or f.startswith((stem + '/', stem + '.')) or fnmatch.fnmatch(f, stem) for f in files):
                yield 'reference', number, f'there is no {named}'


def check_cpp(path, text):
    code = cpp_source.code_only(text)
    for match in FRAGMENT.finditer(text):
        yield 'words', text.count('\n', 0, match.start()) + 1, '"// Of ...": begin with a subject and a verb'
    for pattern, instead, allowed in BANNED:
        for match in () if path.startswith(allowed) else re.finditer(pattern, code):
            number = code.count('\n', 0, match.start()) + 1
            yield 'words', number, f'"{match.group(0).strip()}": use {instead}'
    for match in re.finditer(BANNED_TYPES, code):
        number = code.count('\n', 0, match.start()) + 1
        yield 'names', number, f'"{match.group(0)}": say what it does'
    for number, length in cpp_source.functions(text):
        if length > FUNCTION_LINES:
            yield 'function', number, f'a function of {length} lines, allowed {FUNCTION_LINES}'


def check_python(text):
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            length = node.end_lineno - node.lineno + 1
            if length > FUNCTION_LINES:
                yield 'function', node.lineno, f'a function of {length} lines, allowed {FUNCTION_LINES}'


def check_size(data):
    if len(data) > FILE_BYTES:
        yield 'bytes', 1, f'{len(data)} bytes, allowed {FILE_BYTES}: generate it, or fetch it'


def check_markdown(lines):
    fenced = False
    titles = []
    for number, line in enumerate(lines, 1):
        if line.startswith('```'):
            fenced = not fenced
        elif not fenced and line.startswith('# '):
            titles.append(number)
        elif not fenced and not line.startswith('|') and len(line) > PROSE_COLUMNS and ' ' in line.strip():
            yield 'prose', number, f'{len(line)} columns, allowed {PROSE_COLUMNS} outside tables and code'
    if len(titles) != 1:
        yield 'title', titles[1] if titles else 1, f'{len(titles)} titles (# ...), a page has one'


def check_file(root, path, files):
    with open(os.path.join(root, path), 'rb') as file:
        data = file.read()
    text = data.decode('utf-8', 'replace')
    lines = text.split('\n')
    if lines and lines[-1] == '':
        lines.pop()
    yield from check_size(data)
    if re.search(BANNED_NAMES, os.path.basename(path)):
        yield 'names', 1, 'manager, helper, util, handler say nothing: name what it does'
    script = data.startswith(b'#!')
    if script != os.access(os.path.join(root, path), os.X_OK):
        yield 'mode', 1, 'a script must be executable' if script else 'executable, but no script'
    if b'\0' not in data:
        yield from check_lines(path, lines)
        if not path.startswith('tests/tidy/'):
            yield from check_references(path, lines, files)
    if path.endswith(CPP):
        yield from check_cpp(path, text)
        yield from (('include', *found) for found in include_rules.check(path, text, files))
    elif path.endswith('.py'):
        yield from check_python(text)
    elif path.endswith('.md'):
        yield from check_markdown(lines)


def check_structure(root, files):
    texts = {}
    for path in files:
        if path.endswith(CPP) and not path.startswith('tests/'):
            with open(os.path.join(root, path), encoding='utf-8') as file:
                texts[path] = file.read()
    yield from structure_rules.check_folder_graph(texts)
    yield from structure_rules.check_classes(texts)


def read_exceptions(root):
    """{(rule, path pattern): line number}; malformed lines are reported by the caller as ('exception', ...)."""
    path = os.path.join(root, EXCEPTIONS)
    exceptions, malformed = {}, []
    if os.path.exists(path):
        with open(path, encoding='utf-8') as file:
            for number, line in enumerate(file, 1):
                words = line.split(None, 2)
                if not words or line.startswith('#'):
                    continue
                if len(words) < 3:
                    malformed.append((number, f'"{line.strip()}": expected `rule path reason`, for a rule that allows exceptions'))
                else:
                    exceptions[(words[0], words[1])] = number
    return exceptions, malformed


def violations(root):
    """All violations as `path:line: [rule] message`."""
    files = list_files(root)
    known = set(files)
    exceptions, malformed = read_exceptions(root)
    out = [f'{EXCEPTIONS}:{n}: [exception] {m}' for n, m in malformed]
    used = set()
    found = [(rule, path, number, message) for path in files for rule, number, message in check_file(root, path, known)]
    for rule, path, number, message in [*found, *check_structure(root, files)]:
        excepted = [key for key in exceptions if key[0] == rule and fnmatch.fnmatch(path, key[1])]
        used.update(excepted)
        if not excepted:
            out.append(f'{path}:{number}: [{rule}] {message}')
    for key, number in exceptions.items():
        if key not in used:
            out.append(f'{EXCEPTIONS}:{number}: [exception] {key[0]} {key[1]} is not needed any more: delete it')
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--root', required=True)
    root = parser.parse_args().root
    found = violations(root)
    print('\n'.join(found) if found else f'house rules: {len(list_files(root))} files, no violation')
    return 1 if found else 0


if __name__ == '__main__':
    sys.exit(main())
