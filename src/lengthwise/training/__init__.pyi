"""What `lengthwise.training` exports, as `lengthwise/__init__.pyi`."""

from lengthwise.training.arguments import AlignmentArguments as AlignmentArguments
from lengthwise.training.arguments import AlignmentConfig as AlignmentConfig
from lengthwise.training.collator import PairCollator as PairCollator
from lengthwise.training.collator import WindowDataset as WindowDataset
from lengthwise.training.measure_callback import MeasureCallback as MeasureCallback
from lengthwise.training.model_loss import model_alignment_loss as model_alignment_loss
from lengthwise.training.recipe import Recipe as Recipe
from lengthwise.training.recipe import read_recipe as read_recipe
from lengthwise.training.recipe import shipped_recipes as shipped_recipes
from lengthwise.training.stretches import pair_windows as pair_windows
from lengthwise.training.trainer import AlignmentTrainer as AlignmentTrainer
from lengthwise.training.training_plan import plan as plan
from lengthwise.training.training_run import train as train
from lengthwise.training.views import Positions as Positions
from lengthwise.training.views import View as View
