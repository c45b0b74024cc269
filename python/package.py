#!/usr/bin/env python3
"""Puts the Python package together: sources, module, programs, and the shared libraries that these need.

package.py --build BUILD --out DIR [--wheel FOLDER]: DIR gets a folder hotbed/ that can be imported with DIR in PYTHONPATH;
FOLDER gets a wheel of it.

The libraries are copies of this system's under names of their own, so that another copy in the process (torch, grpcio and
protobuf bring some) is neither used nor replaced: `lib` at the beginning of each name becomes `hb_`. Symbols that g++ marks
as unique in a whole process (STB_GNU_UNIQUE) become ordinary ones in the copies; otherwise the library that is loaded first
would lend its variables to all others, of whatever version. Both are edits in place of the dynamic section and its strings.
libc and the runtime of C++ stay the system's, as in every wheel.
"""

import argparse
import base64
import hashlib
import os
import platform
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import zipfile

PROGRAMS = ('hotbed', 'hotbed-server', 'hotbed-coordinator', 'hotbed-train-ctr')
SYSTEM = re.compile(r'^(ld-linux.*|linux-vdso|lib(c|m|dl|rt|pthread|resolv|util|stdc\+\+|gcc_s))\.so(\.|$)')
PYTHON = 'cp311-abi3'
HERE = os.path.dirname(os.path.abspath(__file__))

DT_NEEDED, DT_STRTAB, DT_SYMTAB, DT_SONAME, DT_GNU_HASH = 1, 5, 6, 14, 0x6ffffef5
DT_VERNEED, DT_VERNEEDNUM = 0x6ffffffe, 0x6fffffff
STB_GLOBAL, STB_GNU_UNIQUE = 1, 10


class Elf:
    """The dynamic section of a 64-bit little-endian ELF file, to be edited in place."""

    def __init__(self, path):
        with open(path, 'rb') as file:
            self.data = bytearray(file.read())
        if self.data[:6] != b'\x7fELF\x02\x01':
            raise ValueError(f'{path} is no 64-bit little-endian ELF file')
        self.path = path
        at, = struct.unpack_from('<Q', self.data, 32)
        size, count = struct.unpack_from('<HH', self.data, 54)
        self.loads, self.dynamic = [], []
        for i in range(count):
            kind, _, offset, address, _, file_bytes, _, _ = struct.unpack_from('<IIQQQQQQ', self.data, at + i * size)
            if kind == 1:
                self.loads.append((address, offset, file_bytes))
            if kind == 2:
                for entry in range(offset, offset + file_bytes, 16):
                    tag, value = struct.unpack_from('<QQ', self.data, entry)
                    if tag == 0:
                        break
                    self.dynamic.append((tag, value))

    def offset(self, address):
        for first, offset, size in self.loads:
            if first <= address < first + size:
                return offset + address - first
        raise ValueError(f'{self.path}: address {address:#x} is in no segment')

    def value(self, tag):
        return next((v for t, v in self.dynamic if t == tag), None)

    def string(self, index):
        at = self.offset(self.value(DT_STRTAB)) + index
        return at, bytes(self.data[at:self.data.index(0, at)]).decode()

    def library_names(self):
        """(offset, name) of every library that the file names: its own, needed ones, and those of versions."""
        found = {}
        for tag, value in self.dynamic:
            if tag in (DT_NEEDED, DT_SONAME):
                at, name = self.string(value)
                found[at] = name
        entry = self.value(DT_VERNEED)
        entry = None if entry is None else self.offset(entry)
        for _ in range(self.value(DT_VERNEEDNUM) or 0):
            _, _, file_name, _, following = struct.unpack_from('<HHIII', self.data, entry)
            at, name = self.string(file_name)
            found[at] = name
            entry += following
        return found

    def rename(self, bundled):
        for at, name in self.library_names().items():
            if name in bundled:
                if self.data[at - 1] != 0:
                    raise ValueError(f'{self.path}: the name {name} is the end of another string')
                self.data[at:at + 3] = b'hb_'

    def symbol_count(self):
        """From the GNU hash table: the last chain ends where the symbols do."""
        table = self.offset(self.value(DT_GNU_HASH))
        buckets, first, bloom, _ = struct.unpack_from('<IIII', self.data, table)
        chain_at = table + 16 + 8 * bloom + 4 * buckets
        last = max(struct.unpack_from(f'<{buckets}I', self.data, table + 16 + 8 * bloom), default=0)
        if last < first:
            return first
        while not struct.unpack_from('<I', self.data, chain_at + 4 * (last - first))[0] & 1:
            last += 1
        return last + 1

    def make_unique_symbols_ordinary(self):
        table = self.offset(self.value(DT_SYMTAB))
        for symbol in range(self.symbol_count()):
            at = table + 24 * symbol + 4
            if self.data[at] >> 4 == STB_GNU_UNIQUE:
                self.data[at] = STB_GLOBAL << 4 | self.data[at] & 15

    def write(self, path):
        with open(path, 'wb') as file:
            file.write(self.data)


def private(name):
    return 'hb_' + name[3:]


