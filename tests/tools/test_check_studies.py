"""What `make check-studies` calls a study that ended well."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from checks.studies import __main__ as check


def study(words: Sequence[str]) -> int:
    """A study that ends as its name says."""
    name, out = words[1], Path(words[words.index("--out") + 1])
    print(f"{name} begins")
    if name != "nothing":
        out.mkdir(parents=True)
        (out / "report.html").write_text("")
    if name == "killed":
        while True:
            pass
    if name == "raises":
        raise ValueError("no such thing")
    return 2 if name == "refused" else 0


def test_a_study_is_good_with_exit_code_0_and_a_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "lengthwise", study)
    monkeypatch.setattr(check, "MOST_SECONDS", 1)
    names = ["well", "refused", "nothing", "raises", "killed"]
    found = {one.name: one for one in check.run_all(names, tmp_path, tmp_path / "data", jobs=2)}
    codes = {name: one.code for name, one in found.items()}
    assert codes["killed"] < 0
    assert codes == {"well": 0, "refused": 2, "nothing": 0, "raises": 1, "killed": codes["killed"]}
    assert [one.name for one in found.values() if one.good] == ["well"]
    assert found["well"].said == "well begins"
    assert "no such thing" in found["raises"].said
    # Of a processor, where the kernel counts in ticks.
    assert 0.5 < found["killed"].seconds < 2
