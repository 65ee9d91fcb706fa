"""What `lengthwise.measure` exports, as `lengthwise/__init__.pyi`."""

from lengthwise.measure.comparison import Comparison as Comparison
from lengthwise.measure.difference import difference_of_runs as difference_of_runs
from lengthwise.measure.difference import paired_difference as paired_difference
from lengthwise.measure.limit import Limit as Limit
from lengthwise.measure.longppl import LongPpl as LongPpl
from lengthwise.measure.measurement import Item as Item
from lengthwise.measure.measurement import Measurement as Measurement
from lengthwise.measure.measurement import WindowMeasurement as WindowMeasurement
from lengthwise.measure.misalignment import Misalignment as Misalignment
from lengthwise.measure.perplexity import Perplexity as Perplexity
from lengthwise.measure.runner import run as run
from lengthwise.measure.table import MEASUREMENTS as MEASUREMENTS
