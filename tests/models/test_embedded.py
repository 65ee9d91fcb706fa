from __future__ import annotations

import subprocess
import sys


def test_the_tables_of_names_are_read_without_torch():
    code = (
        "import sys\n"
        "from lengthwise.models import EMBEDDED\n"
        "from lengthwise.text import EMBEDDED_CORPORA\n"
        "models, texts = {'smollm2-135m', 'gemma3-270m', 'tiny-books'}, {'books', 'books-20', 'code'}\n"
        "assert (set(EMBEDDED), set(EMBEDDED_CORPORA)) == (models, texts)\n"
        "heavy = {'torch', 'transformers', 'datasets'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    result = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
