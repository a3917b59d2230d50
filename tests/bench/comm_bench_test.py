#!/usr/bin/env python3
"""comm-bench as its users run it. Usage: comm_bench_test.py COMM_BENCH report|pingpong|compare|race|refusals|stopped [--with-plots]"""
import html.parser
import json
import os
import signal
import subprocess
import sys
import tempfile

PROGRAM, PART = sys.argv[1:3]
WITH_PLOTS = "--with-plots" in sys.argv[3:]
VOID = {"meta", "br", "link", "img", "input", "hr"}


class Page(html.parser.HTMLParser):
    """Checks that elements are closed in order, and keeps what scripts hold."""

    def __init__(self, text):
        super().__init__()
        self.open, self.scripts, self.outside = [], [], []
        self.feed(text)
        self.close()
        assert not self.open, f"not closed: {self.open}"

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.outside += [value for key, value in attributes.items() if key in ("src", "href", "srcset")]
        if tag == "script":
            self.scripts.append({"id": attributes.get("id"), "text": ""})
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open and self.open[-1] == tag, f"</{tag}> within {self.open}"
        self.open.pop()

    def handle_data(self, data):
        if self.open and self.open[-1] == "script":
            self.scripts[-1]["text"] += data

    def script(self, name):
        found = [script["text"] for script in self.scripts if script["id"] == name]
        assert len(found) == 1, (name, len(found))
        return found[0]


def run(*arguments, status=0, stdout=subprocess.PIPE, **more):
    # Alone: no launcher's variables, no settings of the caller.
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("UNISONO_", "RANK", "WORLD"))}
    done = subprocess.run([PROGRAM, *arguments], stdout=stdout, stderr=subprocess.PIPE, text=True, env=environment | more,
                          check=False)
    assert done.returncode == status, (arguments, done.returncode, done.stdout, done.stderr)
    return done


def check_page(path, expected):
    with open(path, encoding="utf-8") as file:
        text = file.read()
    page = Page(text)
    assert json.loads(page.script("results")) == expected, "the page's data are not -J's"
    assert not page.outside, f"the page loads {page.outside}"
    library = page.script("chart-library")
    assert text.count("* Chart.js v") == (1 if WITH_PLOTS else 0), "the plot code is not there once"
    assert ("Copyright" in text and "MIT License" in text) or not WITH_PLOTS
    assert (len(library) > 50_000) == WITH_PLOTS, len(library)
    assert "built without Chart.js: tables only" in text


def test_report(folder):
    page, data = f"{folder}/page.html", f"{folder}/data.json"
    run("all_reduce", "--ranks", "2", "-b", "8", "-e", "512", "-f", "8", "-n", "3", "-w", "1", "--batches", "6", "--bound",
        "-J", data, "--report", page)
    with open(data, encoding="utf-8") as file:
        results = json.load(file)
    check_page(page, results)
    assert [row["size"] for row in results["results"]] == [8, 64, 512]
    for row in results["results"]:
        for place in ("out_of_place", "in_place"):
            timing = row[place]
            assert len(timing["batches"]) == 6 and len(timing["ranks"]) == 2, timing
            assert sorted(timing["batches"])[3] == timing["time"], timing
            assert timing["nwrong"] == 0
        assert row["bound"]["time"] > 0
    assert results["machine"]["cores"] >= 1 and results["config"]["kernels"]
    assert results["config"]["flags"].startswith("all_reduce --ranks 2 -b 8")
    failed = run("barrier", "--ranks", "1", "-n", "1", "--report", f"{folder}/nowhere/page.html", status=1)
    assert failed.stderr == f"comm-bench: cannot write {folder}/nowhere/page.html: No such file or directory\n", failed.stderr
    assert failed.stdout == "", "measured before it looked whether there is a place for the result"


