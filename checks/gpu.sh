#!/usr/bin/env bash
# What needs a GPU, on a machine that has one, torch and triton, and no network: kernels, speed, a step, `limit`.
#
#     checks/gpu.sh                              about five minutes; results in $OUT, or runs/gpu
#     checks/gpu.sh --parts facts,cases          some of the parts: see --help
#     checks/gpu.sh --device cpu --small         the program itself, tried without a GPU
#
# Nothing is installed. The package is read from src/, and what it imports that the machine lacks from the wheels in
# .whl, where checks/gpu-wheels.sh puts them: pydantic with pydantic-core, annotated-types, typing-inspection and
# typing-extensions; cyclopts with docstring-parser, rich-rst and docutils; httpx2 with httpcore2, truststore and
# idna; gguf; datasets with dill and multiprocess. For the benchmark's peers also liger-kernel, cut-cross-entropy
# and trl. The machine's own: torch, triton, transformers, tokenizers, accelerate, peft, numpy, scipy, matplotlib,
# pyarrow, pandas, rich, jinja2, pyyaml, filelock, anyio, attrs, tqdm, pytest, pytest-xdist.
set -u
cd "$(dirname "$0")/.."
export PYTHONPATH=$PWD/src:$PWD/studies PYTHONUNBUFFERED=1 HF_HUB_OFFLINE=1 HF_DATASETS_OFFLINE=1
site=${SITE:-$PWD/runs/gpu-site}
if [ ! -d "$site" ] && compgen -G ".whl/*.whl" >/dev/null; then
  ${PYTHON:-python3} -m pip install -q --no-index --no-deps --no-compile --no-cache-dir --upgrade \
    --target "$site" .whl/*.whl || echo "the wheels could not be unpacked: going on without them" >&2
fi
[ -d "$site" ] && export PYTHONPATH=$site:$PYTHONPATH
exec "${PYTHON:-python3}" checks/gpu "$@"
