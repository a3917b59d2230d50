#!/usr/bin/env python3
"""The library exports exactly the functions that the header declares, and its SONAME carries the ABI number.

Usage: exported_symbols.py LIBRARY HEADER NM READELF
"""

import os
import re
import subprocess
import sys


def output(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def main():
    library, header, nm, readelf = sys.argv[1:5]
    with open(header, encoding="utf-8") as file:
        text = re.sub(r"/\*.*?\*/", "", file.read(), flags=re.S)
    text = re.sub(r"^\s*#.*$", "", text, flags=re.M)
    declared = set(re.findall(r"\bUNI_API\b[^;(]*?(\w+)\s*\(", text))
    # The version node itself (UNISONO_0) is an absolute symbol, type A.
    symbols = [line.split() for line in output(nm, "-D", "--defined-only", library).splitlines()]
    exported = {fields[-1].split("@")[0] for fields in symbols if fields[-2] != "A"}
    problems = [f"exported, but not in the header: {name}" for name in sorted(exported - declared)]
    problems += [f"declared, but not exported: {name}" for name in sorted(declared - exported)]
    soname = re.search(r"SONAME.*\[(.*)\]", output(readelf, "-d", library))
    stem = os.path.basename(library).split(".so")[0]
    if soname is None or not re.fullmatch(re.escape(stem) + r"\.so\.\d+", soname.group(1)):
        problems.append(f"no SONAME of the form {stem}.so.N")
    if len(declared) < 20:
        problems.append(f"only {len(declared)} declarations found in the header: this test does not see it")
    print("\n".join(problems) or f"{len(exported)} functions, {soname.group(1)}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