def test_pingpong(folder):
    page, data = f"{folder}/page.html", f"{folder}/data.json"
    done = run("pingpong", "--ranks", "3", "-e", "64K", "-n", "3", "--batches", "3", "-J", data, "--report", page)
    with open(data, encoding="utf-8") as file:
        results = json.load(file)
    check_page(page, results)
    pingpong = results["pingpong"]
    assert (pingpong["latency_bytes"], pingpong["bandwidth_bytes"]) == (8, 65536)
    assert [pair["ranks"] for pair in pingpong["pairs"]] == [[0, 1], [0, 2], [1, 2]]
    assert all(pair["latency"] > 0 and pair["bandwidth"] > 0 and pair["transport"] == "shm" for pair in pingpong["pairs"])
    assert results["out_of_bounds"] == {"count": 0, "okay": True}
    # What it names is what its rule says of its own figures (which a busy machine may spread); what the rule says of even
    # figures is tested in results_test.cc.
    latency = sorted(pair["latency"] for pair in pingpong["pairs"])[1]
    bandwidth = sorted(pair["bandwidth"] for pair in pingpong["pairs"])[1]
    slow = [pair["ranks"] for pair in pingpong["pairs"] if pair["bandwidth"] < bandwidth / 2 or pair["latency"] > 2 * latency]
    assert [link["ranks"] for link in pingpong["slow_links"]] == slow, (slow, pingpong)
    assert "a pair is slow when its bandwidth is under half, or its latency over twice, the median of all pairs" in done.stdout
    assert f"# Slow links           : {len(slow)}\n" in done.stdout, done.stdout
    # One pair is its own median; one rank has none.
    for ranks, pairs in (("2", 1), ("1", 0)):
        run("pingpong", "--ranks", ranks, "-e", "1K", "-n", "1", "--transport", "tcp", "-J", data)
        with open(data, encoding="utf-8") as file:
            pingpong = json.load(file)["pingpong"]
        assert len(pingpong["pairs"]) == pairs and pingpong["slow_links"] == [], pingpong
        assert all(pair["transport"] == "tcp" for pair in pingpong["pairs"])


def test_race(folder):
    path = os.path.join(folder, "race.json")
    done = run("all_reduce", "--race", "--ranks", "3", "-b", "64", "-e", "4096", "-f", "64", "--batches", "1", "-J", path)
    with open(path, encoding="utf-8") as file:
        rows = json.load(file)["race"]
    assert [row["size"] for row in rows] == [64, 4096], rows
    for row in rows:
        times = row["times"]
        assert {"ring", "one_shot", "direct", "recursive_doubling"} <= set(times), row
        assert "bruck" not in times, "it has no all-reduce"
        assert row["chosen"] in times and row["best"] == min(times, key=times.get), row
        assert all(time > 0 for time in times.values()) and row["ratio"] > 0, row
    assert " 0 OK" in done.stdout, done.stdout
    refused = run("pingpong", "--race", "--ranks", "2", status=2)
    assert "--race" in refused.stderr, refused.stderr


def test_compare(folder):
    first, second = f"{folder}/first.json", f"{folder}/second.json"
    run("broadcast", "--ranks", "2", "-b", "8", "-e", "512", "-f", "8", "-n", "3", "-w", "1", "--batches", "5", "-J", first)
    same = run("--compare", first, first)
    assert "# 0 of 6 rows differ" in same.stdout, same.stdout
    with open(first, encoding="utf-8") as file:
        results = json.load(file)
    timing = results["results"][1]["out_of_place"]
    timing["batches"] = [time + 2 * max(timing["batches"]) for time in timing["batches"]]

    def write():
        with open(second, "w", encoding="utf-8") as file:
            json.dump(results, file)

    write()
    slower = run("--compare", first, second, status=1)
    assert "# 1 of 6 rows differ" in slower.stdout, slower.stdout
    (line,) = [line for line in slower.stdout.splitlines() if line.endswith("  slower")]
    assert line.split()[:5] == ["64", "float", "none", "0", "out_of_place"], line
    assert "  faster" in run("--compare", second, first, status=1).stdout

    del results["results"][2]["in_place"]["batches"]
    write()
    bad = run("--compare", first, second, status=2)
    assert f"{second}: key 'results[2].in_place.batches' is missing" in bad.stderr, bad.stderr
    with open(second, "w", encoding="utf-8") as file:
        file.write("{ not json")
    assert f"{second}: is not JSON" in run("--compare", first, second, status=2).stderr
    assert f"{folder}/none.json: cannot be read" in run("--compare", first, f"{folder}/none.json", status=2).stderr
    run("--compare", first, status=2)
    run(status=2)


