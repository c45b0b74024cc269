"""The programs are hardened as cmake/Hardening.cmake says: usage: hardening_test.py READELF PROGRAM...

Reads each program with readelf and prints what is missing in it; ends with 1 if anything is.
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


def main():
    readelf, programs = sys.argv[1], sys.argv[2:]
    assert programs, "name at least one program"

    def read(option, program):
        return subprocess.run([readelf, "-W", option, program], check=True, capture_output=True, text=True).stdout

    # The check itself: a program without anything has everything missing.
    bare = missing_in("Type: EXEC (Executable file)\n  GNU_STACK 0x0 0x0 0x0 0x0 0x0 RWE 0x10\n", "", "memcpy")
    assert len(bare) == 6, bare
    failures = 0
    for program in programs:
        for sentence in missing_in(read("-hl", program), read("-d", program), read("--dyn-syms", program)):
            print(f"{program} {sentence}; see cmake/Hardening.cmake")
            failures += 1
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
