"""What the lab found, as tables."""

from lengthwise.report.writers import to_markdown
from lengthwise.results import Results, Row
from tools.docs.lab_tables import called_table, faults_table, nulls_table, sound_table

CALLED = {"growing": 1, "from a place": 2}


def found() -> Results:
    def rows(task: str, arm: str, **values: float) -> list[Row]:
        return [
            Row(model="m", task=task, arm=arm, metric=name, value=value) for name, value in values.items()
        ]

    shares = {"called different": 0.02, "covered": 0.95}
    return Results(
        kind="lab",
        model_name="m",
        rows=[
            *rows("lab", "cache", planted=8, pairs=3, right=2, least=0.004, most=1.0, tolerance=1e-4),
            *rows("called", "cache", **CALLED),
            *rows("sound", "bfloat16", pairs=9, right=9, least=0.0, most=0.0123, tolerance=0.02),
            *rows("null", "4 documents", **shares),
        ],
        config={"examples": {"cache": ["forgets 100", "B is equal up to 128 tokens. That is a cache."]}},
    )


def test_a_kind_of_faults_with_its_example() -> None:
    [line] = [line for line in to_markdown(faults_table(found())).splitlines() if line.startswith("| cache")]
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    assert cells[:3] == ["cache", "8", "2 of 3"]
    assert float(cells[3]) == 0.004
    assert cells[4:] == ["forgets 100", "B is equal up to 128 tokens."]


def test_what_faults_are_called() -> None:
    text = to_markdown(called_table(found()))
    assert "| kind | from a place | growing |" in text
    assert "| cache | 2 | 1 |" in text


def test_sound_pairs_by_precision() -> None:
    assert "| bfloat16 | 9 of 9 | 0.012 | 0.02 |" in to_markdown(sound_table(found()))


def test_simulations_by_documents() -> None:
    assert "| 4 documents | 2 % | 95 % |" in to_markdown(nulls_table(found()))
