#!/usr/bin/env python3
"""An input of the planner as large as wanted, for the time of the whole command and not of the search alone.

  planner_input.py [--tables 100000] [--servers 10000] [--memory 1.0] > FILE
  time hotbed plan compute --input FILE -o json > PLAN

Drawn as planner_bench draws its instances, with a fixed seed: sizes over four orders of magnitude, half of the tables skewed, a
quarter hashed, a tenth with a second replica. --memory is the share of all bytes that fits into host memory; the rest spills. Bar
for 100,000 tables on 10,000 servers: 30 s. Standard library only.
"""

import argparse
import json
import random
import sys

WEIGHT_BYTES = 4
STATE_BYTES = 4  # of a row, row-wise Adagrad


def planner_input(tables, servers, memory):
    draw = random.Random(20261121)
    listed, features, needed = [], [], 0
    for t in range(tables):
        rows = 1000
        for _ in range(4):
            rows *= draw.randint(1, 10)
        table = {"name": f"table{t}", "rows": rows, "dim": 16 << draw.randrange(4), "hashed": draw.random() < 0.25,
                 "optimizer": "rowwise_adagrad", "replicas": 2 if draw.random() < 0.1 else 1}
        if draw.random() < 0.5:
            table["zipf"] = round(0.8 + 0.5 * draw.random(), 3)
        needed += rows * (WEIGHT_BYTES * table["dim"] + STATE_BYTES) * table["replicas"]
        listed.append(table)
        features.append({"name": table["name"], "table": table["name"], "pooling_factor": round(1 + 20 * draw.random(), 3)})
    per_server = 1.3 * needed / servers
    topology = [{"name": f"s{s}", "host": f"s{s}", "zone": f"z{s % 3}", "host_bytes": int(per_server * memory),
                 "spill_bytes": int(per_server * (1 - memory))} for s in range(servers)]
    return {"tables": listed, "features": features, "topology": {"servers": topology},
            "workload": {"batch_size": 4096, "trainers": 4}, "planner": {"strategy": "cost"}}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--tables", type=int, default=100_000)
    parser.add_argument("--servers", type=int, default=10_000)
    parser.add_argument("--memory", type=float, default=1.0)
    args = parser.parse_args()
    if args.tables < 1 or args.servers < 1 or not 0 < args.memory <= 1:
        parser.error("--tables and --servers are at least 1, --memory is above 0 and at most 1")
    json.dump(planner_input(args.tables, args.servers, args.memory), sys.stdout)


if __name__ == "__main__":
    main()
