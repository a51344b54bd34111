import argparse

import keras
from keras import layers
from sklearn.datasets import load_breast_cancer, load_wine, make_friedman1
from sklearn.model_selection import train_test_split

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--data", default="cancer")
parser.add_argument("--lr", type=float, default=5e-3)
parser.add_argument("--epochs", type=int, default=20)
parser.add_argument("--l2", type=float, default=1e-4)
parser.add_argument("--patience", type=int, default=8)
args = parser.parse_args()
keras.utils.set_random_seed(args.seed)

if args.data == "friedman":
    X, y = make_friedman1(1000, noise=0.5, random_state=args.seed)
    y = (y - y.mean()) / y.std()
else:
    X, y = (load_wine if args.data == "wine" else load_breast_cancer)(return_X_y=True)
x_train, x_test, y_train, y_test = train_test_split(X, y, test_size=0.3, random_state=args.seed)

normalization = layers.Normalization()
normalization.adapt(x_train)
loss, metric, outputs, activation = {
    "cancer": ("binary_crossentropy", "accuracy", 1, "sigmoid"),
    "wine": ("sparse_categorical_crossentropy", "accuracy", 3, "softmax"),
    "friedman": ("mse", "mae", 1, None),
}[args.data]
regularizer = keras.regularizers.L2(args.l2)
model = keras.Sequential(
    [
        keras.Input((X.shape[1],)),
        normalization,
        layers.Dense(32, activation="relu", kernel_regularizer=regularizer),
        layers.Dense(16, activation="relu", kernel_regularizer=regularizer),
        layers.Dense(outputs, activation=activation),
    ]
)
model.compile(optimizer=keras.optimizers.Adam(args.lr), loss=loss, metrics=[metric])
callbacks = [
    keras.callbacks.EarlyStopping(monitor="val_loss", patience=args.patience, restore_best_weights=True),
    keras.callbacks.ReduceLROnPlateau(monitor="val_loss", factor=0.5, patience=4),
]
model.fit(x_train, y_train, batch_size=32, epochs=args.epochs, validation_split=0.2, callbacks=callbacks, verbose=2)
print("metric", metric, model.evaluate(x_test, y_test, verbose=0)[1])
