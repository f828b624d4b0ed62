"""Settings of every test: one thread a worker, and no deadline, because the machine may be busy."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

from hypothesis import settings

settings.register_profile("mechint", deadline=None, max_examples=30)
settings.load_profile("mechint")
