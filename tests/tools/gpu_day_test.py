"""tools/gpu-day with programs that stand for `terrace`, `terrace-lab` and `gpu_tests`. The first argument is the script."""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

SCRIPT = sys.argv.pop(1)
STAGES = ("first", "load", "tools")
# It fails for words that FAILS_AT names, and if there are no fences.
STAND_IN = """#!/bin/sh
case "$*" in *"${FAILS_AT:-nothing at all}"*) echo "broken on purpose"; exit 7 ;; esac
case "$*" in *no-fence*) exit 1 ;; esac
"""


class GpuDay(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder)
        self.script = os.path.join(self.folder, "gpu-day")
        shutil.copy(SCRIPT, self.script)

    def stand_in(self, *names):
        for name in names:
            path = os.path.join(self.folder, name)
            with open(path, "w", encoding="ascii") as program:
                program.write(STAND_IN)
            os.chmod(path, 0o755)

    def run_script(self, *words, **environment):
        environment = {**os.environ, **environment}
        environment.pop("OUT", None)
        return subprocess.run([self.script, *words], env=environment, cwd=self.folder, capture_output=True, text=True,
                              check=False)

    def report(self, stage):
        with open(os.path.join(self.folder, "gpu-day-results", stage + ".json"), encoding="utf-8") as file:
            return {row["step"]: row for row in json.load(file)}

    def test_every_stage_ends_within_ten_minutes(self):
        for stage in STAGES:
            listed = self.run_script(stage, "--list")
            self.assertEqual(listed.returncode, 0, listed.stderr)
            limits = [int(limit) for limit in re.findall(r": at most (\d+) s: ", listed.stdout)]
            self.assertGreater(len(limits), 4)
            self.assertLessEqual(sum(limits), 600, stage)
        self.assertEqual(os.listdir(self.folder), ["gpu-day"])

    def test_every_step_is_reported(self):
        self.stand_in("terrace", "terrace-lab", "gpu_tests", "compute-sanitizer", "ncu")
        path = self.folder + os.pathsep + os.environ["PATH"]
        for stage in STAGES:
            ended = self.run_script(stage, PATH=path)
            steps = self.report(stage)
            # Only this step uses programs of the machine itself.
            steps.pop("machine", None)
            self.assertEqual({row["verdict"] for row in steps.values()}, {"well"}, ended.stdout)
            listed = self.run_script(stage, "--list").stdout.split("\n")
            self.assertEqual(len(self.report(stage)), len([line for line in listed if line]))

    def test_a_step_that_fails_does_not_stop_the_next(self):
        self.stand_in("terrace", "terrace-lab", "gpu_tests")
        ended = self.run_script("load", FAILS_AT="replay --device cuda:0,cuda:0")
        self.assertEqual(ended.returncode, 1)
        steps = self.report("load")
        self.assertEqual(steps["replay-ranks"]["verdict"], "failed")
        self.assertEqual(steps["replay-ranks"]["status"], 7)
        self.assertEqual(steps["replay-disk"]["verdict"], "well")
        self.assertIn("broken on purpose", ended.stdout)

    def test_a_replay_without_fences_that_ends_well_is_a_failure(self):
        self.stand_in("terrace", "terrace-lab", "gpu_tests")
        with open(os.path.join(self.folder, "terrace"), "w", encoding="ascii") as program:
            program.write("#!/bin/sh\nexit 0\n")
        self.assertEqual(self.run_script("load").returncode, 1)
        self.assertEqual(self.report("load")["replay-without-fences"]["verdict"], "should have failed")

    def test_a_tool_that_is_not_there_is_skipped(self):
        self.stand_in("terrace", "terrace-lab", "gpu_tests")
        self.assertEqual(self.run_script("tools", PATH="/usr/bin:/bin").returncode, 0)
        self.assertEqual(self.report("tools")["memcheck"]["verdict"], "skipped: there is no compute-sanitizer")

    def test_wrong_words_are_refused(self):
        for words in ([], ["second"], ["first", "--output"]):
            ended = self.run_script(*words)
            self.assertEqual(ended.returncode, 2, words)
            self.assertIn("usage: gpu-day", ended.stderr)
        ended = self.run_script("first")
        self.assertEqual(ended.returncode, 2)
        self.assertIn("no program terrace", ended.stderr)
        self.assertEqual(os.listdir(self.folder), ["gpu-day"])


if __name__ == "__main__":
    unittest.main()
