#!/usr/bin/env python3
"""Plants the mutants of mutants.toml one by one and says which tests catch them.

A mutant is a small fault that the tests must notice: in one source of the library, a text (`old`) that occurs exactly once is
replaced by another (`new`); the test program `target`, run with the gtest filter `filter`, has to fail, to crash, or to take
longer than the limit. `promise` is what users could no longer rely on: rows of docs/parity.md and docs/reliability.md, or a
sentence. There are few, each for another promise; beyond the limit, a new one takes the place of one that guards less.

    tests/mutants/run.py                     all of them
    tests/mutants/run.py --list              what there is, and whether each still matches the code (builds nothing)
    tests/mutants/run.py fence quarantine    those whose name contains one of the words

The library and the tests are built once, in build/mutants. A mutant is then one compilation and one link beside that build: the
working tree is not touched, and as many are tried at a time as there are cores. Exit status: 0 when all are caught, 1 when any
survived, 2 when none survived but some could not be planted: the code has changed, and the list must follow.

Of a simulation it says which seed noticed: the worlds are sharp enough where that is a small number.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import time
import tomllib

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
FIELDS = {"name", "promise", "what", "file", "old", "new", "target", "filter"}
MUTANTS_MAX = 60


def load():
    path = HERE / "mutants.toml"
    mutants = tomllib.loads(path.read_text())["mutant"]
    for mutant in mutants:
        if mutant.keys() != FIELDS:
            sys.exit(f"{path}: {mutant.get('name', '?')}: lacks or does not know {', '.join(sorted(mutant.keys() ^ FIELDS))}")
    names = [mutant["name"] for mutant in mutants]
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        sys.exit(f"two mutants have one name: {', '.join(sorted(twice))}")
    if len(names) > MUTANTS_MAX:
        sys.exit(f"{len(names)} mutants: the most are {MUTANTS_MAX}")
    return mutants


def rows():
    """The ids of all rows of the two pages of promises."""
    pages = [(ROOT / "docs" / page).read_text() for page in ("parity.md", "reliability.md")]
    return {row for page in pages for row in re.findall(r"^\| ([A-H]\d+) \|", page, re.MULTILINE)}


def refusal(mutant, known):
    """Why it cannot be planted; None where it can. `known`: the rows that it may name."""
    path = ROOT / mutant["file"]
    if path.suffix != ".cpp" or not path.exists():
        return f"there is no source {mutant['file']}"
    found = path.read_text().count(mutant["old"])
    if found != 1:
        return f"its text occurs {found} times in {mutant['file']}"
    if re.fullmatch(r"[A-H]\d+", mutant["promise"]) and mutant["promise"] not in known:
        return f"there is no row {mutant['promise']}"
    return None


class Build:
    """One build of the library, its sources one by one, and of the test programs. Sources of tools are compiled in units, which
    include several of them (terrace_units in cmake/targets.cmake)."""

    def __init__(self, folder, jobs):
        self.folder = folder
        self.jobs = jobs
        self.log = folder / "build.log"
        self.units = {}  # by source: what is compiled for it, and the command

    def make(self, targets):
        self.folder.mkdir(parents=True, exist_ok=True)
        with open(self.log, "w") as log:
            # Release tests end sooner than others, and a mutant that leaves a variable unused compiles.
            configure = ["cmake", "--preset", "release", "-B", self.folder, "-DTERRACE_UNITY=TESTS"]
            build = ["cmake", "--build", self.folder, "-j", str(self.jobs), "--target", *targets]
            for command in (configure, build):
                if subprocess.run(command, cwd=ROOT, stdout=log, stderr=subprocess.STDOUT).returncode != 0:
                    sys.exit(f"the tests do not build: see {self.log}")
        for unit in json.loads((self.folder / "compile_commands.json").read_text()):
            compiled = pathlib.Path(unit["file"])
            sources = [compiled]
            if compiled.parent.name == "units":
                sources = [ROOT / included for included in re.findall(r'^#include "(.+)"$', compiled.read_text(), re.MULTILINE)]
            for source in sources:
                self.units[source] = compiled, shlex.split(unit["command"])

    def program(self, target):
        return self.folder / "tests" / target

    def lacks(self, mutant):
        """Why it cannot be planted in this build; None where it can."""
        return None if ROOT / mutant["file"] in self.units else f"{mutant['file']} is not compiled"

    def plant(self, mutant):
        """Returns the test program with the mutant, or None where it does not compile."""
        place = self.folder / "planted" / mutant["name"]
        place.mkdir(parents=True, exist_ok=True)
        source, unit, program = place / "mutant.cpp", place / "mutant.o", place / mutant["target"]
        original = ROOT / mutant["file"]
        source.write_text(original.read_text().replace(mutant["old"], mutant["new"]))
        compiled, command = self.units[original]
        if compiled != original:
            text = compiled.read_text().replace(f'"{mutant["file"]}"', f'"{source}"')
            source = place / "unit.cpp"
            source.write_text(text)
        compile_unit = list(command)
        compile_unit[compile_unit.index("-o") + 1] = str(unit)
        compile_unit[compile_unit.index("-c") + 1] = str(source)
        # The last command is the link. What is defined in the mutant is not taken from the library behind it.
        commands = subprocess.run(["ninja", "-t", "commands", f"tests/{mutant['target']}"], cwd=self.folder, check=True,
                                  capture_output=True, text=True)
        link = commands.stdout.splitlines()[-1].replace(f" -o tests/{mutant['target']} ", f" {unit} -o {program} ")
        with open(place / "log", "w") as log:
            for command in (compile_unit, ["sh", "-c", link]):
                if subprocess.run(command, cwd=self.folder, stdout=log, stderr=subprocess.STDOUT).returncode != 0:
                    return None
        return program


def run(folder, program, cases, limit):
    """The status and the last seed that was tried, where it is a simulation."""
    environment = {**os.environ, "TERRACE_VERBOSE": "1"}
    try:
        ended = subprocess.run([program, f"--gtest_filter={cases}"], env=environment, cwd=folder, capture_output=True,
                               timeout=limit, errors="replace", text=True)
    except subprocess.TimeoutExpired:
        return "too slow", None
    seeds = re.findall(r"^seed (\d+) ", ended.stderr, re.MULTILINE)
    if "[  PASSED  ] 0 tests" in ended.stdout:
        return "no test", None
    return ended.returncode, seeds[-1] if seeds else None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*", help="parts of names; none: all")
    parser.add_argument("--list", action="store_true", help="say what there is, build nothing")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build" / "mutants", help="the folder of the build")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="how many at a time")
    parser.add_argument("--limit", type=int, default=120, help="seconds that one test program may take")
    options = parser.parse_args()

    mutants = [m for m in load() if not options.words or any(word in m["name"] for word in options.words)]
    known = rows()
    if options.list:
        for mutant in mutants:
            where = refusal(mutant, known) or mutant["target"] + " " + mutant["filter"]
            print(f"{mutant['name']}: {mutant['what']} [{mutant['promise']}] ({where})")
        return 2 if any(refusal(mutant, known) for mutant in mutants) else 0

    build = Build(options.build.resolve(), options.jobs)
    build.make(sorted({mutant["target"] for mutant in mutants}))
    outcomes = {"caught": [], "survived": [], "not planted": []}

    def unharmed(case):
        return case, run(build.folder, build.program(case[0]), case[1], options.limit)[0]

    def attempt(mutant):
        begun = time.monotonic()
        status, seed = None, None
        why = refusal(mutant, known) or build.lacks(mutant)
        if why is None:
            program = build.plant(mutant)
            if program is None:
                why = f"it does not compile: see {build.folder / 'planted' / mutant['name'] / 'log'}"
            else:
                status, seed = run(build.folder, program, mutant["filter"], options.limit)
                program.unlink()
        outcome = "not planted" if why else "survived" if status == 0 else "caught"
        outcomes[outcome].append(mutant["name"])
        detail = f" ({why})" if why else f" (seed {seed})" if seed and outcome == "caught" else ""
        print(f"{outcome:11} {mutant['name']}{detail}  {time.monotonic() - begun:.0f} s", flush=True)

    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for case, status in pool.map(unharmed, sorted({(mutant["target"], mutant["filter"]) for mutant in mutants})):
            if status != 0:
                sys.exit(f"{case[0]} {case[1]} fails without any mutant: {status}")
        list(pool.map(attempt, mutants))
    print(", ".join(f"{len(names)} {outcome}" for outcome, names in outcomes.items()))
    return 1 if outcomes["survived"] else 2 if outcomes["not planted"] else 0


if __name__ == "__main__":
    sys.exit(main())
