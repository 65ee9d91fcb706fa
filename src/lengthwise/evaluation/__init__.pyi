from lengthwise.evaluation.decoding import likelihoods as likelihoods
from lengthwise.evaluation.decoding import replies as replies
from lengthwise.evaluation.evaluate import Evaluation as Evaluation
from lengthwise.evaluation.tasks import FAMILIES as FAMILIES
from lengthwise.evaluation.tasks import TASKS as TASKS
