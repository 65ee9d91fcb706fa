"""What `lengthwise.measure` exports, as `lengthwise/__init__.pyi`."""

from lengthwise.measure.comparison import compare_runs as compare_runs
from lengthwise.measure.comparison import paired_difference as paired_difference
from lengthwise.measure.difference import Difference as Difference
from lengthwise.measure.limit import Limit as Limit
from lengthwise.measure.longppl import LongPpl as LongPpl
from lengthwise.measure.measurement import Item as Item
from lengthwise.measure.measurement import Measurement as Measurement
from lengthwise.measure.measurement import WindowMeasurement as WindowMeasurement
from lengthwise.measure.misalignment import Misalignment as Misalignment
from lengthwise.measure.perplexity import Perplexity as Perplexity
from lengthwise.measure.runner import run as run
from lengthwise.measure.table import MEASUREMENTS as MEASUREMENTS
