import argparse

import keras
import numpy as np
from keras import layers

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--cell", default="LSTM")
parser.add_argument("--lr", type=float, default=5e-3)
parser.add_argument("--epochs", type=int, default=8)
args = parser.parse_args()
keras.utils.set_random_seed(args.seed)

draw = np.random.default_rng(args.seed)
time = np.arange(1500)
series = np.sin(time / 6) + 0.5 * np.sin(time / 17 + 1) + 0.1 * draw.normal(size=time.size)
series = series.astype("float32")
LENGTH = 20


def windows(part):
    x = np.lib.stride_tricks.sliding_window_view(part, LENGTH)[:-1]
    return keras.ops.convert_to_numpy(x)[..., None].copy(), part[LENGTH:].copy()


x_train, y_train = windows(series[:1200])
x_test, y_test = windows(series[1200:])
model = keras.Sequential([keras.Input((LENGTH, 1)), getattr(layers, args.cell)(24), layers.Dense(1)])
schedule = keras.optimizers.schedules.ExponentialDecay(args.lr, decay_steps=100, decay_rate=0.8)
model.compile(optimizer=keras.optimizers.Adam(schedule), loss="mse")
model.fit(x_train, y_train, batch_size=32, epochs=args.epochs, validation_data=(x_test, y_test), verbose=2)
print("metric mse", model.evaluate(x_test, y_test, verbose=0))
