"""Faults of models and losses, for the checks that look at them."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from check_models import Apply, RecurrentLM
from check_planting import after_head, before_head, change_samples, layers, planted
from check_programs import Program

BROADCAST = ("shape-broadcast-in-loss",)
SCALE = ("bad-initialization-scale",)
SYMMETRIC = ("symmetric-initialization", "bad-initialization-scale")
CUT = ("disconnected-parameters",)


@planted("output-shape", "regressor", "tabular", names=BROADCAST)
def one_column_against_none(p: Program) -> None:
    after_head(p, nn.Unflatten(1, (1, 1)))


@planted("output-shape", "siamese", names=BROADCAST)
def one_column_in_a_loss_by_hand(p: Program) -> None:
    after_head(p, nn.Unflatten(1, (1, 1)))

    def contrast(model: nn.Module, batch: list[Tensor]) -> Tensor:
        logits = model(batch[0], batch[1])
        return (F.softplus(logits) - logits * batch[2]).mean()

    p.step = contrast


@planted("output-shape", "forecaster", names=BROADCAST)
def time_before_channels(p: Program) -> None:
    change_samples(p, lambda series, following: (series, following.transpose(0, 1)))


@planted("output-shape", "denoiser", names=BROADCAST)
def channel_lost(p: Program) -> None:
    change_samples(p, lambda noisy, clean: (noisy, clean.squeeze(0)))


@planted("output-shape", "segmenter", names=BROADCAST)
def dice_of_masks_without_channel(p: Program) -> None:
    change_samples(p, lambda image, mask: (image, mask.squeeze(0)))

    def dice(logits: Tensor, masks: Tensor) -> Tensor:
        pixels = logits.sigmoid()
        return 1 - 2 * (pixels * masks).sum() / (pixels + masks).sum()

    p.loss = dice


@planted("output-shape", "tagger", "transformer", "mixer")
def classes_last(p: Program) -> None:
    loss = p.loss
    p.loss = lambda scores, targets: loss(scores.transpose(1, 2), targets)


@planted("output-shape", "images", names=("invalid-labels", "wrong-loss-for-task"))
def labels_as_floats(p: Program) -> None:
    change_samples(p, lambda image, label: (image, label.float()))


@planted("head-and-loss", "images", "tagger", "transformer", "recurrent", names=("softmax-before-cross-entropy",))
def softmax_before_cross_entropy(p: Program) -> None:
    after_head(p, nn.Softmax(-1))


@planted("head-and-loss", "tabular", "segmenter", "topics", "siamese", names=("sigmoid-before-bce-with-logits",))
def sigmoid_before_logits_loss(p: Program) -> None:
    after_head(p, nn.Sigmoid())


@planted("head-and-loss", "images", "mixer", names=("wrong-loss-for-task",))
def nll_of_logits(p: Program) -> None:
    p.loss = F.nll_loss


@planted("head-and-loss", "topics", "segmenter", names=("wrong-loss-for-task",))
def bce_of_logits(p: Program) -> None:
    p.loss = F.binary_cross_entropy


@planted("head-and-loss", "topics", names=("wrong-loss-for-task",))
def cross_entropy_of_several_labels(p: Program) -> None:
    p.loss = F.cross_entropy


@planted("head-and-loss", "regressor", "forecaster", names=("misplaced-activation",))
def relu_on_signed_targets(p: Program) -> None:
    after_head(p, nn.ReLU())


@planted("head-and-loss", "denoiser", names=("misplaced-activation",))
def sigmoid_on_signed_targets(p: Program) -> None:
    after_head(p, nn.Sigmoid())


@planted("first-loss", "images", "tagger", "recurrent", "topics", "denoiser", names=SCALE)
def loud_head(p: Program) -> None:
    p.model.head.weight.data *= 60


@planted("first-loss", "mixer", "tagger", "images", names=SCALE)
def one_class_preferred(p: Program) -> None:
    p.model.head.bias.data[0] = 12


@planted("first-loss", "tabular", "segmenter", "siamese", names=SCALE)
def one_answer_preferred(p: Program) -> None:
    p.model.head.bias.data[:] = -9


@planted("first-loss", "transformer", names=SCALE)
def tied_to_unit_embedding(p: Program) -> None:
    nn.init.normal_(p.model.embed.weight)
    p.model.head.weight = p.model.embed.weight


@planted("first-loss", "regressor", names=("unnormalized-inputs",))
def raw_targets(p: Program) -> None:
    change_samples(p, lambda features, target: (features, 150 + 77 * target))


@planted("initialisation", "images", "regressor", "topics", "siamese", names=SYMMETRIC)
def constant_weights(p: Program) -> None:
    for layer in layers(p, nn.Linear, nn.Conv2d):
        nn.init.constant_(layer.weight, 0.02)
        if layer.bias is not None:
            nn.init.zeros_(layer.bias)


@planted("initialisation", "transformer", "segmenter", "tabular", names=SYMMETRIC)
def two_layers_constant(p: Program) -> None:
    of = {"transformer": "blocks.0.feed.0 blocks.0.feed.2", "segmenter": "down.0 bottom.0 up join.0 head"}
    for name in of.get(p.kind, "first second head").split():
        nn.init.constant_(p.model.get_submodule(name).weight, 0.05)
        nn.init.zeros_(p.model.get_submodule(name).bias)


@planted("initialisation", "tagger", "recurrent", "denoiser", names=SYMMETRIC)
def zeros_everywhere(p: Program) -> None:
    body = p.model.encode if p.kind == "denoiser" else p.model.recur
    for parameter in body.parameters():
        nn.init.zeros_(parameter)


@planted("initialisation", "regressor", "denoiser", "tabular", "siamese", "transformer", names=SCALE)
def unit_normal_weights(p: Program) -> None:
    for layer in layers(p, nn.Linear, nn.Conv2d):
        nn.init.normal_(layer.weight)


@planted("initialisation", "denoiser", "siamese", "regressor", names=SCALE)
def tiny_weights(p: Program) -> None:
    for layer in layers(p, nn.Linear, nn.Conv2d):
        nn.init.normal_(layer.weight, std=1e-4)
        nn.init.zeros_(layer.bias)


@planted("input-dependence", "images", "topics")
def features_die(p: Program) -> None:
    before_head(p, lambda features: F.relu(features - 100))


@planted("input-dependence", "transformer")
def positions_only(p: Program) -> None:
    p.model.embed = nn.Sequential(p.model.embed, Apply(torch.zeros_like))


@planted("input-dependence", "regressor", "tabular", "siamese")
def norm_over_one_feature(p: Program) -> None:
    after_head(p, nn.LayerNorm(1))


@planted("input-dependence", "segmenter")
def softmax_over_one_channel(p: Program) -> None:
    after_head(p, nn.Softmax(1))


@planted("input-dependence", "siamese")
def left_against_left(p: Program) -> None:
    tower = p.model.tower
    p.model.compare = lambda left, _: (tower(left) - tower(left)).abs()


@planted("input-dependence", "recurrent", "mixer")
def every_word_unknown(p: Program) -> None:
    p.model.embed = nn.Sequential(Apply(lambda words: words.clamp(max=0)), p.model.embed)


@planted("input-dependence", "recurrent", "mixer")
def all_words_but_one_unknown(p: Program) -> None:
    embed = p.model.embed
    embed.weight.data[:2] = 0.1
    p.model.embed = nn.Sequential(Apply(lambda words: words.clamp(max=1)), embed)


@planted("input-dependence", "denoiser", "forecaster")
def code_overwritten(p: Program) -> None:
    before_head(p, torch.ones_like)


@planted("sample-leakage", "images", "tagger", "mixer")
def normalised_over_samples(p: Program) -> None:
    before_head(p, lambda features: F.normalize(features, dim=0))


@planted("sample-leakage", "tabular", "siamese", "denoiser")
def softmax_over_samples(p: Program) -> None:
    before_head(p, lambda features: features * features.softmax(0))


@planted("sample-leakage", "recurrent")
def time_and_samples_confused(p: Program) -> None:
    p.model.recur.batch_first = False


@planted("sample-leakage", "transformer")
def attention_over_samples(p: Program) -> None:
    block = p.model.blocks[0]
    attend = block.attend
    block.attend = lambda x: attend(x.transpose(0, 1)).transpose(0, 1)


@planted("sample-leakage", "segmenter")
def reshaped_over_samples(p: Program) -> None:
    before_head(p, lambda x: x.reshape(x.shape[1], x.shape[0], *x.shape[2:]).transpose(0, 1))


@planted("sample-leakage", "topics", "forecaster", "regressor")
def mean_of_samples_removed(p: Program) -> None:
    before_head(p, lambda features: features - features.mean(0))


@planted("activation-health", "images", "segmenter", names=("dead-relu",))
def norm_shifted_below_zero(p: Program) -> None:
    layers(p, nn.BatchNorm2d, nn.GroupNorm)[0].bias.data[:] = -8


@planted("activation-health", "topics", "tabular", "siamese", "forecaster", names=("dead-relu",))
def bias_below_zero(p: Program) -> None:
    of = {"topics": "hidden", "tabular": "second", "siamese": "tower.3", "forecaster": "layers.1.conv"}
    p.model.get_submodule(of[p.kind]).bias.data[:] = -25


@planted("activation-health", "regressor", names=("saturated-activations", "bad-initialization-scale"))
def loud_into_tanh(p: Program) -> None:
    p.model.body[0].weight.data *= 100


@planted("activation-health", "denoiser", names=("saturated-activations", "bad-initialization-scale"))
def loud_into_sigmoid(p: Program) -> None:
    p.model.encode[2] = nn.Sigmoid()
    p.model.encode[1].weight.data *= 100


@planted("activation-health", "tagger", "recurrent", names=("saturated-activations", "bad-initialization-scale"))
def loud_gates(p: Program) -> None:
    for parameter in p.model.recur.parameters():
        parameter.data *= 60


@planted("causality", "transformer", "mixer")
def no_mask(p: Program) -> None:
    for layer in p.model.blocks if p.kind == "transformer" else p.model.layers:
        if p.kind == "transformer":
            layer.mask = lambda length: torch.ones(length, length, dtype=torch.bool)
        else:
            layer.weights = lambda layer=layer: layer.over_time


@planted("causality", "transformer", "mixer")
def mask_off_by_one(p: Program) -> None:
    if p.kind == "transformer":
        p.model.blocks[1].mask = lambda length: torch.ones(length, length, dtype=torch.bool).tril(1)
    else:
        p.model.layers[1].weights = lambda: p.model.layers[1].over_time.tril(1)


@planted("causality", "recurrent")
def both_directions(p: Program) -> None:
    p.model = RecurrentLM(bidirectional=True)


@planted("causality", "forecaster")
def padded_on_both_sides(p: Program) -> None:
    for layer in p.model.layers:
        layer.padding = (layer.padding[0] // 2,) * 2


@planted("causality", "forecaster")
def one_layer_looks_ahead(p: Program) -> None:
    p.model.layers[0].padding = (1, 1)


@planted("causality", "recurrent", "forecaster")
def normalised_over_time(p: Program) -> None:
    time = 2 if p.kind == "forecaster" else 1
    before_head(p, lambda x: (x - x.mean(time, keepdim=True)) / (x.std(time, keepdim=True) + 1e-5))


@planted("causality", "transformer", "recurrent", "mixer", names=("missing-target-shift",))
def target_not_shifted(p: Program) -> None:
    change_samples(p, lambda tokens, _: (tokens, tokens))


@planted("gradients-reach", "images", "tagger", "topics", "forecaster", names=CUT)
def features_detached(p: Program) -> None:
    before_head(p, lambda features: features.detach())


@planted("gradients-reach", "tabular", names=CUT)
def categories_left_out(p: Program) -> None:
    p.model.join = lambda numbers, _: F.pad(numbers, (0, 8))


@planted("gradients-reach", "segmenter", names=CUT)
def coarse_path_left_out(p: Program) -> None:
    p.model.up = nn.Sequential(p.model.up, Apply(torch.zeros_like))


@planted("gradients-reach", "transformer", "mixer", names=CUT)
def feed_forward_detached(p: Program) -> None:
    layer = (p.model.blocks if p.kind == "transformer" else p.model.layers)[0]
    layer.feed = nn.Sequential(layer.feed, Apply(lambda x: x.detach()))


@planted("gradients-reach", "siamese", names=CUT)
def tower_without_gradients(p: Program) -> None:
    tower = p.model.tower

    def compare(left: Tensor, right: Tensor) -> Tensor:
        with torch.no_grad():
            return (tower(left) - tower(right)).abs()

    p.model.compare = compare


@planted("gradients-reach", "denoiser", names=(*CUT, "vanishing-gradients"))
def code_rounded(p: Program) -> None:
    p.model.encode.append(Apply(torch.round))


@planted("gradients-reach", "regressor", names=("vanishing-gradients",))
def deep_sigmoids(p: Program) -> None:
    p.model.body = nn.Sequential(
        nn.Linear(10, 32), *(m for _ in range(14) for m in (nn.Sigmoid(), nn.Linear(32, 32))), nn.Sigmoid()
    )


@planted("initialisation", "denoiser", names=("exploding-gradients", "bad-initialization-scale"))
def deep_and_loud(p: Program) -> None:
    deep = [m for _ in range(12) for m in (nn.Linear(64, 64), nn.LeakyReLU())]
    for layer in deep[::2]:
        layer.weight.data *= 8
    p.model.decode.extend(deep)


@planted("mode-switch", "images", "transformer", "tabular", "tagger", "regressor")
def dropout_that_never_ends(p: Program) -> None:
    before_head(p, lambda features: F.dropout(features, 0.4))


@planted("mode-switch", "segmenter", "topics", "mixer")
def dropout_in_a_plain_list(p: Program) -> None:
    unseen = [nn.Dropout(0.3)]
    before_head(p, lambda features: unseen[0](features))


@planted("mode-switch", "denoiser", "forecaster")
def noise_in_both_modes(p: Program) -> None:
    before_head(p, lambda features: features + 0.3 * torch.randn_like(features))


class Probabilities(nn.Module):
    """Scores while training, probabilities afterwards."""

    def forward(self, scores: Tensor) -> Tensor:
        return scores if self.training else scores.sigmoid() if scores.shape[-1] == 1 else scores.softmax(-1)


@planted("mode-switch", "images", "tabular", "recurrent")
def probabilities_in_evaluation(p: Program) -> None:
    after_head(p, Probabilities())


class ScaledInTraining(nn.Module):
    def forward(self, features: Tensor) -> Tensor:
        return features * 0.1 if self.training else features


@planted("mode-switch", "regressor", "siamese", "segmenter")
def scaled_in_training_only(p: Program) -> None:
    p.model.head = nn.Sequential(ScaledInTraining(), p.model.head)


@planted("mode-switch", "images", "transformer", "tabular")
def mode_that_reaches_no_layer(p: Program) -> None:
    class Stuck(type(p.model)):
        def train(self, mode: bool = True) -> nn.Module:
            self.training = mode
            return self

    p.model.__class__ = Stuck
