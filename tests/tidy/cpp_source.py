"""Just enough C++ reading for the house rules: text without comments and literals, functions, includes."""

import re

_TOKENS = re.compile(
    r'//[^\n]*|/\*.*?\*/|R"(?P<d>[^(\s]*)\(.*?\)(?P=d)"'
    r'|"(?:\\.|[^"\\\n])*"|(?<![0-9a-fA-F])\'(?:\\.|[^\'\\\n])+\'',
    re.DOTALL,
)
_CONTAINER = re.compile(r'\b(namespace|class|struct|union|enum|extern)\b')


def code_only(text):
    """`text` with comments and literals blanked out; line numbers and columns of the rest stay."""
    return _TOKENS.sub(lambda m: re.sub(r'[^\n]', ' ', m.group(0)), text)


def without_preprocessor(code):
    """`code` with preprocessor lines, and what they continue on, blanked out."""
    out = []
    continued = False
    for line in code.split('\n'):
        directive = continued or line.lstrip().startswith('#')
        continued = directive and line.endswith('\\')
        out.append('' if directive else line)
    return '\n'.join(out)


def functions(text):
    """(first line, number of lines) of each function body that is not inside another one."""
    code = without_preprocessor(code_only(text))
    stack = []  # per open brace: (is container, line)
    found = []
    head_begin = 0
    for match in re.finditer(r'[{};]', code):
        mark, at = match.group(0), match.start()
        line = code.count('\n', 0, at) + 1
        if mark == '{':
            head = code[head_begin:at]
            # A default argument or attribute may have parentheses before the keyword's name; a function's come after.
            keyword = _CONTAINER.search(head)
            container = bool(keyword) and not re.search(r'\)\s*(const|noexcept|override|final|->.*)*\s*$', head)
            in_function = any(not is_container for is_container, _ in stack)
            stack.append((container or (not in_function and '(' not in head), line))
        elif mark == '}' and stack:
            is_container, begin = stack.pop()
            if not is_container and all(c for c, _ in stack):
                found.append((begin, line - begin + 1))
        head_begin = match.end()
    return found


def includes(text):
    """(line number, name, is quoted) of each include line."""
    for number, line in enumerate(text.split('\n'), 1):
        match = re.match(r'\s*#\s*include\s*(["<])([^">]+)[">]', line)
        if match:
            yield number, match.group(2), match.group(1) == '"'
