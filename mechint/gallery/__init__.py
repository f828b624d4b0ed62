"""The gallery: a page per study, example, probe and task, from what the repository keeps.

``results/`` holds the pages of studies, tasks and examples as JSON; ``python -m
mechint.gallery.measure`` makes those of tasks and examples again. Pages of probes are put together
from the pages of tasks when the gallery is drawn.
"""

from mechint.gallery.cells import Cell, cells_of, notebook
from mechint.gallery.probes import probe_pages

__all__ = ["Cell", "cells_of", "notebook", "probe_pages"]
