"""How far uni-plan simulate is from a real network: ring, trees and halving/doubling between network namespaces whose
cables are shaped to a rate, beside the simulator's times for the same. For a quiet machine, by hand; no test, as a busy
machine would fail it.

    tests/hosts/simulator_check.py FOLDER_OF_PROGRAMS [--ranks 2,4,8] [--sizes 8K,128K,1M,16M] [--gbit 1]

The latency is measured first (a small send and receive between two hosts), and what it costs to go from one rank to
another on the same core (the same again, both ranks on one core); all other inputs are the simulator's own.
Exit status 1 if a time is off by more than --within (25 %)."""
import argparse
import json
import os
import subprocess
import sys
import tempfile

import job
import lab

# Of 1514 bytes that the shaper counts for a full frame, TCP carries so many for us.
PAYLOAD = 1448 / 1514
ALGORITHMS = ["ring", "binomial_tree", "double_binary_tree", "recursive_halving"]


class Check:
    def __init__(self, options):
        self.options = options
        self.bench = os.path.join(options.programs, "comm-bench")
        self.plan = os.path.join(options.programs, "uni-plan")

    def measured(self, ranks, words, on=()):
        """Microseconds by size, of comm-bench on `ranks` hosts; `on`: words before it."""
        with tempfile.TemporaryDirectory() as folder:
            file = os.path.join(folder, "times.json")
            words = [*words, "-w", "3", "-n", "10", "--batches", "3", "-c", "0", "-a", "3", "-J", file]
            title = " ".join(words)
            first, *rest = [*on, self.bench, *words]
            result = job.run_job(title, first, self.hosts[:ranks], "10.9.0.1", rest,
                                 UNISONO_TIMEOUT_MS=60000, UNISONO_LOG_LEVEL="warn")
            if any(result.codes):
                result.fail("failed")
            with open(file) as text:
                return {row["size"]: row["out_of_place"]["time"] for row in json.load(text)["results"]}

    def simulated(self, ranks, algorithm, sizes, latency_us, switch_us):
        words = [self.plan, "simulate", "--collective", "all_reduce", "--hosts", str(ranks), "--algorithms", algorithm,
                 "--nic-gbit", str(self.options.gbit * PAYLOAD), "--nic-latency-us", str(latency_us),
                 "--overhead-us", str(self.options.overhead_us), "--nic-burst-bytes", str(256 << 10), "--calls", "10",
                 "--cores", str(os.cpu_count()), "--switch-us", str(switch_us),
                 "--sizes", ",".join(map(str, sizes)), "--json"]
        found = json.loads(subprocess.run(words, check=True, capture_output=True, text=True).stdout)
        return [row["us"] for row in found["algorithms"][0]["times"]]

    def run(self):
        space = lab.Lab()
        space.add_bridge("switch")
        self.hosts = []
        for number in range(max(self.options.ranks)):
            host = space.add_host()
            host.plug("eth0", "switch", [f"10.9.0.{number + 1}/24"], rate=f"{self.options.gbit}gbit")
            self.hosts.append(host)
        try:
            return self.compare()
        finally:
            space.close()

    def compare(self):
        small = ["sendrecv", "-b", "8", "-e", "8", "--transport", "tcp"]
        one_way = min(self.measured(2, small).values())
        switch_us = max(min(self.measured(2, small, on=["taskset", "-c", "0"]).values()) - one_way, 0)
        latency_us = max(one_way - 2 * self.options.overhead_us, 1)
        print(f"{self.options.gbit} Gbit/s, one way {one_way:.1f} us: latency {latency_us:.1f} us, "
              f"overhead {self.options.overhead_us} us, {os.cpu_count()} cores, {switch_us:.1f} us to another rank on one")
        print(f"{'algorithm':>20} {'ranks':>5} {'bytes':>10} {'measured us':>12} {'simulated us':>12} {'off':>6}")
        worst = 0
        for ranks in self.options.ranks:
            for algorithm in ALGORITHMS:
                times = {}
                for size in self.options.sizes:
                    times.update(self.measured(ranks, ["all_reduce", "-b", str(size), "-e", str(size), "--transport",
                                                       "tcp", "--algorithm", algorithm]))
                for (size, us), model in zip(times.items(), self.simulated(ranks, algorithm, list(times), latency_us,
                                                                            switch_us)):
                    off = model / us - 1
                    worst = max(worst, abs(off))
                    print(f"{algorithm:>20} {ranks:>5} {size:>10} {us:>12.1f} {model:>12.1f} {off:>+6.0%}", flush=True)
        print(f"at most {worst:.0%} off")
        return 0 if worst <= self.options.within else 1


def size(word):
    shifts = {"K": 10, "M": 20}
    return int(word[:-1]) << shifts[word[-1]] if word[-1] in shifts else int(word)


def listed(kind):
    return lambda text: [kind(word) for word in text.split(",")]


parser = argparse.ArgumentParser()
parser.add_argument("programs", type=os.path.abspath)
parser.add_argument("--ranks", type=listed(int), default=[2, 4, 8])
parser.add_argument("--sizes", type=listed(size), default=listed(size)("8K,128K,1M,16M"))
parser.add_argument("--gbit", type=float, default=1)
parser.add_argument("--overhead-us", type=float, default=5)
parser.add_argument("--within", type=float, default=0.25)
chosen = parser.parse_args()
lab.enter()
sys.exit(Check(chosen).run())
