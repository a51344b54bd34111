import argparse

import numpy as np
import torch
from thinc.api import (
    Adam,
    Embed,
    PyTorchLSTM,
    PyTorchRNNWrapper,
    SequenceCategoricalCrossentropy,
    Softmax,
    chain,
    fix_random_seed,
    with_array,
    with_padded,
)
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--cell", choices=["lstm", "gru"], default="lstm")
parser.add_argument("--batch", type=int, default=16)
parser.add_argument("--epochs", type=int, default=8)
parser.add_argument("--rate", type=float, default=0.01)
args = parser.parse_args()
fix_random_seed(args.seed)
torch.manual_seed(args.seed)
random = np.random.RandomState(args.seed)


def draw(count):
    xs, ys = [], []
    for _ in range(count):
        words = random.randint(0, 20, random.randint(5, 14))
        before = np.concatenate([[0], words[:-1]])
        after = np.concatenate([words[1:], [0]])
        tags = (before < 7).astype(int) + (after > 13)
        xs.append(words.reshape(-1, 1).astype("uint64"))
        ys.append(np.eye(3, dtype="float32")[tags])
    return xs, ys


train_x, train_y = draw(700)
test_x, test_y = draw(1000)
if args.cell == "lstm":
    recurrent, width = PyTorchLSTM(32, 16, bi=True), 32
else:
    recurrent, width = with_padded(PyTorchRNNWrapper(nn.GRU(16, 16, bidirectional=True))), 32
model = chain(with_array(Embed(16, 20, column=0)), recurrent, with_array(Softmax(3, width)))
model.initialize(X=train_x[:5], Y=train_y[:5])
optimizer = Adam(args.rate)
loss = SequenceCategoricalCrossentropy(normalize=True)
for epoch in range(args.epochs):
    for some_x, some_y in model.ops.multibatch(args.batch, train_x, train_y, shuffle=True):
        predicted, backprop = model.begin_update(some_x)
        backprop(loss.get_grad(predicted, some_y))
        model.finish_update(optimizer)
    right = np.concatenate([(a.argmax(1) == b.argmax(1)) for a, b in zip(model.predict(test_x), test_y, strict=True)])
    print(epoch, right.mean())
print("metric accuracy", right.mean())
