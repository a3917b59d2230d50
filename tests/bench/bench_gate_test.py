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


def gate(*words):
    return subprocess.run([sys.executable, GATE, *words], capture_output=True, text=True)


def check_what_cannot_be_compared(folder):
    """One line that names the file, and not the status of a row that has become slower."""
    good, bad, no_folder = (os.path.join(folder, name) for name in ("good.json", "bad.json", "none"))
    with open(good, "w", encoding="utf-8") as file:
        json.dump({"results": [row(8, 2.0)]}, file)

    def refused(path, words, *arguments):
        done = gate(*arguments)
        assert done.returncode == 2 and done.stderr.count("\n") == 1, (words, done)
        assert done.stderr.startswith(f"bench-gate: {path}: ") and words in done.stderr, (words, done)

    def refused_both_ways(path, words):
        refused(path, words, "--new", path, "--against", path)
        refused(path, words, "--new", good, "--against", path)

    refused_both_ways(no_folder, "No such file")
    refused_both_ways(folder, "Is a directory")
    no_text, no_number = row(8, 2.0), row(8, 2.0)
    no_text["versus"]["quick"]["in_place"]["ratio"] = "fast"
    no_number["versus"]["slow"]["out_of_place"]["ratio"] = float("nan")
    no_flag = row(8, 2.0)
    del no_flag["versus"]["cannot"]["flag"]
    for content, words in ((b"\xff\xfe\x00", "is not JSON"), (b"{", "is not JSON"), (b"", "is not JSON"), ({}, "no 'results'"),
                           ([], "no 'results'"), ({"results": 5}, "results is 5"), ({"results": []}, "holds no ratio"),
                           ({"results": [5]}, "results[0] has no 'size'"),
                           ({"results": [{"size": 8, "versus": {}}]}, "holds no ratio"),
                           ({"results": [{"size": 8, "versus": []}]}, "results[0].versus is []"),
                           ({"results": [{"size": [], "versus": {}}]}, "results[0].size is []"),
                           ({"results": [{"size": 8, "versus": {"quick": 1}}]}, "results[0].versus.quick has no 'flag'"),
                           ({"results": [no_text]}, "results[0].versus.quick.in_place.ratio is 'fast'"),
                           ({"results": [no_number]}, "results[0].versus.slow.out_of_place.ratio is nan"),
                           ({"results": [no_flag]}, "results[0].versus.cannot has no 'flag'")):
        with open(bad, "wb") as file:
            file.write(content if isinstance(content, bytes) else json.dumps(content).encode())
        refused_both_ways(bad, words)
    refused(os.path.join(no_folder, "comm-bench"), "No such file", "--programs", no_folder)
    for words in (("--new", good, "--against", good), ("--new", good), ("--against", good)):
        done = gate("--keep", *words)
        assert done.returncode == 2 and "error: --" in done.stderr, done


def main():
    kept = [row(size, 2.0) for size in (8, 1024, 65536)]
    with tempfile.TemporaryDirectory() as folder:
        same = compare(folder, kept, kept)
        assert same.returncode == 0 and "12 rows, 0 slower" in same.stdout, same
        noise = copy.deepcopy(kept)
        noise[0] = row(8, 1.7)
        assert compare(folder, noise, kept).returncode == 0
        worse = copy.deepcopy(kept)
        worse[1] = row(1024, 1.5)
        found = compare(folder, worse, kept)
        assert found.returncode == 1 and "12 rows, 4 slower" in found.stdout, found
        slower = [line for line in found.stdout.splitlines() if line.endswith("SLOWER")]
        assert [line.split()[0] for line in slower] == ["1024"] * 4, found
        # One side alone: the slow peer's ratio must not hide it.
        side = copy.deepcopy(kept)
        side[2]["versus"]["quick"]["in_place"]["ratio"] = 0.9
        found = compare(folder, side, kept)
        assert found.returncode == 1 and "12 rows, 1 slower" in found.stdout, found
        # A peer that only one run has says nothing of the others.
        fewer = copy.deepcopy(kept)
        for one in fewer:
            del one["versus"]["quick"]
        found = compare(folder, kept, fewer)
        assert found.returncode == 0 and "6 rows, 0 slower" in found.stdout, found
        assert "the kept run lacks them: quick" in found.stdout, found
        apart = compare(folder, [row(4, 2.0)], kept)
        assert apart.returncode == 2 and "no row in common" in apart.stderr, apart
        half = gate("--new", "x")
        assert half.returncode == 2 and "go together" in half.stderr, half
        check_what_cannot_be_compared(folder)
    print("ok")


main()
