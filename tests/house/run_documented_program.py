#!/usr/bin/env python3
"""Runs the ```python block of a page and compares what it prints with the ```text block."""

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
