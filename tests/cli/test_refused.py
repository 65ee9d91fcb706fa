"""Every wrong command gets its exit code and a message that names what is wrong, and writes nothing."""

import shlex
from pathlib import Path
from typing import Any

import pytest

from tests.cli.small_runs import refused

TEXT = "--text {text} --split all"
M = f"{TEXT} --lengths 16 --windows 2"
M64 = f"{TEXT} --lengths 64 --windows 2"
FACTOR_2 = "--method pi --factor 2"
COMPARE = f"compare {{model}} {{model}} {TEXT} --lengths 96 --windows 3 --dry-run"
LOADED = (f"ppl {{model}} {M} --%s %s", f"compare {{model}} {{model}} {M64} --b %s=%s")
MODELS = {
    f"measure ./gone {M}": (3, "there is no model folder ./gone", "fix: "),
    f"ppl smollm2-135 {M}": (2, "unknown model 'smollm2-135'", "did you mean 'smollm2-135m'?"),
    f"measure {{model}} {M} --adapter {{model}}": (3, "adapter_config.json"),
    "doctor nowhere/at/all": (3,),
    "doctor nothing.gguf": (3,),
    "doctor --config-only": (2,),
    "doctor http://127.0.0.1:1/v1": (2,),
    "cp longqlra": (2, "did you mean 'longqlora'"),
    "merge nothing --out merged": (3, "nothing is not the folder of a finished training run"),
    "difference {model} {model}": (2,),
    "difference {model} {model} --json --format csv": (2, "--json", "--format csv"),
    "import {model} --out run --resume": (2, "--resume"),
    f"ppl {{model}} {TEXT} --lengths 16,32": (2, "--lengths", "expected: blanks between them: 16 32"),
    # No file of another kind is replaced.
    f"ppl {{model}} {M} --fail-above 9 --junit {{model}}/config.json": (2, "config.json exists"),
    f"compare {{model}} {{model}} {M64} --b dtype=float64 --fail-use 0.1 --junit {{recipe}}": (2, "exists"),
}
BLANK = {
    f"ppl '' {M}": (2, "model"),
    f"longppl {{model}} {TEXT} --evaluator ''": (2, "evaluator"),
    f"extend '' {FACTOR_2} --out x": (2,),
    f"extend {{model}} {FACTOR_2} --out ''": (2,),
    "report ''": (2,),
    **{
        f"ppl {{model}} --lengths 16 --{name} ' '": (2, name)
        for name in ("text", "adapter", "device", "dtype", "out")
    },
}
VALUES = {
    "mesure m": (2, '"mesure"', 'Did you mean "measure"?'),
    "measure m --lenght 3": (2, "Unknown option: --lenght", "--lengths"),
    "measure": (2, "MODEL requires an argument"),
    f"measure {{model}} {M} --estimator latice": (2, "latice", "lattice", "paper"),
    f"measure {{model}} {TEXT} --lengths many": (2, "--lengths", "many"),
    **{
        f"ppl {{model}} {TEXT} --lengths 16 {option} {number} --dry-run": (2, option)
        for option in ("--lengths", "--windows", "--batch-size", "--seed", "--text-tokens")
        for number in ("1.024", "2.0")
    },
    **{
        f"ppl {{model}} {TEXT} --lengths 16 {option} {10**25} --dry-run": (2, "64 bits")
        for option in ("--windows", "--batch-size", "--seed")
    },
    # What no run could load is no plan.
    **{
        words % ("adapter", folder) + " --dry-run": (3, "adapter")
        for words in LOADED
        for folder in ("./gone", "{text}")
    },
    **{words % ("attn", "spda") + " --dry-run": (2, "'spda'", "'sdpa'") for words in LOADED},
    **{words % ("attn", "paged|sdpa") + " --dry-run": (2, "'paged|sdpa'", "sdpa") for words in LOADED},
    # A gate that could never pass, or never fail.
    **{
        f"ppl {{model}} {M} --fail-above {bad}": (2, "--fail-above", "0 or more")
        for bad in ("-1", "nan", "inf")
    },
    **{
        f"compare {{model}} {{model}} {M64} --b dtype=float64 --fail-use {bad}": (2, "--fail-use", "below 1")
        for bad in ("-0.1", "1", "10", "nan")
    },
    # Before anything of the length is laid out.
    f"limit {{model}} {TEXT} --max-length {10**12} --dry-run": (2, "the text is too short"),
    "extend {model} --method yarn --factor 2 --original-length 1.024 --dry-run": (2, "--original-length"),
    "train {recipe} --dry-run --devices 1.5": (2, "--devices"),
    f"measure --lengths 16 2k {{model}} {TEXT}": (2, "--lengths", "2k"),
    **{
        f"ppl {{model}} {M} --fail-above 9 --junit {place}": (2, "--junit")
        for place in ("''", "{text}", "{recipe}/file.xml")
    },
    # Not written to a folder `s3:` of this machine.
    **{
        f"{words}=s3://bucket/run": (2, words.rpartition(" ")[2], "an address")
        for words in (
            f"ppl {{model}} {M} --out",
            f"ppl {{model}} {M} --fail-above 9 --junit",
            "extend {model} --method yarn --factor 2 --out",
            "train {recipe} --out",
        )
    },
    f"ppl {{model}} {TEXT} --junit out.xml": (2, "--junit needs a threshold"),
    f"measure {{model}} {TEXT} --windows 0": (2, "windows is 0", "greater than or equal to 1"),
    f"measure {{model}} {M} --device gpu": (2, "unknown device 'gpu'", "cuda"),
    f"measure {{model}} {M} --bos always": (2, "no BOS token"),
    f"measure {{model}} {M} --resume": (2, "--out"),
    f"measure {{model}} {M} --resume --dry-run": (2, "--out"),
    "train {recipe} --overwrite --dry-run": (2, "--out"),
    f"measure {{model}} {M} --overwrite": (2, "--out"),
    f"measure {{model}} {M} --out run --resume --overwrite": (2, "exclude each other"),
    **{f"limit {{model}} {TEXT} --tolerance {number}": (2, "tolerance") for number in ("nan", "inf")},
    # Before any is made up.
    f"eval {{model}} needle_single --samples {10**12} --dry-run": (2, "samples", "1000000"),
    "eval {model} niddle": (2, "'needle'"),
    "eval {model} needle --story x": (2, "--stories"),
    # Given at its default, but given.
    "eval {model} longbench_trec_e --max-length 99 --split test": (2, "split"),
    **{
        f"{words} {TEXT} --device={device}": (code,)
        for words in (
            "ppl {model} --lengths 16 --windows 2 --dry-run",
            "eval {model} needle_single --lengths 128",
        )
        for device, code in {"meta": 2, "--": 2, "cuda:9999": 3, "cpu:3": 3}.items()
    },
}
LENGTHS = {
    # A path that reads no cache would give the plain numbers under its name.
    **{
        f"{words} {TEXT} {how}": (2, "no cache is read")
        for words in (
            "measure {model} --lengths 64",
            "ppl {model} --lengths 64",
            "ppl {model} --lengths 64 512",
            "measure {model} --lengths 64 512",
            "limit {model} --max-length 256 --reference 32",
            "longppl {model} --max-length 96 --short 32 --stride 32",
            "eval {model} needle_single --lengths 250 --mode likelihood",
        )
        for how in ("--kv-cache static", "--read chunks=256", "--kv-cache static --dry-run")
    },
    **{
        f"{verb} {{model}} --text {{short}} --split all --lengths 64": (
            2, "the text is too short: a window needs ", ", the longest document has ", "fix: "
        )
        for verb in ("measure", "ppl")
    },
    **{
        f"eval {{model}} needle_single {TEXT} --lengths {length} {dry}": (2, str(length))
        for length in (1_000_000, 10**24)
        for dry in ("", "--dry-run")
    },
}  # fmt: skip
RECIPES = {
    "train {recipe} --out run --set objective.alhpa=1": (2, "unknown key 'objective.alhpa'", "did you mean 'alpha'?"),
    "train {recipe} --out run --set objective.alpha": (2, "has no value", "section.key=value"),
    "train {recipe} --out run --set length=4096": (2, "the text is too short"),
    """train {recipe} --out run --set "data.corpus=''" """: (2, "corpus"),
    """train {recipe} --out run --set "model=' '" """: (2, "model"),
    "train {recipe} --out run --set steps=2 --set steps=3": (2, "steps is given twice"),
    "train {recipe}": (2, "training needs a folder", "--out"),
    **{f"train {{recipe}} --dry-run --devices {count}": (2, f"devices is {count}") for count in (0, -1, -8)},
}  # fmt: skip
EXTENDING = {
    f"extend {{model}} {FACTOR_2}": (2, "--out models/NAME"),
    **{
        f"extend {{model}} --method {how} {last}": (2, says)
        for how, says in {
            "yarm --factor 2": "did you mean 'yarn'",
            "abf --factor 1e308": "factor",
            "yarn --factor 2 --set beta=3": "unknown key 'beta'",
            "longrope --factor 2": "no long_factor",
            "eabf --factor 2": "leaves none of the 2 layers",
        }.items()
        for last in ("--out m", "--dry-run")
    },
}
SIDES = {
    COMPARE: (2, "the same in everything"),
    f"{COMPARE} --b kvcache=static": (2, "no setting 'kvcache' of a side"),
    f"{COMPARE} --b text=code": (2, "no setting 'text' of a side"),
    f"{COMPARE} --b kv_cache=dinamic": (2, "no cache 'dinamic'"),
    f"{COMPARE} --b read=decoded": (2, "read is 'decoded'"),
    f"{COMPARE} --b read=decode=90": (2, "would be read one by one"),
    f"{COMPARE} --b kv_cache=static": (2, "no cache is read"),
    f"{COMPARE} --b kv_cache=static --b read=prefill": (2, "never reads from a cache"),
    f"{COMPARE} --b cache=nowhere:cache": (3, "cannot be imported"),
    f"{COMPARE} --b cache=math": (2, "cache is 'math'"),
    f"{COMPARE} --b kv_cache=static --b cache=math:pi": (2, "each name a cache"),
    **{
        f"compare {{model}} {{model}}{same} {M64} {options}": (2, "both sides are the same")
        for same in ("", "/", "/.", "/../model")
        for options in ("", "--sequential", "--dry-run")
    },
    "compare {model}": (2,),
    "compare {model} --out c --b read=decode": (2,),
}
REFUSED: dict[str, tuple[Any, ...]] = MODELS | BLANK | VALUES | LENGTHS | RECIPES | EXTENDING | SIDES


def files(folder: Path) -> list[Path]:
    """All but the lock of a folder that was a run's for a moment."""
    return [path for path in folder.rglob("*") if path.is_file() and path.name != ".lock"]


@pytest.mark.parametrize("words", REFUSED)
def test_a_wrong_command(words, lengthwise, shared, recipe, tmp_path):
    code, *expected = REFUSED[words]
    (tmp_path / "short.txt").write_text("the king and the queen")
    places = {
        "model": shared / "model",
        "text": shared / "text",
        "short": tmp_path / "short.txt",
        "recipe": recipe,
    }
    before = files(tmp_path)
    refused(lengthwise(*shlex.split(words.format(**places))), code, *expected)
    assert files(tmp_path) == before
