"""The rule that nothing installed by CI is skipped silently, tried on small suites."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

MARKED = """
import pytest

@pytest.mark.torch
def test_needs_torch():
    pytest.skip("torch is too old")

@pytest.mark.nsys
def test_needs_nsys():
    pytest.skip("nsys is not installed")

def test_plain():
    pytest.skip("no sample files")
"""
UNMARKED = 'import pytest\npytest.skip("could not import torch_npu", allow_module_level=True)\n'


def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, test: str, no_skip: str) -> pytest.RunResult:
    monkeypatch.setenv("ACCELPROF_CI_NO_SKIP", no_skip)
    pytester.makeconftest((ROOT / "conftest.py").read_text().replace('pytest_plugins = ["pytester"]', ""))
    pytester.makeini("[pytest]\nmarkers =\n  torch:\n  nsys:\n")
    pytester.makepyfile(test)
    return pytester.runpytest_inprocess("-p", "no:cacheprovider", "-p", "no:hypothesispytest")


def test_tests_with_ray_stay_in_one_process(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spread over two processes, all tests with Ray run in the same one, from whichever file they are; a file stays whole.

    pytest-xdist 3.8 takes no notice of groups under pytest 9.2.
    """
    plain = "import os, pytest\n" + "".join(
        f"def test_{name}():\n    print('WORKER', os.path.basename(__file__), os.environ['PYTEST_XDIST_WORKER'])\n"
        for name in ("one", "two", "three")
    )
    ray = plain.replace("def ", "@pytest.mark.ray\ndef ")
    monkeypatch.delenv("CI", raising=False)
    pytester.makeconftest((ROOT / "conftest.py").read_text().replace('pytest_plugins = ["pytester"]', ""))
    pytester.makeini("[pytest]\nmarkers =\n  ray:\n")
    pytester.makepyfile(test_a=ray, test_b=ray, test_c=plain, test_d=plain)
    result = pytester.runpytest_subprocess("-n2", "--dist", "loadgroup", "-rP", "-p", "no:cacheprovider")
    result.assert_outcomes(passed=12)
    seen: dict[str, set[str]] = {}
    for line in result.stdout.str().splitlines():
        if line.startswith("WORKER "):
            _, file, worker = line.split()
            seen.setdefault(file, set()).add(worker)
    assert [len(seen[f"test_{name}.py"]) for name in "abcd"] == [1, 1, 1, 1]
    assert seen["test_a.py"] == seen["test_b.py"]


def test_skips_stay_skips_without_the_variable(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the variable nothing changes."""
    run(pytester, monkeypatch, MARKED, "").assert_outcomes(skipped=3)


def test_a_skip_of_an_installed_tier_fails_with_its_reason(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A marked test of a named tier fails and keeps its reason; other tiers and unmarked tests may still be skipped."""
    result = run(pytester, monkeypatch, MARKED, "torch,ray")
    result.assert_outcomes(failed=1, skipped=2)
    assert "torch is too old" in result.stdout.str()


def test_one_means_every_tier(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """``1`` names all tiers, and tests without a marker are still free to skip."""
    run(pytester, monkeypatch, MARKED, "1").assert_outcomes(failed=2, skipped=1)


@pytest.mark.parametrize(("no_skip", "outcome"), [("npu", {"errors": 1}), ("nsys", {"skipped": 1})])
def test_a_module_that_skips_itself_is_judged_by_its_reason(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, no_skip: str, outcome: dict[str, int]
) -> None:
    """A module without markers fails exactly when what it lacks belongs to a named tier."""
    run(pytester, monkeypatch, UNMARKED, no_skip).assert_outcomes(**outcome)


FLAKY = """
import pathlib, pytest

@pytest.mark.second_try("the daemon may be late")
def test_marked():
    seen = pathlib.Path("seen-marked")
    first, _ = not seen.exists(), seen.touch()
    assert not first

def test_plain():
    seen = pathlib.Path("seen-plain")
    first, _ = not seen.exists(), seen.touch()
    assert not first
"""


@pytest.mark.parametrize(("ci", "passed", "failed"), [("1", 1, 1), ("", 0, 2)])
def test_a_second_try_is_for_marked_tests_in_ci(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, ci: str, passed: int, failed: int
) -> None:
    """In CI a marked test may fail once, and the summary counts it with its reason; no other test may, and none elsewhere."""
    monkeypatch.setenv("CI", ci)
    result = run(pytester, monkeypatch, FLAKY, "")
    outcomes = result.parseoutcomes()
    assert (outcomes.get("passed", 0), outcomes["failed"]) == (passed, failed)
    told = "1 of the tests needed a second try" in result.stdout.str()
    assert told == bool(ci)
    assert ("::test_marked: the daemon may be late" in result.stdout.str()) == bool(ci)


def test_a_second_try_without_a_reason_is_refused(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """The mark says why in words."""
    result = run(pytester, monkeypatch, "import pytest\n@pytest.mark.second_try\ndef test_it(): pass\n", "")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "second_try says why" in result.stderr.str() + result.stdout.str()
