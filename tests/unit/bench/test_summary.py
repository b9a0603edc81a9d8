from bench.__main__ import _summary


def test_repeats_show_the_run_in_the_middle_and_all_figures() -> None:
    runs = [
        {"ms_p50": 1.0, "ms_p99": p99, "tasks_per_s": 40.0, "note": name}
        for name, p99 in (("a", 9.0), ("b", 3.0), ("c", 5.0))
    ]

    shown = _summary(runs)

    assert shown["note"] == "c"
    assert shown["repeats"]["ms_p99"] == [9.0, 3.0, 5.0]


def test_drains_are_ordered_by_their_ratio() -> None:
    runs = [{"ratio": ratio, "tasks_per_s": 1.0} for ratio in (0.3, 0.1, 0.2)]

    assert _summary(runs)["ratio"] == 0.2


def test_a_single_run_is_shown_as_it_is() -> None:
    assert _summary([{"tasks_per_s": 1.0}]) == {"tasks_per_s": 1.0}
