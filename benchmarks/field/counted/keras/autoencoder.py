import argparse

import keras
import torch
from keras import layers, ops
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--lr", type=float, default=3e-3)
parser.add_argument("--epochs", type=int, default=20)
parser.add_argument("--latent", type=int, default=6)
args = parser.parse_args()
keras.utils.set_random_seed(args.seed)

X, _ = load_digits(return_X_y=True)
x_train, x_test = train_test_split((X / 16).astype("float32"), test_size=0.25, random_state=args.seed)


class VAE(keras.Model):
    def __init__(self):
        super().__init__()
        self.encoder = keras.Sequential([layers.Dense(64, activation="relu"), layers.Dense(2 * args.latent)])
        self.decoder = keras.Sequential([layers.Dense(64, activation="relu"), layers.Dense(64, activation="sigmoid")])
        self.sampler = keras.random.SeedGenerator(args.seed)

    def call(self, x, training=False):
        mean, logvar = ops.split(self.encoder(x), 2, axis=-1)
        noise = keras.random.normal(ops.shape(mean), seed=self.sampler) if training else 0.0
        kl = -0.5 * ops.sum(1 + logvar - ops.square(mean) - ops.exp(logvar), axis=-1)
        self.add_loss(ops.mean(kl) * 0.002)
        return self.decoder(mean + ops.exp(0.5 * logvar) * noise)

    def train_step(self, data):
        x, y, _ = keras.utils.unpack_x_y_sample_weight(data)
        self.zero_grad()
        loss = self.compute_loss(y=y, y_pred=self(x, training=True))
        loss.backward()
        weights = self.trainable_weights
        gradients = [weight.value.grad for weight in weights]
        with torch.no_grad():
            self.optimizer.apply(gradients, weights)
        self.loss_tracker.update_state(loss)
        return {"loss": self.loss_tracker.result()}

    @property
    def metrics(self):
        return [self.loss_tracker]


model = VAE()
model.loss_tracker = keras.metrics.Mean(name="loss")
model.compile(optimizer=keras.optimizers.Adam(args.lr), loss="mse")
model.fit(x_train, x_train, batch_size=64, epochs=args.epochs, verbose=2)
print("metric mse", float(((model.predict(x_test, verbose=0) - x_test) ** 2).mean()))
