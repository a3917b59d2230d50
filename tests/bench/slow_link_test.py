#!/usr/bin/env python3
"""pingpong on four hosts, one of whose links has a tenth of the rate of the others, names that link.

slow_link_test.py COMM_BENCH. Exit status 77: this machine does not permit namespaces (tests/hosts/lab.py).
"""
import json
import os
import sys
import tempfile

sys.dont_write_bytecode = True  # the tree may be another user's, or read-only
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "hosts"))
# pylint: disable=wrong-import-position
import job
import lab

SLOW = 2  # this rank's host

lab.enter()
net = lab.Lab()
net.add_bridge("switch")
for rank in range(4):
    net.add_host(f"h{rank}").plug("eth0", "switch", [f"10.1.0.{rank + 1}/24"], "100mbit" if rank == SLOW else "1gbit")
with tempfile.TemporaryDirectory() as folder:
    data = os.path.join(folder, "data.json")
    result = job.run_job("pingpong", sys.argv[1], net.hosts, "10.1.0.1",
                         ["pingpong", "-e", "1M", "-n", "5", "--batches", "3", "-J", data], UNISONO_TIMEOUT_MS=60000)
    result.succeeds()
    with open(data, encoding="utf-8") as file:
        pingpong = json.load(file)["pingpong"]
net.close()
named = {tuple(link["hosts"]): link for link in pingpong["slow_links"] if "bandwidth" in link["why"]}
expected = {("h0", "h2"), ("h1", "h2"), ("h2", "h3")}
assert set(named) == expected, (pingpong, result.text)
for link in named.values():
    assert link["transport"] == "tcp" and link["bandwidth_ratio"] < 0.5, link
result.says(0, r"rank 1 \(h1\) - rank 2 \(h2\), tcp: 0\.\d\d x the median bandwidth")
print("named:", ", ".join("-".join(hosts) for hosts in sorted(named)))
