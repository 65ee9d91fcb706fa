"""What `lengthwise.checkpoints` exports, as `lengthwise/__init__.pyi`."""

from lengthwise.checkpoints.doctor import check_rope as check_rope
from lengthwise.checkpoints.embedded_models import EMBEDDED as EMBEDDED
from lengthwise.checkpoints.extending import extend as extend
from lengthwise.checkpoints.extension import Extension as Extension
from lengthwise.checkpoints.head import FullLogits as FullLogits
from lengthwise.checkpoints.head import Head as Head
from lengthwise.checkpoints.head import NonFiniteLogits as NonFiniteLogits
from lengthwise.checkpoints.head import find_head as find_head
from lengthwise.checkpoints.head import hidden_states_for as hidden_states_for
from lengthwise.checkpoints.hidden import capture_hidden_states as capture_hidden_states
from lengthwise.checkpoints.hidden import final_hidden_states as final_hidden_states
from lengthwise.checkpoints.hidden import unwrap as unwrap
from lengthwise.checkpoints.loading import DTYPES as DTYPES
from lengthwise.checkpoints.resolve import read_config as read_config
from lengthwise.checkpoints.resolve import read_tokenizer as read_tokenizer
