"""uni-plan draw: well-formed SVG in which every message is an arrow, every step a box, and all lies
within the picture. Usage: uni_plan_svg_test.py UNI_PLAN"""
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree

SVG = "{http://www.w3.org/2000/svg}"
program = sys.argv[1]


def run(*arguments):
    return subprocess.run([program, *arguments], capture_output=True, text=True, timeout=60)


def svg_of(*arguments):
    done = run("draw", *arguments)
    assert done.returncode == 0, done.stderr
    return ElementTree.fromstring(done.stdout.encode())


def arrows(root):
    return [e for e in root.iter(SVG + "path") if e.get("class") == "message"]


def check_inside(root):
    width, height = float(root.get("width")), float(root.get("height"))
    for path in arrows(root):
        numbers = [float(n) for n in re.findall(r"-?\d+", path.get("d"))]
        assert all(0 <= x <= width for x in numbers[0::2]), path.get("d")
        assert all(0 <= y <= height for y in numbers[1::2]), path.get("d")
    for rect in root.iter(SVG + "rect"):
        if rect.get("x") is None:
            continue
        assert float(rect.get("y")) + float(rect.get("height")) <= height
        assert float(rect.get("x")) + float(rect.get("width")) <= width


def boxes(root):
    return [e for e in root.iter(SVG + "g") if e.get("class") == "step"]


# algorithm, collective, ranks, messages, steps
for algorithm, collective, n, messages, steps in [
    ("ring", "all_reduce", 4, 2 * 3 * 4, 8 * 4),
    ("ring", "all_reduce", 16, 2 * 15 * 16, 32 * 16),
    ("binomial_tree", "broadcast", 8, 7, None),
    ("recursive_doubling", "all_reduce", 8, 3 * 8, None),
    ("double_binary_tree", "all_reduce", 9, 4 * 8, None),
    ("ring", "all_gather", 64, 63 * 64, None),
    ("ring", "all_reduce", 1, 0, None),
]:
    root = svg_of(algorithm, "--collective", collective, "--ranks", str(n))
    assert root.tag == SVG + "svg"
    assert len(arrows(root)) == messages, (algorithm, n, len(arrows(root)))
    if steps is not None:
        assert len(boxes(root)) == steps, (algorithm, n, len(boxes(root)))
    ranks = [e for e in root.iter(SVG + "rect") if e.get("class") == "rank"]
    assert len(ranks) == n
    check_inside(root)

# A send to several readers is an arrow to each.
assert len(arrows(svg_of("one_shot", "--collective", "all_reduce", "--ranks", "3"))) == 3 * 2

# From rank, to rank: the ring's neighbours, six times each.
root = svg_of("ring", "--collective", "all_reduce", "--ranks", "4")
titles = sorted(e.find(SVG + "title").text for e in arrows(root))
assert titles == sorted(f"rank {r} to rank {(r + 1) % 4}" for r in range(4) for _ in range(6)), titles

refused = run("draw", "ring", "--collective", "all_reduce", "--ranks", "65")
assert refused.returncode == 1 and "at most 64 ranks" in refused.stderr, refused
print("ok")
