#!/usr/bin/env python3
"""run_documented_program.py PAGE [SOURCE...]

Runs the ```python block of a page and compares what it prints with the ```text block. Each line printed has to stand in one of
the sources too, which are tests that hold our own code to it.
"""

import contextlib
import io
import re
import sys

page = open(sys.argv[1], encoding="utf-8").read()
program = re.search(r"```python\n(.*?)```\n", page, re.DOTALL).group(1)
expected = re.search(r"```text\n(.*?)```\n", page, re.DOTALL).group(1)
printed = io.StringIO()
with contextlib.redirect_stdout(printed):
    exec(compile(program, sys.argv[1], "exec"), {})
if printed.getvalue() != expected:
    sys.exit(f"{sys.argv[1]}: the program prints\n{printed.getvalue()}and not\n{expected}")
sources = "".join(open(name, encoding="utf-8").read() for name in sys.argv[2:])
untested = [line for line in expected.split() if f'"{line}"' not in sources]
if sys.argv[2:] and untested:
    sys.exit(f"{sys.argv[1]}: in none of the tests {sys.argv[2:]}:\n" + "\n".join(untested))
