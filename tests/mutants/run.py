#!/usr/bin/env python3
"""Plants the mutants of tests/mutants/*.toml one by one and says which tests catch them.

A mutant is a small fault that the tests must notice: in one file, a text (`old`) that occurs exactly once is replaced by another
(`new`); the test program `target`, run with the gtest filter `filter`, has to fail, to crash, or to take longer than the limit.

    tests/mutants/run.py                     all of them, in a copy of the working tree under build/mutants
    tests/mutants/run.py --list              what there is, and whether each still matches the code (builds nothing)
    tests/mutants/run.py fence quarantine    those whose name contains one of the words

It needs about half a minute for each on one core, with ccache less, and is no part of tools/check. Exit status: 0 when all are
caught, 1 when any survived, 2 when none survived but some could not be planted: the code has changed, and the list must follow.

Of a simulation it says which seed noticed: the worlds are sharp enough where that is a small number.
"""

import argparse
import filecmp
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time
import tomllib

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent


def load():
    mutants = []
    for path in sorted(HERE.glob("*.toml")):
        for mutant in tomllib.loads(path.read_text())["mutant"]:
            missing = {"name", "what", "file", "old", "new", "target", "filter"} - mutant.keys()
            if missing:
                sys.exit(f"{path}: {mutant.get('name', '?')} lacks {', '.join(sorted(missing))}")
            mutants.append(mutant)
    names = [mutant["name"] for mutant in mutants]
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        sys.exit(f"two mutants have one name: {', '.join(sorted(twice))}")
    return mutants


def refusal(mutant):
    """Why it cannot be planted; None where it can."""
    path = ROOT / mutant["file"]
    if not path.exists():
        return f"there is no {mutant['file']}"
    found = path.read_text().count(mutant["old"])
    return None if found == 1 else f"its text occurs {found} times in {mutant['file']}"


def copy_tree(scratch):
    """Only what differs is written, so that a second run builds little."""
    names = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", "-z"], cwd=ROOT, check=True, capture_output=True)
    wanted = {name for name in names.stdout.decode().split("\0") if name and (ROOT / name).is_file()}
    for name in wanted:
        copy = scratch / name
        if copy.exists() and filecmp.cmp(ROOT / name, copy, shallow=False):
            continue
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, copy)
    for path in list(scratch.rglob("*")):
        name = path.relative_to(scratch)
        if name.parts[0] != "build" and path.is_file() and str(name) not in wanted:
            path.unlink()


def build(scratch, target, log):
    command = ["cmake", "--build", str(scratch / "build" / "dev"), "-j", "1", "--target", target]
    return subprocess.run(command, stdout=log, stderr=subprocess.STDOUT).returncode == 0


def run(scratch, mutant, limit):
    """The status and the last seed that was tried, where it is a simulation."""
    program = scratch / "build" / "dev" / "tests" / mutant["target"]
    environment = {**os.environ, "TERRACE_VERBOSE": "1"}
    try:
        ended = subprocess.run([program, f"--gtest_filter={mutant['filter']}"], env=environment, cwd=scratch / "build",
                               capture_output=True, timeout=limit, errors="replace", text=True)
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
    parser.add_argument("--scratch", type=pathlib.Path, default=ROOT / "build" / "mutants", help="for the copy and its build")
    parser.add_argument("--limit", type=int, default=600, help="seconds that one test program may take")
    options = parser.parse_args()

    mutants = [m for m in load() if not options.words or any(word in m["name"] for word in options.words)]
    if options.list:
        for mutant in mutants:
            print(f"{mutant['name']}: {mutant['what']} ({refusal(mutant) or mutant['target'] + ' ' + mutant['filter']})")
        return 2 if any(refusal(mutant) for mutant in mutants) else 0

    scratch = options.scratch.resolve()
    scratch.mkdir(parents=True, exist_ok=True)
    copy_tree(scratch)
    outcomes = {"caught": [], "survived": [], "not planted": []}
    with open(scratch / "build.log", "w") as log:
        # The same flags as in the dev preset, so that a compiler cache has everything except the mutants.
        if subprocess.run(["cmake", "--preset", "dev"], cwd=scratch, stdout=log, stderr=subprocess.STDOUT).returncode != 0:
            sys.exit(f"the copy cannot be configured: see {scratch / 'build.log'}")
        for target in sorted({mutant["target"] for mutant in mutants}):
            if not build(scratch, target, log):
                sys.exit(f"{target} does not build: see {scratch / 'build.log'}")
        for case in sorted({(mutant["target"], mutant["filter"]) for mutant in mutants}):
            status, _ = run(scratch, {"target": case[0], "filter": case[1]}, options.limit)
            if status != 0:
                sys.exit(f"{case[0]} {case[1]} fails without any mutant: {status}")
        for mutant in mutants:
            begun = time.monotonic()
            why = refusal(mutant)
            seed = None
            if why is None:
                file = scratch / mutant["file"]
                text = file.read_text()
                file.write_text(text.replace(mutant["old"], mutant["new"]))
                try:
                    if build(scratch, mutant["target"], log):
                        status, seed = run(scratch, mutant, options.limit)
                    else:
                        why = "it does not compile"
                finally:
                    file.write_text(text)
            outcome = "not planted" if why else "survived" if status == 0 else "caught"
            outcomes[outcome].append(mutant["name"])
            detail = f" ({why})" if why else f" (seed {seed})" if seed and outcome == "caught" else ""
            print(f"{outcome:11} {mutant['name']}{detail}  {time.monotonic() - begun:.0f} s", flush=True)
    print(", ".join(f"{len(names)} {outcome}" for outcome, names in outcomes.items()))
    return 1 if outcomes["survived"] else 2 if outcomes["not planted"] else 0


if __name__ == "__main__":
    sys.exit(main())
