#!/usr/bin/env python3
"""The account of slow pushes (stalls.py), on a run that is made up."""

import json
import os
import tempfile
import unittest
from types import SimpleNamespace

import stalls
from chronicle import Chronicle, Fault, Record


def fault(kind, names, begin, end, detail=""):
    made = Fault(kind, names, detail)
    made.begin, made.end = begin, end
    return made


def record(since, members):
    made = [{"server": str(m), "incarnation": "1"} for m in members]
    return Record(since, {"epoch": "1", "active": True, "primary": made[0], "members": made, "learners": []},
                  {str(n): f"s{n}" for n in range(4)})


class StallsTest(unittest.TestCase):
    def setUp(self):
        self.chronicle = Chronicle(SimpleNamespace(coordinator=SimpleNamespace(name="coordinator")))
        self.chronicle.records = {"log/0": [record(0, [0])], "r2/0": [record(0, [1, 2]), record(106, [2])]}
        self.push = stalls.Push("client 0", 7, 100.0, 110.0)

    def otherwise(self, shards, *faults):
        self.chronicle.faults = list(faults)
        self.push.looks = [(105.0, shards, ""), (109.0, shards, "")]
        return round(stalls.Account(self.chronicle).of(self.push)[0], 1)

    def test_nothing_was_wrong(self):
        self.assertEqual(self.otherwise(["log/0"]), 10.0)

    def test_its_only_server_was_away(self):
        self.assertEqual(self.otherwise(["log/0"], fault("kill", ["s0"], 101, 105)), 6.0)
        self.assertEqual(self.otherwise(["log/0"], fault("cut", ["s0", "client 0"], 101, 105)), 6.0)
        self.assertEqual(self.otherwise(["log/0"], fault("cut", ["s0", "client 1"], 101, 105)), 10.0)
        self.assertEqual(self.otherwise(["log/0"], fault("kill", ["s1"], 101, 105)), 10.0)

    def test_one_of_two_is_for_the_coordinator_to_replace(self):
        away = fault("kill", ["s1"], 101, 110)
        self.assertEqual(self.otherwise(["r2/0"], away), 10.0)
        # From 106 on the record does not name it any more.
        self.assertEqual(self.otherwise(["r2/0"], away, fault("pause_coordinator", ["coordinator"], 102, 108)), 6.0)
        self.assertEqual(self.otherwise(["r2/0"], away, fault("isolate", ["s2"], 103, 105)), 8.0)

    def test_a_client_that_is_paused_waits_for_itself(self):
        self.assertEqual(self.otherwise(["log/0"], fault("pause_client", ["client 0"], 102, 104)), 8.0)

    def test_lines_of_a_client(self):
        with tempfile.TemporaryDirectory() as directory:
            with open(os.path.join(directory, "client-0.slow"), "w", encoding="ascii") as file:
                for line in ({"call": "push", "step": 7, "now_ns": 5e9, "shards": ["log/0"], "last": "x"},
                             {"call": "push", "step": 7, "sent_ns": 1e9, "now_ns": 12e9},
                             {"call": "pull", "sent_ns": 1e9, "now_ns": 11e9}):
                    file.write(json.dumps(line) + "\n")
                file.write('{"call":"push","st')
            pushes, pulls = stalls.read_calls(directory, 1)
        self.assertEqual([(p.step, p.took(), p.waited_for(2)) for p in pushes], [(7, 11.0, ["log/0"])])
        self.assertEqual(pulls, [10.0])


if __name__ == "__main__":
    unittest.main()
