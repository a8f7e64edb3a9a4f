#!/usr/bin/env python3
"""Builds the test programs that have the cases of a pattern, and runs these cases.

    tests/only.py BUILD PATTERN      BUILD: a configured build folder; PATTERN: a regular expression over "Suite.case"

The names are those of the sources, of Python tests ("test_file.test_name"), and of CTest's other entries ("Install.exports...").
Exit status: 0 if all cases pass, 1 if not, 2 if there is no such case.
"""

import collections
import json
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
CASE = re.compile(r"^(?:TYPED_)?TEST(?:_F|_P)?\(\s*(\w+),\s*(\w+)\s*\)", re.MULTILINE)
PYTHON_CASE = re.compile(r"^def (test_\w+)\(", re.MULTILINE)


def cases_of_programs(build, pattern):
    """The suites and cases of each program."""
    found = collections.defaultdict(set)
    for line in (build / "tests/programs.txt").read_text().splitlines():
        program, source = line.split(" ", 1)
        for suite, case in CASE.findall(pathlib.Path(source).read_text()):
            if pattern.search(f"{suite}.{case}"):
                found[program].add(f"{suite}.{case}")
    return found


def python_cases(pattern):
    found = []
    for file in sorted((ROOT / "python/tests").glob("test_*.py")):
        for case in PYTHON_CASE.findall(file.read_text()):
            if pattern.search(f"{file.stem}.{case}"):
                found.append(f"{file}::{case}")
    return found


def other_entries(build, pattern, programs):
    """Entries of CTest that are not one of our test programs."""
    told = subprocess.run(["ctest", "--test-dir", build, "--show-only=json-v1"], check=True, capture_output=True).stdout
    names = [test["name"] for test in json.loads(told)["tests"]]
    return [name for name in names if name.split(".")[0] not in programs and pattern.search(name)]


def run(command, **environment):
    return subprocess.run(command, env={**os.environ, **environment}, check=False).returncode


def main():
    if len(sys.argv) != 3:
        print(__doc__.strip(), file=sys.stderr)
        return 2
    build = pathlib.Path(sys.argv[1]).resolve()
    try:
        pattern = re.compile(sys.argv[2])
    except re.error as error:
        print(f"tools/check: the pattern {sys.argv[2]!r} is no regular expression: {error}", file=sys.stderr)
        return 2
    all_programs = {line.split(" ", 1)[0] for line in (build / "tests/programs.txt").read_text().splitlines()}
    programs = cases_of_programs(build, pattern)
    python = python_cases(pattern)
    others = other_entries(build, pattern, all_programs)
    if not programs and not python and not others:
        print(f"tools/check: no case matches {sys.argv[2]!r}; cases are named Suite.case", file=sys.stderr)
        return 2

    targets = sorted(programs) + (["terrace_shared"] if python else [])
    # Entries that are no test program run what the whole build has made.
    if run(["cmake", "--build", build, *(["--target", *targets] if not others else [])]) != 0:
        return 1
    worst = 0
    for program, cases in sorted(programs.items()):
        wanted = ":".join(f"{case}:*/{case}/*" for case in sorted(cases))
        worst |= run([ROOT / "tests/run_program.py", build / "tests" / program, f"--gtest_filter={wanted}"])
    if python:
        worst |= run(["/usr/bin/python3", "-m", "pytest", "-q", "-p", "no:cacheprovider", *python],
                     TERRACE_LIBRARY=str(build / "lib/libterrace.so"), PYTHONPATH=str(ROOT / "python"))
    if others:
        exact = "|".join(re.escape(name) for name in others)
        worst |= run(["ctest", "--test-dir", build, "--output-on-failure", "-R", f"^({exact})$"])
    return 1 if worst else 0


if __name__ == "__main__":
    sys.exit(main())
