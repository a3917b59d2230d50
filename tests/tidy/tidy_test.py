#!/usr/bin/env python3
"""Every violation that tools/tidy promises to find is found when planted, and clean code of our style is left alone."""

import os
import shutil
import subprocess
import sys
import tempfile
import unittest

TIDY = sys.argv.pop()

CLEAN = '''// A file that breaks no rule, though its strings and comments name what is banned: throw, rand().
#include "base/clean.h"

#include <vector>

namespace unisono {
namespace {
constexpr int kTable[] = {1, 2, 3};
const char* kWords = "system(strcpy) \\" throw {";
const char* kRaw = R"x(throw " } sleep(1))x";
struct Row {
  int value{0};
};
enum class Color : int { kRed, kBlue };
}  // namespace

Widget::Widget(int a) : a_{a}, b_(a) { a_ += kTable[0]; }

template <class T>
auto Widget::call(T value) const -> int {
#if defined(SOMETHING)
  if (value) {
#else
  if (!value) {
#endif
    return 1'000'000;
  }
  auto lambda = [&](int x) { return x; };
  return lambda('"');
}
}  // namespace unisono
'''


def body(lines):
    return "  work();\n" * lines


class TidyTest(unittest.TestCase):
    def setUp(self):
        self.root = tempfile.mkdtemp(prefix="unisono-tidy-")
        self.addCleanup(shutil.rmtree, self.root)
        for folder in ("base", "algorithms", "transports", "transports/shm", "comm", "bench", "tests"):
            self.plant(f"{folder}/README.md", "# Folder\n")
        self.plant("base/clean.h", "#pragma once\n")
        self.plant("base/clean.cc", CLEAN)
        self.plant("comm/comm.h", "#pragma once\n")
        self.plant("transports/transport.h", '#pragma once\n#include "base/clean.h"\n')
        self.plant("transports/shm/shm.h", '#pragma once\n#include "transports/transport.h"\n')
        self.plant("transports/registry.cc", '#include "transports/shm/shm.h"\n')
        self.plant("docs/environment.md", "`UNISONO_KNOWN`\n")

    def plant(self, path, text):
        where = os.path.join(self.root, path)
        os.makedirs(os.path.dirname(where), exist_ok=True)
        with open(where, "w", encoding="utf-8") as file:
            file.write(text)

    def tidy(self, *options):
        done = subprocess.run([sys.executable, TIDY, "--root", self.root, *(options or ("--no-format",))],
                              capture_output=True, text=True, check=False)
        violations = [line for line in done.stdout.splitlines() if not line.startswith("tidy:")]
        self.assertEqual(done.returncode, 1 if violations else 0, done.stdout + done.stderr)
        return violations

    def finds(self, path, text, rule, count=1):
        self.plant(path, text)
        found = self.tidy()
        self.assertEqual([line.split(": ")[1] for line in found], [rule] * count, "\n".join(found))
        self.assertTrue(all(line.startswith(path.rsplit("/", 1)[0]) for line in found), found)
        os.remove(os.path.join(self.root, path))

    def test_clean_tree_has_no_violation(self):
        self.assertEqual(self.tidy(), [])

    def test_include_walls(self):
        for path, target in (("base/a.cc", "comm/comm.h"), ("base/a.cc", "transports/transport.h"),
                             ("algorithms/a.cc", "transports/transport.h"), ("algorithms/a.cc", "comm/comm.h"),
                             ("transports/shm/a.cc", "comm/comm.h"), ("bench/a.cc", "base/clean.h"),
                             ("bench/a.cc", "comm/comm.h")):
            with self.subTest(path=path, target=target):
                self.finds(path, f'#include "{target}"\n', "wall")

    def test_allowed_includes(self):
        self.plant("comm/a.cc", '#include "transports/transport.h"\n#include "base/clean.h"\n')
        self.plant("tests/a_test.cc", '#include "transports/shm/shm.h"\n#include "comm/comm.h"\n')
        self.assertEqual(self.tidy(), [])

    def test_only_the_registry_names_transports(self):
        # Both the wall of comm and the rule about transports say so.
        self.finds("comm/a.cc", '#include "transports/shm/shm.h"\n', "wall", 2)

    def test_includes_that_do_not_resolve(self):
        self.finds("base/a.cc", '#include "clean.h"\n', "include")
        self.finds("base/a.cc", '#include "../base/clean.h"\n', "include")
        self.finds("base/a.cc", '#include "base/gone.h"\n', "include")

    def test_long_functions(self):
        self.finds("comm/a.cc", "namespace a {\nint f(int x) {\n" + body(69) + "}\n}\n", "function")
        self.finds("comm/a.cc", "struct A {\n  void g() const {\n" + body(69) + "  }\n};\n", "function")
        self.finds("tests/a_test.cc", "TEST(Name, Sentence) {\n" + body(69) + "}\n", "function")
        self.finds("comm/a.cc", "A::A(int x)\n    : x_(x), y_{x} {\n" + body(70) + "}\n", "function")
        self.plant("comm/a.cc", "int f() {\n" + body(68) + "}\nint g() {\n" + body(68) + "}\n")
        self.plant("comm/b.cc", "struct Large {\n" + "  int a;\n" * 90 + "};\nint t[] = {\n" + "  1,\n" * 90 + "};\n")
        self.assertEqual(self.tidy(), [])

    def test_long_files_and_lines(self):
        self.finds("comm/a.cc", "int a;\n" * 801, "file")
        self.finds("comm/a.cc", "// " + "x" * 98 + "\n", "columns")

    def test_banned_calls(self):
        for call in ("system(x)", "std::system(x)", "strcpy(a, b)", "sprintf(a, b)", "rand()", "::gethostname(a, 1)"):
            with self.subTest(call=call):
                self.finds("base/a.cc", f"int f() {{ return {call}; }}\n", "call")
        for call in ("sleep(1)", "usleep(1)", "std::this_thread::sleep_for(t)", "::nanosleep(a, b)"):
            with self.subTest(call=call):
                self.finds("tests/a_test.cc", f"void f() {{\n  {call};\n}}\n", "sleep")
        self.plant("tests/a_test.cc", "void f() { rank.sleep(env, 1); }\nvoid sleep(Env& env) {}\n")
        self.assertEqual(self.tidy(), [])

    def test_environment_is_read_in_one_place(self):
        self.finds("comm/a.cc", 'const char* f() { return std::getenv("HOME"); }\n', "getenv")
        self.plant("base/config.cc", 'auto a = getenv("UNISONO_KNOWN");\n')
        self.assertEqual(self.tidy(), [])
        self.finds("base/config.cc", 'auto a = getenv("UNISONO_SECRET_KNOB");\n', "variable")

    def test_nothing_is_thrown_in_the_library(self):
        self.finds("transports/shm/a.cc", "void f() { throw 1; }\n", "throw")

    def test_readmes(self):
        self.finds("comm/new/a.cc", "int a;\n", "readme")
        self.plant("comm/README.md", "line\n" * 41)
        self.assertEqual([line.split(": ")[1] for line in self.tidy()], ["readme"])

    def test_paths_of_one_machine(self):
        self.finds("comm/a.cc", "// see /" + "home/somebody/notes\n", "path")

    def test_formatting(self):
        if shutil.which("clang-format") is None:
            self.skipTest("clang-format is not installed")
        self.plant(".clang-format", "BasedOnStyle: Google\n")
        self.plant("base/clean.cc", "int  a ;\n")
        found = self.tidy("--root", self.root)
        self.assertEqual([line.split(": ")[1] for line in found], ["format"])
        self.assertEqual(self.tidy("--fix"), [])


if __name__ == "__main__":
    unittest.main()
