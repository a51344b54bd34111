import argparse

import torch
from ignite.engine import Events, create_supervised_evaluator, create_supervised_trainer
from ignite.metrics import ConfusionMatrix, IoU, Loss, mIoU
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--lr", type=float, default=0.005)
parser.add_argument("--epochs", type=int, default=8)
args = parser.parse_args()
torch.manual_seed(args.seed)


def make(count, size=20):
    images = 0.3 * torch.randn(count, 1, size, size)
    masks = torch.zeros(count, size, size, dtype=torch.long)
    for image, mask in zip(images, masks, strict=True):
        for kind in (1, 2):
            top, left = torch.randint(0, size - 8, (2,)).tolist()
            image[0, top : top + 8, left : left + 8] = torch.randn(8, 8) * 0.3 + (1.0 if kind == 1 else -1.0)
            mask[top : top + 8, left : left + 8] = kind
    return TensorDataset(images, masks)


model = nn.Sequential(
    nn.Conv2d(1, 12, 3, padding=1),
    nn.BatchNorm2d(12),
    nn.ReLU(),
    nn.Conv2d(12, 12, 3, padding=2, dilation=2),
    nn.BatchNorm2d(12),
    nn.ReLU(),
    nn.Conv2d(12, 3, 1),
)
optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
criterion = nn.CrossEntropyLoss()
train_loader = DataLoader(make(256), batch_size=16, shuffle=True)
val_loader = DataLoader(make(160), batch_size=32)

matrix = ConfusionMatrix(num_classes=3)
trainer = create_supervised_trainer(model, optimizer, criterion)
evaluator = create_supervised_evaluator(
    model, metrics={"iou": IoU(matrix), "mean_iou": mIoU(matrix), "loss": Loss(criterion)}
)
trainer.add_event_handler(Events.EPOCH_COMPLETED, lambda: evaluator.run(val_loader))
trainer.run(train_loader, max_epochs=args.epochs)
print("metric mean_iou", evaluator.state.metrics["mean_iou"])
