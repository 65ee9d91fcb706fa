"""The two estimators of Eq. 2 by name, each in one line. Needs no torch, so that they can be listed."""

from __future__ import annotations

ESTIMATORS = {
    "lattice": "Eq. 2 from several views of each window, every shared position compared (default)",
    "paper": "Eq. 2 as it is written: sample x, l1 and l2, compare the last tokens; far wider intervals",
}
