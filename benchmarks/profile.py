"""Where the time of a step goes, in words, for rows that miss their target."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from torch.profiler import ProfilerActivity, profile

PRODUCTS = (
    "aten::mm",
    "aten::addmm",
    "aten::bmm",
    "aten::baddbmm",
    "mkldnn::_linear_pointwise",
)
VIEWS = (
    "view",
    "reshape",
    "flatten",
    "transpose",
    "permute",
    "expand",
    "select",
    "slice",
    "squeeze",
    "as_strided",
    "unbind",
    "split",
    "aten::t",
    "detach",
)


def where(action: Callable[[], Any], times: int = 20) -> str:
    """Shares of the profiled time of `times` calls: matrix products, other arithmetic, and what
    calling the operations costs.

    The profiler makes every operation slower by about a microsecond, so the last share is an upper
    bound.
    """
    action()
    with profile(activities=[ProfilerActivity.CPU], acc_events=True) as profiled:
        for _ in range(times):
            action()
    seconds: Counter[str] = Counter()
    names: Counter[str] = Counter()
    calls = 0
    for event in profiled.key_averages():
        kind = kind_of(event.key)
        seconds[kind] += event.self_cpu_time_total
        calls += event.count if event.key.startswith("aten::") else 0
        if kind == "other arithmetic":
            names[event.key.removeprefix("aten::")] += event.self_cpu_time_total
    total = sum(seconds.values())
    shares = ", ".join(f"{share / total:.0%} {kind}" for kind, share in seconds.most_common())
    largest = ", ".join(f"{name} {share / total:.0%}" for name, share in names.most_common(4))
    return (
        f"profile: {shares} (largest of the other arithmetic: {largest}); {calls / times:.0f} "
        "operations"
    )


def kind_of(name: str) -> str:
    """What an operation of the profile is counted as.

    >>> kind_of("aten::mm"), kind_of("aten::gelu"), kind_of("aten::view"), kind_of("MulBackward0")
    ('matrix products', 'other arithmetic', 'calling operations', 'calling operations')
    """
    if name in PRODUCTS:
        return "matrix products"
    plain = name.startswith("aten::") and not any(view in name for view in VIEWS)
    return "other arithmetic" if plain or name == "aten::select_backward" else "calling operations"
