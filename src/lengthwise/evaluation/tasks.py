"""The literal table of task families, and the tasks in it by name. Imports no torch."""

from __future__ import annotations

from collections.abc import Sequence

from lengthwise.errors import require_known
from lengthwise.evaluation.aggregation import AGGREGATION
from lengthwise.evaluation.association import ASSOCIATION
from lengthwise.evaluation.babilong import BABILONG
from lengthwise.evaluation.chains import CHAINS
from lengthwise.evaluation.longbench_e import LONGBENCH_E
from lengthwise.evaluation.needle import NEEDLE
from lengthwise.evaluation.ordinals import ORDINALS
from lengthwise.evaluation.task import Family, Task
from lengthwise.evaluation.tracking import TRACKING

FAMILIES: tuple[Family, ...] = (
    NEEDLE,
    BABILONG,
    LONGBENCH_E,
    TRACKING,
    ORDINALS,
    CHAINS,
    ASSOCIATION,
    AGGREGATION,
)

TASKS: dict[str, Task] = {task.name: task for family in FAMILIES for task in family.tasks}


def resolve_tasks(names: Sequence[str]) -> dict[Family, list[Task]]:
    """The tasks by their families, in the table's order, each once; UsageError for an unknown name.

    A group gives all its tasks.
    """
    known = [*(family.name for family in FAMILIES), *TASKS]
    fix = "lengthwise ls tasks; for tasks of lm-eval run lm_eval, and `lengthwise import`"
    for name in names:
        require_known(name, known, "unknown task", fix=fix)
    found = {
        family: [task for task in family.tasks if task.name in names or family.name in names]
        for family in FAMILIES
    }
    return {family: tasks for family, tasks in found.items() if tasks}
