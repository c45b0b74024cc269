"""Runs a script in namespaces of its own (network, mounts, processes), so that whatever it makes there is gone when it ends.

enter() starts the calling script again inside of them and ends with its status; inside it returns. All processes of the run die
with the script, mounts and network devices with them: also after SIGKILL of the script. Where namespaces, veth pairs or
iptables cannot be had, it says which, and ends with 77 (skipped).
"""

import ctypes
import os
import shutil
import signal
import subprocess
import sys

SKIPPED = 77
INSIDE = "HOTBED_FAULT_INSIDE"
PROGRAMS = ("unshare", "ip", "iptables")
PR_SET_PDEATHSIG = 1
libc = ctypes.CDLL(None, use_errno=True)


def die_with_parent():
    """In a child before its program: SIGKILL when the parent ends."""
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def skip(why):
    print(f"SKIPPED: {why}", flush=True)
    sys.exit(SKIPPED)


def enter():
    if os.environ.get(INSIDE):
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
        return
    if os.geteuid() != 0:
        skip("network namespaces and iptables need root")
    for program in PROGRAMS:
        if shutil.which(program) is None:
            skip(f"no program {program} (Debian: util-linux, iproute2, iptables)")
    command = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child=KILL", "--mount-proc"]
    probe = subprocess.run([*command, "sh", "-c",
                            "ip link add p type veth peer name q && iptables -w -A INPUT -s 10.0.0.1 -j DROP"],
                           stderr=subprocess.PIPE, text=True, check=False)
    if probe.returncode != 0:
        skip(f"no namespace with veth pairs and iptables: {probe.stderr.strip()}")
    # -B: no byte code next to the sources; the kernel kills all inside when unshare dies with this process.
    child = subprocess.Popen([*command, sys.executable, "-B", *sys.argv], env=dict(os.environ, **{INSIDE: "1"}),
                             preexec_fn=die_with_parent)
    try:
        sys.exit(child.wait())
    except KeyboardInterrupt:
        child.wait()
        sys.exit(130)
