"""`python -m benchmarks.on_gpu`, once the packages that it needs are there."""

from __future__ import annotations

import sys

from benchmarks.on_gpu.needs import NEEDED, missing

if __name__ == "__main__":
    absent = missing()
    if absent:
        print(f"not installed here: {', '.join(absent)}; `make gpu` needs {', '.join(NEEDED)}")
        sys.exit(2)
    from benchmarks.on_gpu.parts import main

    sys.exit(main())
