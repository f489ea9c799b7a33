"""Train the first-layer kernels that ship in ``forestmix.data``: one small network for each kernel width.

The networks differ in the width of their first layer's kernels and in nothing else: every other layer starts
from the same numbers, and the batches and their augmentation are the same. Needs the ``train`` extra::

    python tools/train_kernels.py --data DIRECTORY_OR_TARBALL --out src/forestmix/data --epochs 8 --seed 0

``--data`` is what ``forestmix data fetch cifar10 --from`` takes; leave it out if CIFAR-10 is in the cache.
"""

from __future__ import annotations

import argparse
import os
import platform
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from forestmix.data import fetch, load_cifar10

KERNELS = 24
CHANNELS = (48, 96, 128)
BATCH = 250
PADDING = 4
PEAK_RATE = 0.2
MOMENTUM = 0.9
WEIGHT_DECAY = 5e-4
LABEL_SMOOTHING = 0.1
WARM_UP = 0.25


@dataclass(frozen=True)
class Pixels:
    """One split: images (count, height, width, 3) as uint8, and labels as int64."""

    images: Tensor
    labels: Tensor


@dataclass(frozen=True)
class Trained:
    """What one run leaves: the kernels (kernels, 3, width, width), and how well their network did."""

    kernels: np.ndarray
    accuracy: float
    seconds: float


@dataclass(frozen=True)
class Normalisation:
    """The mean and standard deviation of each colour over the training images, in units of 0 to 255."""

    mean: Tensor
    deviation: Tensor

    @classmethod
    def of(cls, images: Tensor) -> Normalisation:
        """Measure them on ``images``, exactly: sums of bytes are taken in integers."""
        wide = images.reshape(-1, 3).to(torch.int64)
        mean = wide.sum(0).double() / len(wide)
        square = (wide**2).sum(0).double() / len(wide)
        return cls(mean.float(), (square - mean**2).sqrt().float())

    def apply(self, images: Tensor) -> Tensor:
        """Return the images as float32 (count, 3, height, width); the permuted view is ``channels_last``."""
        return ((images.float() - self.mean) / self.deviation).permute(0, 3, 1, 2)