def libraries_of(paths):
    """{name: path} of all shared libraries that the files need, directly or not, but the system's."""
    found = {}
    for path in paths:
        for line in subprocess.run(['ldd', path], check=True, capture_output=True, text=True).stdout.splitlines():
            match = re.match(r'\s*(\S+) => (\S+)', line)
            if match and match[2] == 'not':
                raise SystemExit(f'package.py: {path} needs {match[1]}, which is not installed')
            if match and not SYSTEM.match(match[1]):
                found[match[1]] = match[2]
    strange = [name for name in found if not name.startswith('lib')]
    if strange:
        raise SystemExit(f'package.py: {", ".join(strange)}: only names that begin with lib can be made private')
    return found


def add(source, target, bundled, strip):
    with tempfile.TemporaryDirectory() as folder:
        copy = os.path.join(folder, 'copy')
        shutil.copyfile(os.path.realpath(source), copy)
        if strip:
            subprocess.run(['strip', '--strip-unneeded', copy], check=True)
        elf = Elf(copy)
        elf.rename(bundled)
        elf.make_unique_symbols_ordinary()
        elf.write(target)
    os.chmod(target, 0o755)


def assemble(build, out, with_programs, strip):
    package = os.path.join(out, 'hotbed')
    shutil.rmtree(package, ignore_errors=True)
    shutil.copytree(os.path.join(HERE, 'hotbed'), package, ignore=shutil.ignore_patterns('__pycache__'))
    module = os.path.join(build, 'python', '_hotbed.abi3.so')
    programs = [os.path.join(build, 'bin', p) for p in PROGRAMS] if with_programs else []
    bundled = libraries_of([module] + programs)
    for folder in ('libs', 'bin'):
        os.makedirs(os.path.join(package, folder), exist_ok=True)
    add(module, os.path.join(package, '_hotbed.abi3.so'), bundled, strip)
    for program in programs:
        add(program, os.path.join(package, 'bin', os.path.basename(program)), bundled, strip)
    for name, path in bundled.items():
        add(path, os.path.join(package, 'libs', private(name)), bundled, strip)
    return package


# --- the wheel: a zip file with a list of its contents (https://packaging.python.org/specifications/binary-distribution-format)

def version_of(build):
    with open(os.path.join(build, 'CMakeCache.txt'), encoding='utf-8') as cache:
        return re.search(r'^CMAKE_PROJECT_VERSION:STATIC=(\S+)$', cache.read(), re.MULTILINE)[1]


def metadata(version):
    with open(os.path.join(HERE, 'README.md'), encoding='utf-8') as page:
        text = page.read()
    return (f'Metadata-Version: 2.1\nName: hotbed\nVersion: {version}\nSummary: Embedding tables larger than one machine\n'
            'License: Apache-2.0\nRequires-Python: >=3.11\nProvides-Extra: numpy\nRequires-Dist: numpy; extra == "numpy"\n'
            f'Description-Content-Type: text/markdown\n\n{text}')


def write_wheel(package, version, folder):
    libc = platform.libc_ver()[1].replace('.', '_')
    tag = f'{PYTHON}-manylinux_{libc}_{platform.machine()}'
    info = f'hotbed-{version}.dist-info'
    scripts = ''.join(f'{p} = hotbed.programs:run_{p.replace("-", "_")}\n' for p in PROGRAMS)
    texts = {
        f'{info}/METADATA': metadata(version),
        f'{info}/WHEEL': f'Wheel-Version: 1.0\nGenerator: hotbed\nRoot-Is-Purelib: false\nTag: {tag}\n',
        f'{info}/entry_points.txt': f'[console_scripts]\n{scripts}',
    }
    path = os.path.join(folder, f'hotbed-{version}-{tag}.whl')
    os.makedirs(folder, exist_ok=True)
    record = []
    with zipfile.ZipFile(path, 'w', zipfile.ZIP_DEFLATED, compresslevel=9) as wheel:

        def put(name, data, mode):
            entry = zipfile.ZipInfo(name, (2020, 1, 1, 0, 0, 0))
            entry.external_attr = (0o100000 | mode) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            wheel.writestr(entry, data)
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b'=').decode()
            record.append(f'{name},sha256={digest},{len(data)}\n')

        for root, folders, names in os.walk(package):
            folders.sort()
            for name in sorted(n for n in names if not n.endswith('.pyc')):
                full = os.path.join(root, name)
                with open(full, 'rb') as file:
                    put(os.path.relpath(full, os.path.dirname(package)), file.read(), os.stat(full).st_mode & 0o777)
        for name, text in texts.items():
            put(name, text.encode(), 0o644)
        put(f'{info}/RECORD', (''.join(record) + f'{info}/RECORD,,\n').encode(), 0o644)
    return path


def main():
    parser = argparse.ArgumentParser(description=__doc__.split('\n', maxsplit=1)[0])
    parser.add_argument('--build', required=True, help='build folder with python/_hotbed.abi3.so and bin/')
    parser.add_argument('--out', required=True, help='folder that gets the package')
    parser.add_argument('--wheel', help='folder that gets a wheel, with the programs')
    arguments = parser.parse_args()
    package = assemble(arguments.build, arguments.out, arguments.wheel is not None, arguments.wheel is not None)
    if arguments.wheel is not None:
        path = write_wheel(package, version_of(arguments.build), arguments.wheel)
        print(f'{path}: {os.path.getsize(path) / 1e6:.1f} MB')


if __name__ == '__main__':
    sys.exit(main())
