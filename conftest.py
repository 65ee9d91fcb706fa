"""Fixtures of all tests, those of the studies too."""

from __future__ import annotations

import importlib.metadata
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

import lengthwise

# Before anything imports torch. Programs that tests start have one thread; sums with two differ in the last digit.
# They compute on the processor where there is a GPU too: their oracles do. `checks/gpu.sh` is for the GPU.
os.environ |= {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}

TESTS = Path(__file__).parent / "tests"
MAIN = Path(lengthwise.__file__).with_name("__main__.py")


# Tests of what some versions of transformers, or of a package that is named, lack or do wrongly, by the beginning of
# their ids in tests/: those versions, and what is in them. There they are skipped, and `lengthwise.versions` or
# `doctor` speaks.
LACKING = {
    "checkpoints/test_gguf": ("<5.18", "GGUF is refused"),
    "checkpoints/test_gguf.py::test_a_file_that_asks_for_bos_gets_it_once": ("<5.23", "refused"),
    "checkpoints/test_gguf_settings.py::test_what_is_not_rebuilt_is_refused[a weight of another shape]": (
        "<5.23",
        "refused as a checkpoint is, once it is converted",
    ),
    "training/test_training_run.py::test_a_model_whose_code": (
        "<5.23",
        "it fails elsewhere, or can be trained",
    ),
    "checkpoints/test_local_positions.py::test_positions_are_asked_for_without": (
        "<5.23",
        "no such architecture",
    ),
    **{
        f"checkpoints/{test}": (versions, "no such architecture, or another rope of it")
        for test, versions in {
            "test_causal.py::test_what_transformers_loads[gemma4]": "<5.5",
            "test_causal.py::test_what_transformers_loads[qwen3_5]": "<5.2",
            "test_doctor_files.py::test_keys_that_no_class_reads_are_named[hunyuan": "<5.1",
            "test_doctor_files.py::test_keys_that_no_class_reads_are_named[phimoe": "<5.5,!=5.1.*,!=5.2.*,!=5.3.*",
            "test_doctor_files.py::test_keys_that_no_class_reads_are_named[qwen3_5": "<5.4",
            "test_doctor_files.py::test_what_is_one_for_all_lengths[hunyuan": "<5.20",
            "test_published.py::test_it_goes_on_as_if_the_greater_factor_were_written_by_hand[internlm3": "<5.23",
            "test_published.py::test_it_goes_on_as_if_the_greater_factor_were_written_by_hand[exaone4": "<5.1",
            "test_published.py::test_a_fixed_alpha_is_plain_rope_of_another_base": "<5.1",
            "test_published.py::test_it_goes_on_as_if_the_greater_factor_were_written_by_hand[apertus": "<5.1",
            "test_published.py::test_what_an_extension_would_not_reach[granite_swa": "<5.15",
            "test_published.py::test_what_an_extension_would_not_reach[exaone4": "<5.1",
        }.items()
    },
    # Its OLMo takes `tie_word_embeddings` as a whole number alone, also from a checkpoint's settings.
    **{
        f"checkpoints/{test}olmo2]": ("==5.4.*", "OLMo's own settings are refused by transformers")
        for test in (
            "test_hidden.py::test_only_the_last_logits_are_formed_and_no_cache[",
            "test_doctor.py::TestNulls::test_every_architecture[",
            "test_doctor.py::TestNulls::test_extended_architectures[",
            "test_head.py::test_head_gives_the_models_own_logits[dtype0-1e-14-",
            "test_head.py::test_head_gives_the_models_own_logits[dtype1-1e-06-",
            "test_head.py::test_head_gives_the_models_own_logits[dtype2-0.02-",
        )
    },
    "positions/test_sampler_battery.py::test_gradients_are_finite_and_the_same_with_checkpointing": (
        "<5.23",
        "sliding layers are refused",
    ),
    "examples/test_longrope_search.py": ("<5.21", "longrope of one type of layers is refused"),
    "subjects/test_no_state.py::test_a_branch_through_a_cache_is_its_whole_sequence_alone[fp8": (
        "<5.21",
        "this cache is refused",
    ),
    "subjects/test_generated_alike.py::test_a_path_gives_what_generate_computes": (
        "<5.23",
        "behind LongRoPE's switch, generate reads each token alone",
    ),
    "cli/test_compare.py::test_thresholds": ("<5.4", "the cache is refused"),
    "tools/test_tutorials.py::test_it_runs_in_small[compare]": ("<5.4", "a cache is refused"),
    "test_zoo.py::test_a_verb_says_what_the_plain_forward_pass_says[jamba": (
        "<5.5",
        "it needs Mamba's kernels",
    ),
    "test_zoo.py::test_a_verb_says_what_the_plain_forward_pass_says[bamba": ("<5.5", "refused"),
    "test_zoo.py::test_a_verb_says_what_the_plain_forward_pass_says[bamba: compare, chunks": (
        "<5.14",
        "a fault of transformers",
    ),
    "test_zoo.py::test_a_verb_says_what_the_plain_forward_pass_says[rembert": (
        ">=5.9,<5.18",
        "refused: a token sees later ones",
    ),
    "checkpoints/test_local_positions.py::test_gradients_are_the_same_with_checkpointing": (
        "<5.23",
        "refused",
    ),
    "checkpoints/test_local_positions.py::test_an_extension_of_the_full_layers_stays[yarn]": (
        "<5.9",
        "refused",
    ),
    "checkpoints/test_layer_types.py::test_only_full_attention_is_extended_and_survives_saving[yarn]": (
        "<5.9",
        "refused",
    ),
    "checkpoints/test_layer_types.py::test_only_full_attention_is_extended_and_survives_saving[longrope]": (
        "<5.21",
        "refused",
    ),
    "checkpoints/test_layer_types.py::test_what_cannot_be_extended": ("<5.9", "yarn is refused before"),
    "checkpoints/test_doctor.py::TestNulls::test_extended_architectures[gemma3-text]": ("<5.9", "refused"),
    "checkpoints/test_doctor.py::TestFaults::test_frequencies_rounded[proportional]": (
        "<5.5",
        "no such rope",
    ),
    "checkpoints/test_doctor.py::TestNulls::test_every_type_of_transformers[proportional]": (
        "<5.5",
        "no such rope",
    ),
    "checkpoints/test_doctor.py::TestNulls::test_every_type_of_transformers[dynamic]": (
        "<5.13",
        "a fault: the frequencies of a long text stay",
    ),
    "checkpoints/test_doctor.py::TestNulls::test_ropes_of_their_own[hunyuan_v1_dense-64-rope0]": (
        "<5.1",
        "a fault: the model is made without its alpha",
    ),
    # Their own classes of caches: "no key-value cache that can be continued". Zamba2: a token sees later ones.
    **{
        f"subjects/{test}{model}": (versions, "refused")
        for model, versions in {"bamba": "<5.5", "jamba": "<5.5", "zamba2": "<5.15", "lfm2": "<5.5"}.items()
        for test in (
            "test_no_state.py::test_what_was_read_before_changes_nothing[texts-",
            "test_no_state.py::test_what_was_read_before_changes_nothing[branches-",
            "test_writing.py::test_replies_are_those_of_plain_passes[",
            "test_writing.py::test_what_is_read_slowly_is_said_once[",
        )
    },
    "subjects/test_writing.py::test_what_is_read_slowly_is_said_once[sliding and full layers": (
        "<5.17",
        "it warns of its keys",
    ),
    "subjects/test_writing.py::test_what_is_read_slowly_is_said_once[dynamic": (
        "<5.5",
        "it warns of its keys",
    ),
    # The caches of the lab, which change the masks as newer ones do.
    **{
        f"measure/test_planted_faults.py::test_what_is_said[{cache}": ("<5.4", "other masks")
        for cache in ("cache", "part: old values of one head", "part: two blocks of a cache")
    },
    "checkpoints/test_faults.py::test_what_is_written_and_not_obeyed_is_said_beside_the_numbers[a section of a": (
        "<5.1",
        "refused",
    ),
    "subjects/test_placement.py::test_places_that_exclude_each_other[placed0]": (
        "<5.16",
        "tp_plan is refused",
    ),
    "subjects/test_placement.py::test_processes_that_cannot_share_the_heads": ("<5.16", "tp_plan is refused"),
    "checkpoints/test_doctor.py::TestFaults::test_settings_beside_the_types_of_layers[beside3-False]": (
        "<5.9",
        "yarn is refused before",
    ),
    # Found on 5.0 and not on 5.23; those between were not tried.
    "checkpoints/test_faults.py::test_weights_in_8_bits_with_their_scales_are_read": ("<5.23", "refused"),
    **dict.fromkeys(
        (
            "checkpoints/test_doctor.py::TestNulls::test_windows_that_are_named_otherwise",
            "checkpoints/test_local_positions.py::test_layers_that_take_no_position_ids_are_refused",
            "checkpoints/test_position_limits.py::test_a_table_of_an_image_is_none_of_a_text[phi4_multimodal",
            "checkpoints/test_published.py::test_what_it_reaches_in_some_layers[zaya",
            "checkpoints/test_published.py::test_what_was_extended_is_read_and_examined[doge",
            "subjects/test_plan.py::test_the_cache_of_layers_that_differ[gemma4_text",
            "training/test_merging.py::test_a_model_that_fails_with_its_own_cache_is_merged",
        ),
        ("<5.23", "no such model, or it fails"),
    ),
    **{
        f"test_zoo.py::test_a_variant_is_another_model[{kind}": ("<5.23", "no such model, or it fails")
        for kind in ("exaone4", "gemma4", "gpt_neox", "hunyuan", "internlm3", "olmo3", "phimoe", "zaya")
    },
    "training/test_beside_text.py": ("<5.23", "models of images ask for what only images have"),
    "checkpoints/test_doctor.py::TestAdapters::test_that_has_no_pair_of_matrices[UniLora": (
        "peft<0.19",
        "no such method",
    ),
    "training/test_sharded.py": ("<5.16", "FSDP before 5.10, and tp_plan, are refused"),
    "training/test_sharded.py::test_an_adapter_is_resumed": ("<5.18", "resuming it on CPUs is refused"),
    "training/test_trainer.py::test_alpha_0_is_a_plain_trainer_on_both_windows": (
        "<5.10",
        "the plain one shuffles, or divides by labels that nothing predicts",
    ),
    "training/test_trainer.py::test_windows_are_read_in_their_order": ("<5.2", "no choice of an order"),
    "examples/test_examples.py": ("<5.2", "no choice of an order"),
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest first, so that no worker is left alone with the study at the end; tests of newer versions skipped.

    The study comes first and what needs a model last: on a new machine the study pretrains tiny-books for minutes,
    and others would wait for it.
    """
    items.sort(key=_place)
    for begin, (versions, what) in LACKING.items():
        lacking = Requirement(versions if versions[0].isalpha() else f"transformers{versions}")
        if lacking.specifier.contains(importlib.metadata.version(lacking.name), prereleases=True):
            skip = pytest.mark.skip(reason=f"{lacking}: {what}")
            for item in items:
                if item.nodeid.startswith(f"tests/{begin}"):
                    item.add_marker(skip)


def _place(item: pytest.Item) -> int:
    if item.path.name == "test_tiny_books.py":
        return 0
    slow, real = (item.get_closest_marker(name) is not None for name in ("slow", "real"))
    return 2 * real + (not slow) + 1


@dataclass(frozen=True)
class Outcome:
    """What a command did: exit code, standard output, standard error."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


class Started:
    """A program in a process of its own, forked from one with the imports done (`fork_server.py`)."""

    def __init__(
        self,
        ask: Callable[[dict[str, Any]], Any],
        words: list[str],
        folder: Path,
        environment: dict[str, str] | None = None,
    ) -> None:
        self._ask = ask
        self._files = folder / "out", folder / "err"
        self.returncode: int | None = None
        self.pid: int = ask(
            {
                "words": words,
                "out": str(self._files[0]),
                "err": str(self._files[1]),
                "environment": os.environ | (environment or {}),
                "folder": os.getcwd(),
            }
        )

    @property
    def out(self) -> str:
        """Standard output so far."""
        return self._files[0].read_text()

    @property
    def err(self) -> str:
        """Standard error so far."""
        return self._files[1].read_text()

    def poll(self) -> int | None:
        """The exit code, or None while it runs."""
        if self.returncode is None:
            self.returncode = self._ask({"process": self.pid, "poll": True})
        return self.returncode

    def wait(self, *, signal_at: tuple[signal.Signals, Path, int] | None = None) -> Started:
        """Until it ends; with `signal_at`, send the signal once the file has so many lines."""
        if signal_at is not None:
            number, file, lines = signal_at
            while not (file.exists() and file.read_bytes().count(b"\n") >= lines):
                assert self.poll() is None, (self.returncode, self.out, self.err)
                time.sleep(0.005)
            os.kill(self.pid, number)
        self.returncode = self._ask({"process": self.pid, "poll": False})
        return self


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache folder."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("LENGTHWISE_CACHE", str(folder))
    return folder


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    """No network, here and in programs that are started. TRL counts its uses there unless told not to."""
    import huggingface_hub.constants

    for name in ("HF_HUB_OFFLINE", "HF_HUB_DISABLE_TELEMETRY"):
        monkeypatch.setenv(name, "1")
        monkeypatch.setattr(huggingface_hub.constants, name, True)
    monkeypatch.setenv("HF_DATASETS_OFFLINE", "1")


@pytest.fixture
def no_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loading a model is a failure."""

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("weights were loaded")

    monkeypatch.setattr("lengthwise.subjects.loaded_model.load", refuse)


@pytest.fixture
def lengthwise(capfd: pytest.CaptureFixture[str]) -> Callable[..., Outcome]:
    """Run the command in this process: `lengthwise("measure", model, "--json")`."""

    def call(*arguments: object) -> Outcome:
        from lengthwise.cli.main import run

        capfd.readouterr()
        code = run([*map(str, arguments)])
        out, err = capfd.readouterr()
        return Outcome(code, out, err)

    return call


@pytest.fixture(scope="session")
def _fork_server() -> Iterator[Callable[[dict[str, Any]], Any]]:
    command = [sys.executable, str(TESTS / "fork_server.py")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        sink, source = server.stdin, server.stdout

        def ask(request: dict[str, Any]) -> Any:
            sink.write(json.dumps(request) + "\n")
            sink.flush()
            return json.loads(source.readline())

        yield ask


@pytest.fixture
def start(
    _fork_server: Callable[[dict[str, Any]], Any], tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., Started]:
    """Start the command line, or a Python file: `start("ppl", model)`, `start("x", program=file)`."""

    def call(*arguments: object, program: Path = MAIN) -> Started:
        words = [str(program), *map(str, arguments)]
        return Started(_fork_server, words, tmp_path_factory.mktemp("started"))

    return call


@pytest.fixture
def start_ranks(
    _fork_server: Callable[[dict[str, Any]], Any], tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., str]:
    """Run a Python file in two processes of one group, as torchrun would: `start_ranks(file, argument)`.

    Gives the standard output of the first.
    """

    def call(program: Path, *arguments: object) -> str:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        group = {
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
            "WORLD_SIZE": "2",
            "LOCAL_WORLD_SIZE": "2",
        }
        words = [str(program), *map(str, arguments)]
        ranks = [
            Started(
                _fork_server,
                words,
                tmp_path_factory.mktemp(f"rank-{rank}"),
                group | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
            )
            for rank in range(2)
        ]
        # One that has failed leaves the other waiting for it, and both may wait for ever.
        until = time.monotonic() + 600
        while None in (codes := [rank.poll() for rank in ranks]) and not any(codes):
            if time.monotonic() > until:
                break
            time.sleep(0.02)
        for rank, code in zip(ranks, codes, strict=True):
            if code is None:
                os.kill(rank.pid, signal.SIGKILL)
                rank.wait()
        assert codes == [0, 0], "".join(
            rank.err[-4000:] for rank, code in zip(ranks, codes, strict=True) if code != 0
        )
        return ranks[0].out

    return call
