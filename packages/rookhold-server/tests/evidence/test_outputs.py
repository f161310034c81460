"""Collected outputs are hostile until they were held to the request."""

from rookhold_exec.executor import CollectedOutput as Good
from rookhold_exec.executor import UncollectedOutput as Lost
from rookhold_server.evidence.outputs import check_collection
from rookhold_types.limits import OUTPUT_FILE_BYTES_MAX as FILE_MAX


def check(requested, collected=(), uncollected=()):
    found = check_collection(requested, collected, uncollected)
    return [good.path for good in found.good], {lost.path: lost.reason for lost in found.lost}


def test_what_was_not_asked_for_is_dropped_and_what_is_not_mentioned_is_missing():
    collected = [Good("output/x", b""), Good("/etc/passwd", b"root")]
    assert check(["output/a", "output/x"], collected) == (["output/x"], {"output/a": "missing"})


def test_sizes_are_checked_again_one_by_one_and_together():
    at_limit = b"x" * FILE_MAX
    collected = [
        Good("output/over", at_limit + b"x"),
        Good("output/1", at_limit),
        Good("output/2", at_limit),
        Good("output/3", b"x"),
        Good("output/4", b""),
    ]
    assert check([one.path for one in collected], collected) == (
        ["output/1", "output/2", "output/4"],
        {"output/over": "too_large", "output/3": "total_too_large"},
    )


def test_a_path_that_is_both_good_and_bad_is_bad_and_a_repeated_one_is_taken_once():
    collected = [Good("output/a", b"1"), Good("output/b", b"first"), Good("output/b", b"second")]
    found = check_collection(["output/a", "output/b"], collected, [Lost("output/a", "changed")])
    assert [(good.path, good.content) for good in found.good] == [("output/b", b"first")]
    assert found.lost == (Lost("output/a", "changed"),)


def test_a_reason_in_a_providers_own_words_does_not_reach_a_tenant():
    assert check(["output/a"], (), [Lost("output/a", "EACCES on /host/path")]) == (
        [],
        {"output/a": "unreadable"},
    )