def build_network(width: int, seed: int) -> nn.Sequential:
    """Return the network with first-layer kernels of ``width``; the other layers depend on ``seed`` only."""
    torch.manual_seed(seed)
    layers: list[nn.Module] = [nn.BatchNorm2d(KERNELS), nn.ReLU()]
    inputs = KERNELS
    for depth, outputs in enumerate(CHANNELS):
        layers.append(nn.Conv2d(inputs, outputs, 3, padding=1, bias=False))
        if depth < len(CHANNELS) - 1:
            layers.append(nn.MaxPool2d(2))
        layers += [nn.BatchNorm2d(outputs), nn.ReLU()]
        inputs = outputs
    layers += [nn.AdaptiveMaxPool2d(1), nn.Flatten(), nn.Linear(inputs, 10)]
    # Made last: how many random numbers it draws depends on the width, and must not move the other layers.
    first = nn.Conv2d(3, KERNELS, width, padding=width // 2, bias=False)
    network = nn.Sequential(first, nn.MaxPool2d(2), *layers)
    return network.to(memory_format=torch.channels_last)  # a third faster on a CPU


def augmented_batches(train: Pixels, generator: torch.Generator) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield one epoch of shuffled batches, each image cropped at random and flipped as often as not.

    ``train.images`` must be padded already, by ``PADDING`` on every side.
    """
    size = train.images.shape[1] - 2 * PADDING
    order = torch.randperm(len(train.images), generator=generator)
    for index in order.split(BATCH):
        count = len(index)
        top, left = torch.randint(0, 2 * PADDING + 1, (2, count, 1), generator=generator)
        flip = torch.randint(0, 2, (count, 1), generator=generator).bool()
        across = torch.arange(size).expand(count, size)
        rows = top + across
        columns = left + torch.where(flip, across.flip(1), across)
        yield train.images[index[:, None, None], rows[:, :, None], columns[:, None, :]], train.labels[index]


@torch.no_grad()
def accuracy_of(network: nn.Module, test: Pixels, normalisation: Normalisation) -> float:
    """Return the share of the test images that the network names rightly."""
    network.eval()
    right = 0
    for images, labels in zip(test.images.split(1000), test.labels.split(1000), strict=True):
        right += int((network(normalisation.apply(images)).argmax(1) == labels).sum())
    network.train()
    return right / len(test.labels)


def train_width(
    width: int, train: Pixels, test: Pixels, normalisation: Normalisation, epochs: int, seed: int
) -> Trained:
    """Train one network. The accuracy is the last epoch's: no epoch is picked by its test accuracy."""
    start = time.monotonic()
    network = build_network(width, seed)
    steps = epochs * -(-len(train.images) // BATCH)
    optimiser = torch.optim.SGD(
        network.parameters(), lr=PEAK_RATE, momentum=MOMENTUM, nesterov=True, weight_decay=WEIGHT_DECAY
    )
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimiser, max_lr=PEAK_RATE, total_steps=steps, pct_start=WARM_UP, cycle_momentum=False
    )
    loss_of = nn.CrossEntropyLoss(label_smoothing=LABEL_SMOOTHING)
    generator = torch.Generator().manual_seed(seed)
    accuracy = 0.0
    for epoch in range(1, epochs + 1):
        losses = []
        for images, labels in augmented_batches(train, generator):
            optimiser.zero_grad()
            loss = loss_of(network(normalisation.apply(images)), labels)
            loss.backward()
            optimiser.step()
            schedule.step()
            losses.append(loss.item())
        accuracy = accuracy_of(network, test, normalisation)
        seconds = time.monotonic() - start
        print(
            f"width {width} epoch {epoch}/{epochs} loss {np.mean(losses):.4f} "
            f"test accuracy {accuracy:.4f} ({seconds:.0f} s)",
            flush=True,
        )
    kernels = network[0].weight.detach().contiguous().numpy().astype(np.float32)
    return Trained(kernels, accuracy, time.monotonic() - start)


def write_kernels(path: Path, runs: dict[int, Trained], normalisation: Normalisation) -> None:
    """Write the archive under a temporary name first, so that a stopped run never leaves half a file."""
    arrays = {f"k{width}": run.kernels for width, run in runs.items()}
    arrays["widths"] = np.array(list(runs), dtype=np.int64)
    arrays["accuracy"] = np.array([run.accuracy for run in runs.values()])
    arrays["mean"] = normalisation.mean.numpy()
    arrays["deviation"] = normalisation.deviation.numpy()
    partial = path.with_suffix(".partial")
    try:
        with partial.open("wb") as file:
            np.savez(file, **arrays)
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)


