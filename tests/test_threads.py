"""Tasks in threads that share PyTorch's threads: their order, and what is left as it was."""

from __future__ import annotations

import threading

import torch

from mechint.threads import side_by_side


def test_results_come_in_order_and_leave_the_threads_of_others(threads: int) -> None:
    def task(i: int):
        return lambda: (i, torch.get_num_threads())

    found = side_by_side([task(i) for i in range(7)])
    assert [i for i, _ in found] == list(range(7))
    at_once = min(threads, 7)
    assert {each for _, each in found} == {threads // at_once if at_once > 1 else threads}
    elsewhere: list[int] = []
    thread = threading.Thread(target=lambda: elsewhere.append(torch.get_num_threads()))
    thread.start()
    thread.join()
    assert torch.get_num_threads() == threads
    assert elsewhere == [threads]


def test_as_many_tasks_run_at_a_time_as_there_are_threads(threads: int) -> None:
    if threads == 1:
        assert side_by_side([threading.get_ident] * 2) == [threading.get_ident()] * 2
        return
    met = threading.Barrier(threads)  # passes only where all wait at it together
    assert sorted(side_by_side([lambda: met.wait(60)] * threads)) == list(range(threads))
