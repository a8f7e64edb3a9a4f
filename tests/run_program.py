#!/usr/bin/env python3
"""Runs one test program as a whole, and says of a failed run which case failed, crashed or did not end.

    tests/run_program.py PROGRAM [ARGUMENT...]      the arguments are those of GoogleTest

Of a case that is well, nothing is printed. The last lines say how many cases ran, what they cost, and which were skipped, and
why.
A case that prints nothing new for TERRACE_CASE_LIMIT seconds (300) hangs: the program is killed, with all its processes.
Exit status: that of the program; 1 if a case hangs.
"""

import collections
import os
import re
import resource
import selectors
import signal
import subprocess
import sys
import time

BEGUN = re.compile(r"^\[ RUN      \] (\S+)")
ENDED = re.compile(r"\[ +(OK|FAILED|SKIPPED) +\] (\S+?),? .*\(\d+ ms\)$")
LINES_MAX = 400  # of one case


class Run:
    """What the lines of a program say of its cases."""

    def __init__(self):
        self.case = None
        self.lines = collections.deque(maxlen=LINES_MAX)
        self.ended = collections.Counter()
        self.skipped = collections.defaultdict(list)
        self.failed = []
        self.slow = []
        self.since = time.monotonic()

    def take(self, line):
        if begun := BEGUN.match(line):
            self.case = begun[1]
            self.lines.clear()
            self.since = time.monotonic()
            return
        end = ENDED.search(line)
        if end is None or end[2] != self.case:
            self.lines.append(line)
            return
        outcome = end[1]
        self.ended[outcome] += 1
        self.slow.append((time.monotonic() - self.since, self.case))
        if outcome == "FAILED":
            self.failed.append(self.case)
            self.tell("FAILED")
        elif outcome == "SKIPPED":
            self.skipped[" ".join(line.strip() for line in self.lines if not line.endswith(": Skipped"))].append(self.case)
        self.case = None
        self.lines.clear()

    def tell(self, outcome):
        print("\n".join([f"{outcome}: {self.case or 'after the last case'}", *self.lines]), flush=True)


def name_of(status):
    return f"signal {signal.Signals(-status).name}" if status < 0 else f"status {status}"


def main():
    if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
        print(__doc__.strip(), file=sys.stderr)
        return 2
    limit = float(os.environ.get("TERRACE_CASE_LIMIT", "300"))
    run = Run()
    program = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                               start_new_session=True)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    hangs = False
    rest = b""
    try:
        with selectors.DefaultSelector() as selector:
            selector.register(program.stdout, selectors.EVENT_READ)
            while True:
                if not selector.select(limit):
                    hangs = True
                    break
                piece = os.read(program.stdout.fileno(), 1 << 16)
                if not piece:
                    break
                *lines, rest = (rest + piece).split(b"\n")
                for line in lines:
                    run.take(line.decode(errors="replace"))
    finally:
        # What a case has started must not outlive the program, whether it hangs or somebody stops this script.
        if program.poll() is None and (hangs or sys.exc_info()[0] is not None):
            os.killpg(program.pid, signal.SIGKILL)
        status = program.wait()
    if rest:
        run.take(rest.decode(errors="replace"))

    if hangs:
        run.tell(f"HANGS, nothing new for {limit:.0f} s")
        status = 1
    elif run.case is not None:
        run.tell(f"CRASHED, {name_of(status)}")
        status = status or 1
    elif status != 0 and not run.failed:
        print(f"the program ended with {name_of(status)}:", *run.lines, sep="\n")
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    for reason, cases in run.skipped.items():
        print(f"skipped: {', '.join(cases)}: {reason}")
    slow = [f"{case} {seconds:.1f}" for seconds, case in sorted(run.slow, reverse=True)[:5] if seconds >= 1]
    if slow:
        print(f"slowest, in s: {', '.join(slow)}")
    cases = sum(run.ended.values()) + (run.case is not None)
    print(f"{os.path.basename(sys.argv[1])}: {cases} cases, {run.ended['SKIPPED']} skipped, {len(run.failed)} failed; "
          f"{used.ru_utime + used.ru_stime:.1f} s of processor time")
    return status if status >= 0 else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
