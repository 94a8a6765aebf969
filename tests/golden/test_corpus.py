"""Two public, labelled hangs of a real 16-rank Megatron job on NCCL, where they are at hand beside the repository."""

import json
from pathlib import Path

import pytest

from ncclprobe import workflow

CORPUS = Path(__file__).parents[3] / "shared" / "corpus" / "megatron-moe"

pytestmark = pytest.mark.skipif(not CORPUS.is_dir(), reason="the corpus of real dumps is not part of the repository")


@pytest.mark.parametrize(("name", "cause"), [("hang-a", "stuck-in-python"), ("hang-b", "stuck-in-cuda")])
def test_the_exact_guilty_set_and_nobody_else(name: str, cause: str) -> None:
    truth = json.loads((CORPUS / "truth.json").read_text())[name]
    verdict = workflow.analyze(CORPUS / name).verdict
    assert list(verdict.guilty_ranks) == truth["guilty_ranks"]
    assert verdict.cause == cause
    assert cause in truth["also_accept_causes"]
