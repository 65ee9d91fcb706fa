"""What `lengthwise` exports: type checkers read these imports, and `__getattr__` follows them at first use."""

import collections.abc
import typing

from lengthwise.alignment import AlignmentOutput as AlignmentOutput
from lengthwise.alignment import Objective as Objective
from lengthwise.alignment import PairGeometry as PairGeometry
from lengthwise.alignment import alignment_loss as alignment_loss
from lengthwise.alignment import next_token_labels as next_token_labels
from lengthwise.checkpoints import check_rope as check_rope
from lengthwise.checkpoints import extend as extend
from lengthwise.checkpoints import find_head as find_head
from lengthwise.errors import Interrupted as Interrupted
from lengthwise.errors import LengthwiseError as LengthwiseError
from lengthwise.errors import MissingError as MissingError
from lengthwise.errors import UsageError as UsageError
from lengthwise.evaluation import Evaluation as Evaluation
from lengthwise.measure import Limit as Limit
from lengthwise.measure import LongPpl as LongPpl
from lengthwise.measure import Measurement as Measurement
from lengthwise.measure import Misalignment as Misalignment
from lengthwise.measure import Perplexity as Perplexity
from lengthwise.measure import difference_of_runs as difference_of_runs
from lengthwise.measure import paired_difference as paired_difference
from lengthwise.measure import run as run
from lengthwise.results import Results as Results
from lengthwise.results import Row as Row
from lengthwise.results import read_results as read_results
from lengthwise.settings import Subject as Subject
from lengthwise.subjects import LoadedModel as LoadedModel
from lengthwise.subjects import load as load
from lengthwise.text import load_corpus as load_corpus
from lengthwise.text import tokenize as tokenize
from lengthwise.training import AlignmentConfig as AlignmentConfig
from lengthwise.training import AlignmentTrainer as AlignmentTrainer
from lengthwise.training import MeasureCallback as MeasureCallback
from lengthwise.training import PairCollator as PairCollator
from lengthwise.training import View as View
from lengthwise.training import WindowDataset as WindowDataset
from lengthwise.training import model_alignment_loss as model_alignment_loss
from lengthwise.training import pair_windows as pair_windows
from lengthwise.training import read_recipe as read_recipe
from lengthwise.training import train as train

__version__: str

def lazy_names(
    package: str, file: str
) -> tuple[dict[str, str], collections.abc.Callable[[str], typing.Any]]: ...

__all__: list[str]
_HOME: dict[str, str]
