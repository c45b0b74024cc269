"""The programs of the package: `hotbed up`, `hotbed demo`, and the daemons that they start."""

from __future__ import annotations

import os
import sys
from typing import NoReturn

_HERE = os.path.dirname(os.path.abspath(__file__))


def _run(program: str) -> NoReturn:
    path = os.path.join(_HERE, 'bin', program)
    if not os.path.exists(path):
        raise SystemExit(f'{program}: not in this package ({path}); it is in wheels made by ./dev wheel')
    # The programs find their libraries there, and so do those that they start.
    found = os.environ.get('LD_LIBRARY_PATH')
    os.environ['LD_LIBRARY_PATH'] = os.path.join(_HERE, 'libs') + (f':{found}' if found else '')
    os.execv(path, [program, *sys.argv[1:]])


def run_hotbed() -> NoReturn:
    _run('hotbed')


def run_hotbed_server() -> NoReturn:
    _run('hotbed-server')


def run_hotbed_coordinator() -> NoReturn:
    _run('hotbed-coordinator')


def run_hotbed_train_ctr() -> NoReturn:
    _run('hotbed-train-ctr')
