import argparse

import numpy as np
import torch
from monai.data import CacheDataset, DataLoader, Dataset, create_test_image_2d
from monai.inferers import sliding_window_inference
from monai.losses import DiceCELoss, DiceLoss, FocalLoss
from monai.metrics import DiceMetric
from monai.networks.nets import AttentionUnet, BasicUNet, UNet
from monai.transforms import (
    Activations,
    AsDiscrete,
    Compose,
    EnsureChannelFirstd,
    EnsureTyped,
    MedianSmoothd,
    RandFlipd,
    RandRotate90d,
    ScaleIntensityd,
)
from monai.utils import set_determinism

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--model", default="unet")
parser.add_argument("--loss", default="dice")
parser.add_argument("--lr", type=float, default=5e-3)
parser.add_argument("--epochs", type=int, default=10)
parser.add_argument("--batch-size", type=int, default=8)
parser.add_argument("--data", choices=["cached", "plain"], default="cached")
args = parser.parse_args()
set_determinism(seed=args.seed)
draw = np.random.RandomState(args.seed)


def scans(count):
    rows = []
    for index in range(count):
        objects = 0 if index % 12 == 11 else 4
        settings = {"num_objs": objects, "rad_max": 8, "rad_min": 3, "noise_max": 0.3, "random_state": draw}
        image, label = create_test_image_2d(48, 48, num_seg_classes=1, **settings)
        rows.append({"image": image.astype(np.float32), "label": label.astype(np.float32)})
    return rows


fixed = [
    EnsureChannelFirstd(keys=["image", "label"], channel_dim="no_channel"),
    EnsureTyped(keys=["image", "label"], track_meta=False),
    MedianSmoothd(keys="image", radius=3),
    ScaleIntensityd(keys="image"),
]
random = [RandFlipd(keys=["image", "label"], prob=0.5), RandRotate90d(keys=["image", "label"], prob=0.5)]
if args.data == "cached":
    train_data = CacheDataset(scans(96), Compose(fixed + random), progress=False)
    test_data = CacheDataset(scans(36), Compose(fixed), progress=False)
else:
    train_data, test_data = Dataset(scans(96), Compose(fixed + random)), Dataset(scans(36), Compose(fixed))
train_loader = DataLoader(train_data, batch_size=args.batch_size, shuffle=True)
test_loader = DataLoader(test_data, batch_size=12)

shape = {"spatial_dims": 2, "in_channels": 1, "out_channels": 1}
if args.model == "unet":
    model = UNet(**shape, channels=(8, 16, 32), strides=(2, 2), num_res_units=1)
elif args.model == "attention":
    model = AttentionUnet(**shape, channels=(8, 16, 32), strides=(2, 2))
else:
    model = BasicUNet(**shape, features=(8, 8, 16, 32, 32, 8))
if args.loss == "dice":
    criterion = DiceLoss(sigmoid=True)
elif args.loss == "both":
    criterion = DiceCELoss(sigmoid=True)
else:
    criterion = FocalLoss()
optimizer = torch.optim.Adam(model.parameters(), args.lr)
metric = DiceMetric(include_background=True, reduction="mean")
discrete = Compose([Activations(sigmoid=True), AsDiscrete(threshold=0.5)])


def evaluate():
    model.eval()
    with torch.no_grad():
        for batch in test_loader:
            answers = sliding_window_inference(batch["image"], (48, 48), 12, model)
            metric(y_pred=[discrete(answer) for answer in answers], y=batch["label"])
    value = metric.aggregate().item()
    metric.reset()
    return value


for epoch in range(args.epochs):
    model.train()
    total = 0.0
    for batch in train_loader:
        optimizer.zero_grad()
        loss = criterion(model(batch["image"]), batch["label"])
        loss.backward()
        optimizer.step()
        total += loss.item()
    print(f"epoch {epoch + 1}, average loss: {total / len(train_loader):.4f}, dice: {evaluate():.4f}")
print("metric dice", evaluate())
