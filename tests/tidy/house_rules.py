#!/usr/bin/env python3
"""House rules that no compiler checks (DESIGN section 10). Prints one line a violation, with what to do instead.

house_rules.py --root DIR: checks the files that git knows there, or all files where there is no git. Exceptions, each with a
reason, stand in tests/tidy/exceptions.txt as `rule path reason` (a path may be a pattern); one that is no longer needed is a violation itself.
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

COLUMNS = 100
FUNCTION_LINES = 70
FILE_LINES = 400
FILE_LINES_HARD = 800
FILE_BYTES = 256 << 10
CPP = ('.h', '.cc', '.cu', '.cuh')
EXCEPTIONS = 'tests/tidy/exceptions.txt'
# In code, outside comments and literals: pattern, what to use instead, folders that may use it.
BANNED = [
    (r'std::(recursive_|shared_|timed_)?mutex\b', 'absl::Mutex, annotated', ('common/await_for.cc',)),
    (r'std::condition_variable', 'absl::Mutex with Await or absl::CondVar', ('common/await_for.cc',)),
    (r'std::(lock_guard|unique_lock|scoped_lock)\b', 'absl::MutexLock', ('common/await_for.cc',)),
    (r'\b(Await|Wait|WaitForNotification)With(Timeout|Deadline)\b',
     'AwaitFor of common/await_for.h: the time of day may be set back', ('tests/', 'bench/', 'cmake/')),
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
# Tests that mirror sources under another folder name.
TEST_FOLDER = {
    'server/kernels': 'tests/kernels',
    'server/tiers': 'tests/tiers',
    'server/shard_log': 'tests/shard_log',
    'planner/coordinator': 'tests/coordinator',
}


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


def check_cpp(path, text):
    code = cpp_source.code_only(text)
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


def check_size(path, data, lines):
    if len(data) > FILE_BYTES:
        yield 'bytes', 1, f'{len(data)} bytes, allowed {FILE_BYTES}: generate it, or fetch it'
    if path.endswith(CPP + ('.py', '.proto', '.sh', '.cmake')) or data.startswith(b'#!'):
        if len(lines) > FILE_LINES_HARD:
            yield 'lines-hard', 1, f'{len(lines)} lines, allowed {FILE_LINES_HARD}: split it'
        elif len(lines) > FILE_LINES:
            yield 'lines', 1, f'{len(lines)} lines, allowed {FILE_LINES}: split it, or say why not in {EXCEPTIONS}'


def check_markdown(lines):
    fenced = False
    titles = []
    for number, line in enumerate(lines, 1):
        if line.startswith('```'):
            fenced = not fenced
        elif not fenced and line.startswith('# '):
            titles.append(number)
    if len(titles) != 1:
        yield 'title', titles[1] if titles else 1, f'{len(titles)} titles (# ...), a page has one'


def check_mirror(path, files, tested):
    """Every source has a test of its name in the mirrored folder, or one that includes its header."""
    if not path.endswith('.cc') or path.startswith(('tests/', 'bench/')):
        return
    folder, name = os.path.split(path)
    wanted = f'{TEST_FOLDER.get(folder, "tests/" + folder)}/{name[:-3]}_test.cc'
    if wanted not in files and path[:-3] + '.h' not in tested:
        yield 'mirror', 1, (f'no {wanted}, and no test includes {path[:-3]}.h: write one, or name the test that '
                            f'covers it in {EXCEPTIONS}')


def check_file(root, path, files, tested):
    with open(os.path.join(root, path), 'rb') as file:
        data = file.read()
    text = data.decode('utf-8', 'replace')
    lines = text.split('\n')
    if lines and lines[-1] == '':
        lines.pop()
    yield from check_size(path, data, lines)
    if re.search(BANNED_NAMES, os.path.basename(path)):
        yield 'names', 1, 'manager, helper, util, handler say nothing: name what it does'
    script = data.startswith(b'#!')
    if script != os.access(os.path.join(root, path), os.X_OK):
        yield 'mode', 1, 'a script must be executable' if script else 'executable, but no script'
    if b'\0' not in data:
        yield from check_lines(path, lines)
    if path.endswith(CPP):
        yield from check_cpp(path, text)
        yield from (('include', *found) for found in include_rules.check(path, text, files))
    elif path.endswith('.py'):
        yield from check_python(text)
    elif path.endswith('.md'):
        yield from check_markdown(lines)
    yield from check_mirror(path, files, tested)


def headers_tested(root, files):
    """The headers that tests include."""
    found = set()
    for path in files:
        if path.startswith('tests/') and path.endswith(('.cc', '.h')):
            with open(os.path.join(root, path), encoding='utf-8') as file:
                found |= {name for _, name, quoted in cpp_source.includes(file.read()) if quoted}
    return found


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
                if len(words) < 3 or words[0] == 'lines-hard':
                    malformed.append((number, f'"{line.strip()}": expected `rule path reason`, for a rule that allows exceptions'))
                else:
                    exceptions[(words[0], words[1])] = number
    return exceptions, malformed


def violations(root):
    """All violations as `path:line: [rule] message`."""
    files = list_files(root)
    known = set(files)
    tested = headers_tested(root, files)
    exceptions, malformed = read_exceptions(root)
    out = [f'{EXCEPTIONS}:{n}: [exception] {m}' for n, m in malformed]
    used = set()
    for path in files:
        for rule, number, message in check_file(root, path, known, tested):
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
