"""What `checks/gpu.sh` measured of the objective on a GPU, kept in `studies/results/bench/gpu.json`."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import fmean, median

from lengthwise.report.tables import Table
from tools.docs.kept_results import results_folder

ROWS = {
    "fused_triton": "L*, 512 MiB of logits in a chunk, the default until then",
    "fused_triton@1024": "L*, 1,024 MiB (2,093 pairs; the default is now 2,048)",
    "fused_triton@2048": "L*, 2,048 MiB: three chunks, so the head's gradient is summed in bf16",
    "fused_bf16_triton": "L*, 512 MiB, the head's gradient summed in bf16",
    "fused_torch": "L*, 512 MiB, the torch tile",
    "chunked_ce_triton": "CE of both windows alone, 512 MiB",
    "liger_ce": "Liger's fused CE of both windows",
    "trl_ce": "TRL's chunked CE of both windows",
    "cce": "Cut Cross Entropy of both windows",
    "naive": "L* with all logits (Appendix D)",
}
"""Row of `bench/objective.py` -> what the page calls it."""
_PRODUCTS = "products"


def objective_table(root: Path, shape: str) -> Table:
    """Milliseconds of forward and backward, their ratio to the matrix products alone, and memory."""
    kept = json.loads((results_folder(root) / "bench" / "gpu.json").read_text(encoding="utf-8"))
    [rows] = [one["rows"] for one in kept["objective"] if one["shape"] == shape]
    # The passes of a repeat follow each other; ratios are taken within a repeat, as in bench/objective.py.
    times = {name: [fmean(passes) for passes in row["ms"]] for name, row in rows.items()}
    lines = [
        (
            says,
            f"{median(times[name]):.1f}",
            f"{median(own / least for own, least in zip(times[name], times[_PRODUCTS], strict=False)):.2f}",
            f"{rows[name]['extra_mib']:,.0f}",
        )
        for name, says in ROWS.items()
        if name in rows
    ]
    return Table(columns=("", "ms", "/ the products alone", "extra MiB"), rows=lines)
