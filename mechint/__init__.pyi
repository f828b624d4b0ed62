"""The public names; written by ``python -m mechint.stubs``."""

from mechint.calibration.engine import calibrate as calibrate
from mechint.checkpoints.checkpoint import Checkpoint as Checkpoint
from mechint.checkpoints.open import load as load
from mechint.checkpoints.open import load_checkpoint as load_checkpoint
from mechint.claim import Claim as Claim
from mechint.config.model import ModelConfig as ModelConfig
from mechint.config.settings import setting as setting
from mechint.config.train import TrainConfig as TrainConfig
from mechint.dictionaries.export import activation_batches as activation_batches
from mechint.dictionaries.export import export_activations as export_activations
from mechint.dictionaries.files import load_dictionary as load_dictionary
from mechint.errors import MechintError as MechintError
from mechint.figures.figure import Figure as Figure
from mechint.finding import Report as Report
from mechint.models.transformer import HookedTransformer as HookedTransformer
from mechint.models.wrapped import wrap as wrap
from mechint.null import Null as Null
from mechint.probe import Need as Need
from mechint.probe import Probe as Probe
from mechint.results import Finding as Finding
from mechint.results import ProbeResult as ProbeResult
from mechint.results import Table as Table
from mechint.run_table.compare import Comparison as Comparison
from mechint.run_table.compare import compare as compare
from mechint.run_table.table import Runs as Runs
from mechint.run_table.table import runs as runs
from mechint.studies.core.runner import reproduce as reproduce
from mechint.studies.core.study import Study as Study
from mechint.subject import Subject as Subject
from mechint.task.base import Task as Task
from mechint.task.batch import Batch as Batch
from mechint.task.batch import Output as Output
from mechint.task.batch import Vocabulary as Vocabulary
from mechint.task.finite import FiniteTask as FiniteTask
from mechint.task.generated import GeneratedTask as GeneratedTask
from mechint.task.truth import Chance as Chance
from mechint.task.truth import Control as Control
from mechint.task.truth import Symmetry as Symmetry
from mechint.task.truth import Variable as Variable
from mechint.training.api import train as train
from mechint.training.run import Run as Run

__version__: str
