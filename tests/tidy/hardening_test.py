"""The programs are hardened as cmake/Hardening.cmake says: usage: hardening_test.py READELF PROGRAM... [--marked ARCHIVE...]

Reads each program with readelf and prints what is missing in it; ends with 1 if anything is. Every object of an archive must be
marked for the processor's checks of jumps and returns (IBT and SHSTK). A program is marked only if all that is linked into it is,
and the C library's start files of Debian 12 are not.
"""

import re
import subprocess
import sys


def missing_in(headers, dynamic, symbols):
    """The protections that these three texts of readelf do not show, as sentences."""
    found = []
    if "DYN (" not in headers:
        found.append("is no position independent executable")
    if "GNU_RELRO" not in headers:
        found.append("has no relocations that become read-only (-z relro)")
    if not re.search(r"\bNOW\b|BIND_NOW", dynamic):
        found.append("binds functions when they are first called (-z now is missing)")
    stack = re.search(r"GNU_STACK.*?\n?.*?\b(R[W ]?E?)\b", headers)
    if not stack or "E" in stack[1]:
        found.append("has an executable stack")
    if "__stack_chk_fail" not in symbols:
        found.append("has no stack canaries (-fstack-protector-strong)")
    if not re.search(r"__(memcpy|memset|memmove|snprintf|vsnprintf|read|strncpy|strcat|strcpy|realpath|printf|fprintf)_chk",
                     symbols):
        found.append("calls no checked function of libc (_FORTIFY_SOURCE)")
    return found


def unmarked_in(notes):
    """The objects of an archive without the mark, from readelf's text on its notes."""
    objects = notes.split("\nFile: ")[1:]
    assert objects, f"no archive with objects: {notes[:200]}"
    return [text.splitlines()[0] for text in objects if "IBT, SHSTK" not in text]


def main():
    arguments = sys.argv[2:]
    marked = arguments.index("--marked") if "--marked" in arguments else len(arguments)
    readelf, programs, archives = sys.argv[1], arguments[:marked], arguments[marked + 1:]
    assert programs, "name at least one program"

    def read(option, program):
        return subprocess.run([readelf, "-W", option, program], check=True, capture_output=True, text=True).stdout

    # The check itself: a program without anything has everything missing.
    bare = missing_in("Type: EXEC (Executable file)\n  GNU_STACK 0x0 0x0 0x0 0x0 0x0 RWE 0x10\n", "", "memcpy")
    assert len(bare) == 6, bare
    assert unmarked_in("\nFile: x.a(a.o)\n IBT, SHSTK\n\nFile: x.a(b.o)\n") == ["x.a(b.o)"]
    failures = 0
    for archive in archives:
        for name in unmarked_in(read("-n", archive)):
            print(f"{name} has no marked targets of jumps (-fcf-protection=full); see cmake/Hardening.cmake")
            failures += 1
    for program in programs:
        for sentence in missing_in(read("-hl", program), read("-d", program), read("--dyn-syms", program)):
            print(f"{program} {sentence}; see cmake/Hardening.cmake")
            failures += 1
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
