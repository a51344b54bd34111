"""Which way a metric is better, read off the words of its name."""

from __future__ import annotations

import re

SCORES = frozenset(
    [
        *("acc", "accuracy", "ap", "ar", "auc", "auroc", "aupr", "auprc", "aucpr", "map", "mar", "f1", "f2"),
        *("fbeta", "fscore", "dice", "dsc", "iou", "miou", "giou", "jaccard", "precision", "recall", "sensitivity"),
        *("specificity", "ppv", "npv", "tpr", "tnr", "mcc", "kappa", "correct", "top", "pass", "exact", "em"),
        *("success", "win", "winrate", "elo", "dcg", "ndcg", "mrr", "hit", "hits", "lrap", "lwlrap", "bleu"),
        *("sacrebleu", "rouge", "rougel", "rougelsum", "meteor", "cider", "spice", "chrf", "comet", "bertscore"),
        *("bleurt", "r2", "correlation", "corr", "pearson", "pearsonr", "spearman", "spearmanr", "kendall"),
        *("concordance", "cindex", "explained", "similarity", "psnr", "ssim", "msssim", "snr", "sdr", "sisdr"),
        *("sisnr", "stoi", "pesq", "pck", "pckh", "inception", "nmi", "ari", "ami", "silhouette", "purity"),
        *("reward", "rewards", "return", "returns", "likelihood", "elbo", "throughput", "fps", "speedup"),
    ]
)
LOSSES = frozenset(
    [
        *("loss", "losses", "err", "error", "errors", "mse", "mae", "rmse", "msle", "rmsle", "nmse", "nrmse"),
        *("nmae", "mape", "smape", "mase", "wape", "rmsd", "residual", "residuals", "ce", "bce", "xent"),
        *("crossentropy", "entropy", "logloss", "nll", "bits", "bpb", "bpc", "bpd", "perplexity", "ppl", "kl"),
        *("kld", "jsd", "divergence", "deviance", "aic", "bic", "wer", "cer", "ter", "eer", "der", "mindcf"),
        *("levenshtein", "edits", "miss", "misses", "false", "fpr", "fnr", "fdr", "frr", "brier", "ece", "mce"),
        *("crps", "pinball", "calibration", "fid", "kid", "fvd", "fad", "lpips", "mmd", "emd", "wasserstein"),
        *("chamfer", "hausdorff", "hd95", "assd", "distance", "hamming", "discrepancy", "epe", "ade", "fde", "rpe"),
        *("mpjpe", "mcd", "pehe", "cost", "costs", "regret", "penalty", "violation", "violations", "forgetting"),
        *("gap", "latency", "time", "runtime", "memory", "overhead"),
    ]
)
"""A miscalibration is meant by calibration, as in "calibration error"."""
WEAK_SCORES = frozenset({"score", "scores"})
"""A Brier score is a loss and an inception score is none: this word counts where no other says more."""
SIDES = frozenset(["train", "training", "val", "valid", "validation", "test", "eval", "dev", "holdout", "epoch"])
CONDITION = frozenset({"at", "over", "per", "by", "vs", "on", "for", "under", "given"})
"""What follows is not what is measured: recall at a false positive rate, accuracy over time."""
_PART = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+\d*|[A-Z]+\d*|\d+")
_NEGATED = re.compile(r"(?:^| )neg(?:ative)? (?:mean|root|median|max|log|brier|likelihood|elbo)(?: |$)")
"""A metric turned round, such as scikit-learn's neg_mean_squared_error, or a negative log likelihood. A negative by
itself is none: negative_recall is that of a class, and negative_loss that of pairs."""


def read_direction(name: str) -> bool | None:
    """Whether more of it is better; None where no word of its name is known. The last one that is known decides, as
    English has it: dice_loss is a loss, cancer_auc a score. loss_dice, which begins with that word, is a loss, too."""
    words = split_name(name)
    head = words[: next((i for i, word in enumerate(words) if word in CONDITION and i), None)]
    found = _read_words(head)
    if found is None:
        found = _read_words(words)
    return not found if found is not None and _NEGATED.search(" ".join(words)) else found


def is_higher_better(name: str) -> bool:
    """As most metrics are that somebody made up a name for."""
    return read_direction(name) is not False


def split_name(name: str) -> list[str]:
    """val/topAcc_5, valTopAcc@5 and val-top.acc are told by the same words: capitals, digits and signs part them."""
    words: list[str] = []
    for segment in re.split(r"[^A-Za-z0-9@]+", name.replace("IoU", "Iou").replace("@", "_at_")):
        whole = segment.lower()
        # mAP and rougeL are words, though a capital stands inside.
        words += [whole] if _standing(whole) is not None else [part.lower() for part in _PART.findall(segment)]
    return words


def _read_words(words: list[str]) -> bool | None:
    first = next((word for word in words if word not in SIDES), None)
    if first == "loss":
        return False
    known = [standing for word in words if (standing := _standing(word)) is not None]
    if known:
        return known[-1]
    return True if WEAK_SCORES.intersection(words) else None


def _standing(word: str) -> bool | None:
    for spelling in (word, word.rstrip("0123456789")):  # r2 and hd95 are words, ap50 and bleu4 are words and a number
        if spelling in SCORES or spelling in LOSSES:
            return spelling in SCORES
    return None
