"""Which way a metric is better: whole words of its name decide, and a guess is called one."""

from __future__ import annotations

import pytest

from torchdoctor.attach.target import FILE, Target
from torchdoctor.experiments.directions import is_higher_better, read_direction
from torchdoctor.experiments.metrics import LOGGED, Metric, choose
from torchdoctor.experiments.seed_passing import OVERRIDE, Passing
from torchdoctor.experiments.seed_reading import Reader, read_spread
from torchdoctor.experiments.seeds import FINISHED, Outcome
from torchdoctor.experiments.variants import Variant

HIGHER = """
cancer_auroc answer_f1 certified_accuracy uncertainty_auc terrain_iou val_cancer_auc val/Acc valF1 F1Score mAP mAP50-95
metrics/mAP50(B) mIoU valIoU recall@5 tpr_at_fpr5 precision@recall0.9 hits@10 pass@1 top1 top5_acc eval_rougeL ROUGE-1
bleu4 R2 r2_score hearing_loss_auc neg_mean_squared_error accuracy_over_time log_likelihood mean_reward win_rate
val_score accuracy.validation exact_match cosine_similarity si_sdr PSNR dice_coefficient negative_recall
"""
LOWER = """
eer mase crps lpips latency hamming val_loss valLoss loss.validation NLLLoss dice_loss loss_giou train/loss_bbox
val/loss_dice top1_error error_rate WER val_cer FID fid_score brier_score hd95 fpr@95tpr false_positive_rate
bits_per_byte loss_per_token neg_log_likelihood negative_elbo RMSE val_mae perplexity expected_calibration_error
inference_time crossEntropy log_loss kl_div hamming_distance negative_loss
"""


@pytest.mark.parametrize("name", HIGHER.split())
def test_scores(name: str) -> None:
    assert read_direction(name) is True


@pytest.mark.parametrize("name", LOWER.split())
def test_losses(name: str) -> None:
    assert read_direction(name) is False


@pytest.mark.parametrize("name", ["fidelity", "mother", "val_thing", "certainty", "terrain", ""])
def test_letters_inside_a_word_say_nothing(name: str) -> None:
    assert read_direction(name) is None and is_higher_better(name)


def outcome(name: str, seed: int, value: float, metric: str) -> Outcome:
    metrics = {metric: Metric(metric, LOGGED, value, value - 1, value + 1, 3)}
    return Outcome(name, seed, FINISHED, metrics=metrics, beginning=f"{name}{seed}")


def read(metric: str, reader: Reader):  # type: ignore[no-untyped-def]
    both = [Variant(name, Target(FILE, "train.py"), Passing(OVERRIDE)) for name in "ab"]
    gains = {"a": 0.70, "b": 0.90}
    runs = [outcome(n, s, g + 0.001 * s * (n == "b"), metric) for n, g in gains.items() for s in range(4)]
    return read_spread(both, runs, reader)


def test_more_of_a_score_is_better_whatever_letters_are_in_its_name() -> None:
    result = read("val_cancer_auc", Reader())
    assert result.verdict.startswith("b is better than a") and result.notes == []


def test_a_guess_is_called_one_and_how_to_say_it() -> None:
    guessed = read("val_fidelity", Reader())
    assert guessed.verdict.startswith("b is better than a")
    assert any("a guess" in note and "--goal min" in note for note in guessed.notes)
    told = read("val_fidelity", Reader(higher_is_better=False))
    assert told.verdict.startswith("b is worse than a") and told.notes == []


def test_the_best_value_is_taken_in_the_direction_that_was_said() -> None:
    result = read("val_fidelity", Reader(which="best", higher_is_better=False))
    assert [run["val_fidelity"] for run in result.variants[0].per_run] == result.variants[0].values


def test_a_metric_that_tells_its_direction_is_chosen_before_one_that_does_not() -> None:
    names = ["val_thing", "val_loss", "val_acc"]
    metrics = {n: Metric(n, LOGGED, 1.0, 1.0, 1.0, 1) for n in names}
    assert choose([metrics])[0] == "val_acc"
    del metrics["val_acc"]
    assert choose([metrics])[0] == "val_loss"
