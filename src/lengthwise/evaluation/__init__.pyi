from lengthwise.evaluation.evaluate import Evaluation as Evaluation
from lengthwise.evaluation.likelihood import likelihoods as likelihoods
from lengthwise.evaluation.lm_eval_export import write_lm_eval_tasks as write_lm_eval_tasks
from lengthwise.evaluation.lm_eval_output import import_lm_eval as import_lm_eval
from lengthwise.evaluation.tasks import FAMILIES as FAMILIES
from lengthwise.evaluation.tasks import TASKS as TASKS
