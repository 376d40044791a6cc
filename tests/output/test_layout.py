"""Names of files: groups never share a directory, phases stay readable."""

from __future__ import annotations

import os

from accelprof.contracts.targets import Target
from accelprof.output.layout import Layout


def test_groups_never_share_a_directory(tmp_path):
    """Three groups whose safe names are the same have three directories and three worker keys; a plain name is as it is."""
    layout = Layout(str(tmp_path))
    targets = [Target(group, (), 0) for group in ("a/b", "a:b", "a_b")]
    names = [os.path.basename(layout.target_dir(target)) for target in targets]
    assert names == ["a_b-c14cddc0", "a_b-6783a31e", "a_b"]
    assert len({layout.key(target, "host", 1) for target in targets}) == 3


def test_phases_stay_readable(tmp_path):
    """A phase in a file name has its separator replaced and no hash: steps and sequence tell the windows apart."""
    stem = Layout(str(tmp_path)).stems(Target("G", (), 0), "host", 7)(1, [2], "actor/update")
    assert os.path.basename(stem) == "G-r0-s2-actor_update-w0001-host-7"