def model_card(runs: dict[int, Trained], normalisation: Normalisation, epochs: int, seed: int, threads: int) -> str:
    """Return the Markdown that says how the kernels were made."""
    rows = "\n".join(
        f"| `k{width}` | {run.kernels.shape} | {run.accuracy:.2%} | {run.seconds / 60:.1f} minutes |"
        for width, run in runs.items()
    )
    widths = " ".join(map(str, runs))
    command = f"--epochs {epochs} --seed {seed} --threads {threads} --widths {widths}"
    mean = ", ".join(f"{value:.2f}" for value in normalisation.mean.tolist())
    deviation = ", ".join(f"{value:.2f}" for value in normalisation.deviation.tolist())
    middle, late, last = CHANNELS
    return f"""# Model card: CIFAR-10 first-layer kernels

`cifar10_kernels.npz` holds the first-layer kernels of small networks trained on the 50,000 training images of
CIFAR-10 (Krizhevsky, 2009). The runs differ in the kernels' width and in nothing else: the other layers start
from the same numbers, and batches and augmentation are the same.

| array | shape (kernels, colours, height, width) | test accuracy | training time |
|---|---|---|---|
{rows}

The archive also holds `widths`, `accuracy` (in the order of `widths`), `mean` and `deviation`.

- **Architecture**: convolution (width k, {KERNELS} kernels, stride 1, padding k // 2, no bias), max-pool 2;
  convolution 3 x 3 to {middle}, max-pool 2; convolution 3 x 3 to {late}, max-pool 2;
  convolution 3 x 3 to {last}; maximum over the image; linear to 10.
  Batch normalisation and ReLU follow each convolution, after its pool.
- **Input**: pixels 0 to 255, less the mean ({mean}) and divided by
  the standard deviation ({deviation}) of red, green and blue over the training images.
  The kernels are correlated with that input, not flipped (as PyTorch does).
- **Loss**: cross-entropy with label smoothing {LABEL_SMOOTHING}.
- **Optimiser**: SGD with Nesterov momentum {MOMENTUM}, weight decay {WEIGHT_DECAY}, batches of {BATCH};
  {epochs} epochs. The rate follows one cycle: up to {PEAK_RATE} over the first {WARM_UP:.0%} of the steps,
  then down along a cosine.
- **Augmentation**: random crops of the image padded by {PADDING} reflected pixels; random left-right flips.
- **Test accuracy**: on all 10,000 test images after the last epoch, not the best one. No images were held out
  for validation, and the test accuracies of a trial run were seen before the number of epochs was settled: take
  the figures as a check that the kernels are good, not as a fair comparison with other networks.
- **Seed** {seed}; threads: {threads}; PyTorch {torch.__version__} on a CPU; Python {platform.python_version()}.
- **Command**: `python tools/train_kernels.py --data SOURCE --out src/forestmix/data {command}`.
  Each width seeds itself, so widths trained together or apart come out the same.

Training times were taken on a shared machine with the widths side by side, and give only the order of magnitude.
The accuracies come from one seed, and a share of 10,000 images has a standard error of about 0.4 per cent: small
differences between widths may be chance.
"""


def read_arguments(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="directory or tarball to fetch CIFAR-10 from, if it is not in the cache")
    parser.add_argument("--out", type=Path, required=True, help="directory for the kernels and their model card")
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--widths", type=int, nargs="+", default=[3, 5, 7], help="odd widths of the kernels")
    options = parser.parse_args(arguments)
    even = [width for width in options.widths if width < 1 or width % 2 == 0]
    if even:
        parser.error(f"--widths must be odd and positive, so that the padding is even; got {even}")
    if options.epochs < 1:
        parser.error(f"--epochs must be at least 1; got {options.epochs}")
    return options


def main() -> None:
    """Train every width, and write what is done after each one."""
    options = read_arguments()
    torch.set_num_threads(options.threads)
    fetch("cifar10", source=options.data)
    train, test = (
        Pixels(torch.from_numpy(split.images), torch.from_numpy(split.labels.astype(np.int64)))
        for split in (load_cifar10("train"), load_cifar10("test"))
    )
    normalisation = Normalisation.of(train.images)
    sides = ((0, 0), (PADDING, PADDING), (PADDING, PADDING), (0, 0))
    padded = Pixels(torch.from_numpy(np.pad(train.images.numpy(), sides, mode="reflect")), train.labels)
    options.out.mkdir(parents=True, exist_ok=True)
    runs: dict[int, Trained] = {}
    for width in options.widths:
        runs[width] = train_width(width, padded, test, normalisation, options.epochs, options.seed)
        write_kernels(options.out / "cifar10_kernels.npz", runs, normalisation)
        card = model_card(runs, normalisation, options.epochs, options.seed, options.threads)
        (options.out / "cifar10_kernels.md").write_text(card, encoding="utf-8")


if __name__ == "__main__":
    main()
