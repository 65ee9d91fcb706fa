"""What `lengthwise.subjects` exports, as `lengthwise/__init__.pyi`."""

from lengthwise.subjects.endpoint import Endpoint as Endpoint
from lengthwise.subjects.loaded_model import LoadedModel as LoadedModel
from lengthwise.subjects.loaded_model import ModelLike as ModelLike
from lengthwise.subjects.loaded_model import as_model as as_model
from lengthwise.subjects.loaded_model import load as load
from lengthwise.subjects.loaded_model import open_model as open_model
from lengthwise.subjects.pieces import PieceReader as PieceReader
from lengthwise.subjects.reading import Branch as Branch
from lengthwise.subjects.reading import Predictor as Predictor
from lengthwise.subjects.reading import Read as Read
from lengthwise.subjects.reading import Reader as Reader
from lengthwise.subjects.reading import Reading as Reading
from lengthwise.subjects.reading import Want as Want
from lengthwise.subjects.rows import Rows as Rows
from lengthwise.subjects.rows import naming_bad_logits as naming_bad_logits
