import argparse

import keras
from keras import layers
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--model", default="cnn")
parser.add_argument("--lr", type=float, default=2e-3)
parser.add_argument("--epochs", type=int, default=12)
parser.add_argument("--batch-size", type=int, default=64)
parser.add_argument("--clipnorm", type=float, default=None)
args = parser.parse_args()
keras.utils.set_random_seed(args.seed)

X, y = load_digits(return_X_y=True)
X = X.reshape(-1, 8, 8, 1).astype("float32")
x_train, x_test, y_train, y_test = train_test_split(X, y, test_size=0.25, random_state=args.seed, stratify=y)

if args.model == "cnn":
    model = keras.Sequential(
        [
            keras.Input((8, 8, 1)),
            layers.Rescaling(1 / 16),
            layers.Conv2D(16, 3, padding="same", activation="relu"),
            layers.MaxPooling2D(),
            layers.Conv2D(32, 3, padding="same", activation="relu"),
            layers.MaxPooling2D(),
            layers.Flatten(),
            layers.Dense(10, activation="softmax"),
        ]
    )
else:
    inputs = keras.Input((8, 8, 1))
    x = layers.Flatten()(layers.Rescaling(1 / 16)(inputs))
    for _ in range(2):
        x = layers.Dense(64)(x)
        x = layers.BatchNormalization()(x)
        x = layers.Activation("relu")(x)
    outputs = layers.Dense(10, activation="softmax")(layers.Dropout(0.2)(x))
    model = keras.Model(inputs, outputs)

model.compile(
    optimizer=keras.optimizers.Adam(args.lr, clipnorm=args.clipnorm),
    loss="sparse_categorical_crossentropy",
    metrics=["accuracy"],
)
model.fit(x_train, y_train, batch_size=args.batch_size, epochs=args.epochs, validation_split=0.1, verbose=2)
print("metric accuracy", model.evaluate(x_test, y_test, verbose=0)[1])
