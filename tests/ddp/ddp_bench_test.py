"""ddp-bench as its users run it: right averages, bytes as predicted, bad models named. Usage: ddp_bench_test.py BENCH UNI_RUN"""
import json
import os
import subprocess
import sys
import tempfile

BENCH, UNI_RUN = sys.argv[1:3]
MODEL = """# a small one
stem.weight 32 3 5 5
stem.bias 32
body.weight 64 800   # the largest

head.weight 10 64
scale 1
"""
ELEMENTS = 32 * 75 + 32 + 64 * 800 + 10 * 64 + 1


def environment():
    return {key: value for key, value in os.environ.items() if not key.startswith(("UNISONO_", "RANK", "WORLD"))}


def run(folder, ranks, *words, status=0):
    done = subprocess.run([UNI_RUN, "-n", str(ranks), BENCH, *words], capture_output=True, text=True, cwd=folder,
                          env=environment(), check=False)
    assert done.returncode == status, (words, done.returncode, done.stdout, done.stderr)
    return done


def measure(folder, ranks, *words):
    path = os.path.join(folder, "out.json")
    run(folder, ranks, "--model", "small.txt", "--batch", "4", "--steps", "3", "--warmup", "1", "-J", path, *words)
    with open(path, encoding="utf-8") as file:
        (row,) = json.load(file)["results"]
    assert row["wrong"] == 0 and row["ranks"] == ranks and row["parameters"] == 5, row
    assert row["gradient_bytes"] == 4 * ELEMENTS and row["step_ms"] > 0 and row["compute_ms"] > 0, row
    assert row["exposed_ms"] >= 0 and row["exposed_ms"] <= row["step_ms"], row
    return row


with tempfile.TemporaryDirectory() as scratch:
    with open(os.path.join(scratch, "small.txt"), "w", encoding="utf-8") as text:
        text.write(MODEL)
    assert measure(scratch, 2)["wire_bytes"] == 4 * ELEMENTS
    assert measure(scratch, 3, "--bucket-views")["wire_bytes"] == 4 * ELEMENTS
    for hook in ("fp16", "bf16"):
        assert measure(scratch, 2, "--hook", hook)["wire_bytes"] == 2 * ELEMENTS
    assert measure(scratch, 2, "--bucket-mib", "0.002")["buckets"] == 3
    # What is printed is read back as the same.
    printed = subprocess.run([BENCH, "--model", "resnet50,gpt2", "--print-model"], capture_output=True, text=True, check=True).stdout
    resnet, gpt = printed.split("# gpt2\n")
    assert resnet.count("\n") == 1 + 161 and gpt.count("\n") == 148 and "wte.weight 50257 768\n" in gpt, printed
    with open(os.path.join(scratch, "again.txt"), "w", encoding="utf-8") as text:
        text.write(resnet)
    again = subprocess.run([BENCH, "--model", os.path.join(scratch, "again.txt"), "--print-model"], capture_output=True, text=True, check=True)
    assert again.stdout.splitlines()[1:] == resnet.splitlines()[1:], again.stdout
    for line, word in (("a 2 0", "dimension 0"), ("a two", "name dim"), ("a", "name dim"), ("a 4294967296 2", "2^32"), ("#", "holds no"),
                       ("w 4 99999999999999999999999", "bad.txt:1: dimension 99999999999999999999999 "),
                       ("w 4 -99999999999999999999999", "bad.txt:1: dimension -99999999999999999999999 "),
                       ("w 4 -", "bad.txt:1: is not 'name dim"), ("w 4 +", "bad.txt:1: is not 'name dim"),
                       ("w 4 5x", "bad.txt:1: is not 'name dim"), ("a 1\nb 4 -1", "bad.txt:2: dimension -1 ")):
        with open(os.path.join(scratch, "bad.txt"), "w", encoding="utf-8") as text:
            text.write(line + "\n")
        assert word in run(scratch, 1, "--model", "bad.txt", status=3).stderr, line
    assert "neither resnet50 nor gpt2" in run(scratch, 1, "--model", "none.txt", status=3).stderr
    assert f"{scratch}: is a folder" in run(scratch, 1, "--model", scratch, status=3).stderr
    assert "--hook" in run(scratch, 1, "--hook", "zip", status=2).stderr
    assert "--bucket-mib" in run(scratch, 1, "--bucket-mib", "nan", status=2).stderr
    with open("/dev/full", "w", encoding="ascii") as full:
        done = subprocess.run([BENCH, "--model", "small.txt", "--batch", "1", "--steps", "1", "--warmup", "1"], stdout=full,
                              stderr=subprocess.PIPE, text=True, cwd=scratch, env=environment(), check=False)
        assert done.returncode == 3 and done.stderr.startswith("ddp-bench: standard output: "), done
print("passed")
