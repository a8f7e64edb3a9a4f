#!/usr/bin/env python3
"""Makes the screens of this folder: runs a replay, and commands of operators beside it, and draws what they print as SVG.

usage: docs/images/make.py PROGRAM        (for example build/release/bin/terrace)
"""

from __future__ import annotations

import html
import os
import subprocess
import sys
import tempfile
import textwrap
import time
from pathlib import Path

HERE = Path(__file__).parent
COLUMN, ROW, MARGIN = 8.43, 18, 14


def draw(name: str, text: str) -> None:
    lines: list[str] = []
    for line in text.rstrip("\n").split("\n"):
        lines += textwrap.wrap(line, 88, drop_whitespace=False) or [""]
    width = COLUMN * max(80, *(len(line) for line in lines)) + 2 * MARGIN
    height = ROW * len(lines) + 2 * MARGIN
    rows = ""
    for number, line in enumerate(lines):
        colour = "#7ee787" if line.startswith("$") else "#e6edf3"
        y = MARGIN + ROW * (number + 0.75)
        rows += f'<text x="{MARGIN}" y="{y:.1f}" fill="{colour}">{html.escape(line)}</text>\n' if line else ""
    (HERE / f"{name}.svg").write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" font-family="monospace" '
        f'font-size="14" xml:space="preserve">\n'
        f'<rect width="100%" height="100%" rx="8" fill="#0d1117"/>\n{rows}</svg>\n'
    )


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit("usage: docs/images/make.py PROGRAM")
    program = sys.argv[1]
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "XDG_RUNTIME_DIR": folder}

        def shown(*words: str) -> str:
            done = subprocess.run([program, *words], env=environment, capture_output=True, text=True, check=False)
            return f"$ terrace {' '.join(words)}\n{done.stdout}{done.stderr}".replace(folder, "/run/user/1000")

        replay = [program, "replay", "--workload", "chat", "--requests", "1000000", "--speed", "40", "--admin", "unix:"]
        replay += ["--device-blocks", "2000", "--host-blocks", "6000"]
        replay += ["--storage", f"file:{folder}/kv", "--storage-capacity", "2GiB"]
        with subprocess.Popen(replay, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as served:
            time.sleep(12)
            # The second screen has rates.
            top = subprocess.Popen([program, "top"], env=environment, stdout=subprocess.PIPE, text=True)
            time.sleep(3.5)
            top.terminate()
            screens, _ = top.communicate()
            last = screens.split("\n\nterrace  ")[-1]
            draw("top", f"$ terrace top\nterrace  {last.removeprefix('terrace  ')}".replace(folder, "/run/user/1000"))
            draw(
                "set-and-job",
                shown("set", "host-capacity", "512MiB", "write-policy", "write-back")
                + "\n" + shown("set", "host-capacity", "900GiB")
                + "\n" + shown("job", "start", "--watch")
                + "\n" + shown("job", "list"),
            )  # fmt: skip
            served.terminate()


if __name__ == "__main__":
    main()
