"""tools/bench-gate finds the row that has become slower, and no other. Usage: bench_gate_test.py BENCH_GATE"""
import copy
import json
import os
import subprocess
import sys
import tempfile

GATE = sys.argv[1]


def row(size, ratio):
    peers = {}
    for peer, factor in (("quick", 1.0), ("slow", 3.0)):
        side = {"time": 1.0, "ours": 1.0, "ratio": ratio * factor, "nwrong": 0, "nwrong_ours": 0}
        peers[peer] = {"out_of_place": side, "in_place": dict(side),
                       "flag": {"before": 0.07, "after": 0.07, "moved": False, "tries": 1}}
    peers["cannot"] = {"out_of_place": None, "flag": {"before": 0.07, "after": 0.07}}
    return {"size": size, "versus": peers}


def compare(folder, new, kept):
    paths = []
    for name, rows in (("new", new), ("kept", kept)):
        paths.append(os.path.join(folder, name + ".json"))
        with open(paths[-1], "w", encoding="utf-8") as file:
            json.dump({"results": rows}, file)
    words = [sys.executable, GATE, "--new", paths[0], "--against", paths[1]]
    return subprocess.run(words, capture_output=True, text=True)


def main():
    kept = [row(size, 2.0) for size in (8, 1024, 65536)]
    with tempfile.TemporaryDirectory() as folder:
        same = compare(folder, kept, kept)
        assert same.returncode == 0 and "6 rows, 0 slower" in same.stdout, same
        noise = copy.deepcopy(kept)
        noise[0] = row(8, 1.7)
        assert compare(folder, noise, kept).returncode == 0
        worse = copy.deepcopy(kept)
        worse[1] = row(1024, 1.5)
        found = compare(folder, worse, kept)
        assert found.returncode == 1 and "6 rows, 2 slower" in found.stdout, found
        slower = [line for line in found.stdout.splitlines() if line.endswith("SLOWER")]
        assert [line.split()[0] for line in slower] == ["1024", "1024"], found
        # One side alone: the slow peer's ratio must not hide it.
        side = copy.deepcopy(kept)
        side[2]["versus"]["quick"]["in_place"]["ratio"] = 0.9
        found = compare(folder, side, kept)
        assert found.returncode == 1 and "6 rows, 1 slower" in found.stdout, found
        apart = compare(folder, [row(4, 2.0)], kept)
        assert apart.returncode == 2 and "no row in common" in apart.stderr, apart
        half = subprocess.run([sys.executable, GATE, "--new", "x"], capture_output=True, text=True)
        assert half.returncode == 2 and "go together" in half.stderr, half
    print("ok")


main()
