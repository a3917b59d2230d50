#!/usr/bin/env python3
"""tools/gpu-check, and the program that it runs: where there is no GPU both say so, print "skipped" and exit 0; where
there is one the program's collectives are exact.

Usage: gpu_check_test.py GPU_CHECK BUILD_DIR [PROGRAM]
"""

import subprocess
import sys


def check(command):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = done.stdout.splitlines()
    skipped = bool(lines) and lines[-1] == "skipped" and lines[-2].startswith("gpu-check: ")
    ran = any("| all collectives |" in line and "| exact |" in line for line in lines)
    well = done.returncode == 0 and skipped != ran
    print(f"{'ok' if well else 'WRONG'}: {' '.join(command)}: exit {done.returncode}\n{done.stdout}{done.stderr}")
    return well


def main():
    gpu_check, build, *program = sys.argv[1:]
    runs = [[gpu_check, "--build-dir", build, "--no-write"]] + [[path] for path in program]
    return 0 if all([check(command) for command in runs]) else 1


if __name__ == "__main__":
    sys.exit(main())
