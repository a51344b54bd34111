import argparse

import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset
from x_transformers import Encoder, ViTransformerWrapper

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--registers", type=int, default=0)
parser.add_argument("--dropout", type=float, default=0.1)
args = parser.parse_args()
torch.manual_seed(args.seed)

x, y = load_digits(return_X_y=True)
x, y = torch.tensor(x / 8 - 1, dtype=torch.float32).reshape(-1, 1, 8, 8), torch.tensor(y)
x_train, x_test, y_train, y_test = train_test_split(x, y, test_size=0.25, random_state=args.seed)
model = ViTransformerWrapper(
    image_size=8,
    patch_size=2,
    channels=1,
    num_classes=10,
    num_register_tokens=args.registers,
    attn_layers=Encoder(dim=32, depth=2, heads=4, attn_dim_head=8, ff_dropout=args.dropout),
)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.01)
loader = DataLoader(TensorDataset(x_train, y_train), batch_size=64, shuffle=True)
for epoch in range(15):
    model.train()
    for images, labels in loader:
        optimizer.zero_grad()
        loss = cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
    print(epoch, loss.item())
model.eval()
with torch.no_grad():
    accuracy = (model(x_test).argmax(1) == y_test).float().mean()
print("metric accuracy", accuracy.item())
