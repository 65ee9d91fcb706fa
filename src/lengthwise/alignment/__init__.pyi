"""What `lengthwise.alignment` exports, as `lengthwise/__init__.pyi`."""

from lengthwise.alignment.divergences import DIVERGENCES as DIVERGENCES
from lengthwise.alignment.divergences import Detach as Detach
from lengthwise.alignment.divergences import Objective as Objective
from lengthwise.alignment.formulas import cross_entropy as cross_entropy
from lengthwise.alignment.formulas import divergence_from_logits as divergence_from_logits
from lengthwise.alignment.formulas import entropy as entropy
from lengthwise.alignment.formulas import jeffreys as jeffreys
from lengthwise.alignment.formulas import jensen_shannon as jensen_shannon
from lengthwise.alignment.formulas import kl_divergence as kl_divergence
from lengthwise.alignment.formulas import symmetric_cross_entropy as symmetric_cross_entropy
from lengthwise.alignment.geometry import PairGeometry as PairGeometry
from lengthwise.alignment.geometry import next_token_labels as next_token_labels
from lengthwise.alignment.normalizers import Normalizers as Normalizers
from lengthwise.alignment.objective import AlignmentOutput as AlignmentOutput
from lengthwise.alignment.objective import alignment_loss as alignment_loss
from lengthwise.alignment.objective import alignment_loss_from_logits as alignment_loss_from_logits
