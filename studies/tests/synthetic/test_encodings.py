import torch

from lengthwise_studies.synthetic.encodings import ENCODINGS, t5_buckets

HEADS, WIDTH = 4, 32


def test_t5_buckets_are_those_of_transformers():
    from transformers.models.t5.modeling_t5 import T5Attention

    distances = torch.arange(-3, 400)
    theirs = T5Attention._relative_position_bucket(
        -distances, bidirectional=False, num_buckets=32, max_distance=128
    )
    assert torch.equal(t5_buckets(distances), theirs)


def test_sinusoidal_vectors_at_hand_computed_places():
    encoding = ENCODINGS["sinusoidal"](width=4, heads=1, table=8)
    vectors = encoding.embed(torch.zeros(1, 1, 3, 4), {}, torch.tensor([[[0, 1, 100]]]))
    expected = torch.tensor(
        [[0, 0, 1, 1], [0.841471, 0.0099998, 0.540302, 0.99995], [-0.506366, 0.841471, 0.862319, 0.540302]]
    )
    assert torch.allclose(vectors[0, 0], expected, atol=1e-5)


def test_randomised_ids_are_distinct_sorted_and_even_over_the_table():
    ids = ENCODINGS["randomised"](width=WIDTH, heads=HEADS, table=40).draw(
        4000, 5, torch.Generator().manual_seed(0)
    )
    assert (ids.diff(dim=-1) > 0).all()
    counts = ids.flatten().bincount(minlength=40)
    assert len(counts) == 40
    # Each id is drawn with probability 5 / 40 by each sample: 500 expected, standard deviation 21.
    assert (counts - 500).abs().max() < 100
