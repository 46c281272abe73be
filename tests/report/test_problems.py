"""Problems as people read them: the place, a caret, the remedy."""

from ziplan.errors import Problem
from ziplan.report.problems import problem_text


def test_a_problem_with_a_place_shows_the_line_and_a_caret():
    problem = Problem(
        file="cluster.yaml",
        line=14,
        column=9,
        code="ZP012",
        message="unknown key `nvme_bw` in tiers.nvme",
        help="write it with its unit, for example `read_bandwidth: 3 GB/s`",
        text="        nvme_bw: 3.0",
        length=7,
        hint="did you mean `read_bandwidth`?",
    )
    assert (
        problem_text(problem)
        == """\
cluster.yaml:14:9: ZP012 unknown key `nvme_bw` in tiers.nvme
   |
14 |         nvme_bw: 3.0
   |         ^^^^^^^ did you mean `read_bandwidth`?
   = help: write it with its unit, for example `read_bandwidth: 3 GB/s`"""
    )


def test_a_problem_without_a_place_is_a_sentence_and_its_remedy():
    problem = Problem(
        "", 0, 0, "ZP010", "unknown machine 'dgx'", "see `ziplan profiles`", hint="did you mean `dgx-h100`?"
    )
    assert problem_text(problem) == (
        "ZP010 unknown machine 'dgx'; did you mean `dgx-h100`?\n  = help: see `ziplan profiles`"
    )


def test_a_long_line_is_shown_around_the_caret():
    text = "x" * 5000 + "wrong" + "y" * 5000
    shown = problem_text(Problem("a.json", 1, 5001, "ZP002", "bad", text=text, length=5)).splitlines()
    assert len(shown[2]) < 200
    start = shown[3].index("^")
    assert shown[2][start : start + 5] == "wrong"


def test_tabs_keep_the_caret_under_the_text():
    shown = problem_text(Problem("a", 1, 2, "ZP002", "bad", text="\tkey: 1", length=3)).splitlines()
    assert shown[3] == "  | \t^^^"


def test_control_characters_never_reach_the_terminal():
    shown = problem_text(Problem("a", 1, 1, "ZP002", "bad \x1b[31m", text="\x1b[2Jkey\r"))
    assert "\x1b" not in shown
    assert "\r" not in shown


def test_a_flag_has_no_lines_and_no_caret_under_all_of_its_value():
    whole = Problem("--set foo", 1, 1, "ZP012", "unknown key `foo`", text="1", hint="known here: gpu")
    assert problem_text(whole) == "--set foo: ZP012 unknown key `foo`; known here: gpu"
    part = Problem("--set a", 1, 7, "ZP012", "unknown key `c`", text="{b: 1, c: 2}", hint="known here: b")
    assert problem_text(part).splitlines()[0] == "--set a: ZP012 unknown key `c`"
    assert problem_text(part).splitlines()[-1] == "  |       ^ known here: b"
