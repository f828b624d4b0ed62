"""What every task and every probe has to keep, as checks that third parties run on theirs:
``check_task``, ``check_probe``.
"""

from mechint.testing.probes import check_probe
from mechint.testing.tasks import check_task

__all__ = ["check_probe", "check_task"]
