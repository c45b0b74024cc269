"""How the code is cut: the graph of folders has no circle, and a class is one idea, read in one place.

Each check takes {path: text} of the C++ sources and yields (rule, path, line, message). The numbers ask a question; a line in
tests/tidy/exceptions.txt with a reason answers it.
"""

import os
import re

import cpp_source

FIELDS = 25
SOURCES = 2
_CLASS = re.compile(r'\b(?:class|struct)\s+(?:ABSL_\w+(?:\([^)]*\))?\s+)?(\w+)(?:\s+final)?\s*(?::(?!:)[^;{]*)?\{')
_FIELD = re.compile(r'\b(\w+_)\s*(?:ABSL_\w+\([^)]*\)\s*)*(?:\[[^\]]*\]\s*)*(?:=[^;]*|\{\})?\s*$')
_METHOD = re.compile(r'^(?:[^\s#/}].*?[\s*&])?(\w+)::~?\w+\(', re.MULTILINE)


def _body(code, opened):
    """The text between the brace at `opened` and its partner, with nested braces emptied."""
    depth, out = 0, []
    for at in range(opened, len(code)):
        char = code[at]
        if char == '}':
            depth -= 1
            if depth == 0:
                break
        if depth == 1:
            out.append(char)
        if char == '{':
            depth += 1
    return ''.join(out)


def classes(text):
    """(line, name, number of fields) of each class. Fields are those with a trailing underscore: plain records have none."""
    code = cpp_source.without_preprocessor(cpp_source.code_only(text))
    for match in _CLASS.finditer(code):
        statements = _body(code, match.end() - 1).split(';')
        fields = sum(1 for statement in statements if _FIELD.search(statement))
        yield code.count('\n', 0, match.start()) + 1, match.group(1), fields


def check_classes(texts):
    declared = {}  # (top folder, class) -> (path, line)
    for path, text in texts.items():
        for line, name, fields in classes(text):
            declared.setdefault((path.split('/')[0], name), (path, line))
            if fields > FIELDS:
                yield 'fields', path, line, f'{name} has {fields} fields: is it two ideas? Up to {FIELDS} need no answer'
    sources = {}
    for path, text in texts.items():
        if path.endswith('.cc'):
            for match in _METHOD.finditer(cpp_source.code_only(text)):
                key = (path.split('/')[0], match.group(1))
                if key in declared:
                    sources.setdefault(key, set()).add(path)
    for key, paths in sources.items():
        if len(paths) > SOURCES:
            path, line = declared[key]
            yield 'sources', path, line, (f'{key[1]} is spread over {len(paths)} sources: cut it along an idea '
                                          f'({", ".join(sorted(paths))})')


def folder_graph(texts):
    """{folder: {folder it includes: (path, line) of one such include}}."""
    graph = {}
    for path, text in texts.items():
        folder = os.path.dirname(path)
        for line, name, quoted in cpp_source.includes(text):
            inside = f'client/include/{name}' if name.startswith('hotbed/') else name
            other = os.path.dirname(inside)
            if quoted and inside in texts and other != folder:
                graph.setdefault(folder, {}).setdefault(other, (path, line))
    return graph


def check_folder_graph(texts):
    graph = folder_graph(texts)
    state, trail = {}, []

    def visit(folder):
        state[folder] = 'open'
        trail.append(folder)
        for other, (path, line) in sorted(graph.get(folder, {}).items()):
            if state.get(other) == 'open':
                circle = trail[trail.index(other):] + [other]
                yield 'graph', path, line, f'a circle of folders: {" -> ".join(circle)}'
            elif other not in state:
                yield from visit(other)
        trail.pop()
        state[folder] = 'done'

    for folder in sorted(graph):
        if folder not in state:
            yield from visit(folder)