def test_refusals(_):
    for flag, name, values in (("-b", "-b", ("99999999999999999999", str(2**64), str(2**64 - 1), "9e9G", "nan", "inf", "x", "-1")),
                               ("-e", "-e", ("x",)), ("-i", "-i", ("x",)), ("-r", "--root", ("-2", "x")),
                               ("-w", "--warmup_iters", ("-1",)), ("-c", "--check", ("5", "-1")), ("-z", "--blocking", ("7", "-1")),
                               ("-T", "--timeout", ("-1",))):
        for value in values:
            refused = run("all_reduce", "--ranks", "1", "-n", "1", flag, value, status=2)
            assert refused.stderr.startswith(name + ": ") and refused.stdout == "", (flag, value, refused)
    quick = ("-b", "8", "-n", "1", "-w", "0", "--batches", "1")
    refused = run("broadcast", "--ranks", "2", "-r", "5", *quick, status=2)
    assert "-r: 5 is no rank: they are 0 to 1" in refused.stderr and refused.stdout == "", refused
    # Under a launcher the ranks find it.
    refused = run("broadcast", "-r", "5", *quick, status=2, RANK="0", WORLD_SIZE="1")
    assert refused.stderr == "comm-bench: -r: 5 is no rank: they are 0 to 0\n" and refused.stdout == "", refused
    for flag, word, names in (("-d", "flot", "all, int8, uint8"), ("-o", "summ", "all, sum, prod")):
        refused = run("all_reduce", "--ranks", "1", flag, word, status=2)
        assert f"'{word}' is unknown (there are: {names}" in refused.stderr, refused.stderr
    for ops, types in (("band", "half"), ("avg", "bool")):
        refused = run("all_reduce", "--ranks", "1", "-d", types, "-o", ops, status=2)
        assert refused.stderr.startswith(f"-o: {ops} is not defined for -d {types}\n") and refused.stdout == "", refused
    some = run("all_reduce", "--ranks", "1", "-d", "all", "-o", "band", *quick)
    rows = [line.split() for line in some.stdout.splitlines() if not line.startswith("#")]
    assert [row[2] for row in rows] == ["int8", "uint8", "int32", "uint32", "int64", "uint64", "bool"], some.stdout
    for flag in ("-n", "-w", "-f", "-T", "--batches"):
        refused = run("all_reduce", "--ranks", "1", flag, "-2", status=2)
        assert "-2 not in range" in refused.stderr and "2147483647" in refused.stderr, refused.stderr
    refused = run("all_reduce", "--ranks", "2", "--transport", "shm:x=1", *quick, status=3)
    assert "shm: unknown option 'x=1'" in refused.stderr, refused.stderr
    run("all_reduce", "--ranks", "1", "-r", "5", *quick)  # it has no root
    every = run("broadcast", "--ranks", "2", "-r", "-1", "-T", "0", *quick)
    rows = [line.split() for line in every.stdout.splitlines() if not line.startswith("#")]
    assert [row[4] for row in rows] == ["0", "1"], every.stdout
    with open("/dev/full", "w", encoding="ascii") as full:
        for words in (("all_reduce", "--ranks", "2", *quick), ("all_reduce", *quick), ("pingpong", "--ranks", "2", *quick)):
            done = run(*words, status=3, stdout=full)
            assert done.stderr.startswith("comm-bench: standard output: ") and done.stderr.count("\n") == 1, done


def test_stopped(_):
    """A rank that is stopped (SIGSTOP) cannot hear that the others have failed; it is ended all the same."""
    words = ("all_reduce", "--ranks", "2", "-b", "8", "-n", "1000000000", "-c", "0", "-T", "1")
    with subprocess.Popen([PROGRAM, *words], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as job:
        ranks = []
        while len(ranks) < 2:
            with open(f"/proc/{job.pid}/task/{job.pid}/children", encoding="ascii") as file:
                ranks = file.read().split()
        os.kill(int(ranks[1]), signal.SIGSTOP)
        said = job.communicate()[1]
    assert job.returncode == 128 + signal.SIGKILL, (job.returncode, said)
    assert f"process {ranks[1]} was ended by signal 9" in said, said


with tempfile.TemporaryDirectory() as scratch:
    {"report": test_report, "pingpong": test_pingpong, "compare": test_compare, "race": test_race,
     "refusals": test_refusals, "stopped": test_stopped}[PART](scratch)
print(f"{PART}: passed")
