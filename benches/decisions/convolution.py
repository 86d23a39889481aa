"""A convolution of one image by tiles: 36 configs.

The best config has middle tiles: small tiles are many, and the band matrix of large ones is mostly zeros.
"""

import itertools

import jax
import jax.numpy as jnp
from jax import lax

OP = "tiled_convolution"
# rows and columns of the image, its channels, and the filter's rows and columns
CASES = {"convolution": (64, 64, 7)}


def configs(shape):
    """Tiles of one pixel to half the image in each direction."""
    size, _, _ = shape
    sides = [1, 2, 4, 8, 16, size // 2]
    return [{"tile_h": h, "tile_w": w} for h, w in itertools.product(sides, sides)]


def baseline(shape):
    """The choice of a heuristic without measurements: a square tile about as large as the filter."""
    return {"tile_h": 8, "tile_w": 8}


def function(config):
    """Each channel with the same filter: the filter as a band matrix, times each tile with its surroundings."""
    height, width = config["tile_h"], config["tile_w"]

    def convolution(x, w):
        (rows, columns, channels), taps = x.shape, w.shape[0]
        margin = (taps // 2, taps // 2)
        padded = jnp.pad(x, (margin, margin, (0, 0)))

        def taps_at(side):
            """For each pixel of a tile's side and each pixel around it: the filter's tap there, one-hot."""
            distances = jnp.arange(side + taps - 1) - jnp.arange(side)[:, None]
            return jax.nn.one_hot(distances, taps)

        around = height + taps - 1, width + taps - 1
        band = jnp.einsum("hik,wjl,kl->hwij", taps_at(height), taps_at(width), w)
        band = band.reshape(height * width, around[0] * around[1])

        def tile(index):
            row, column = index // (columns // width) * height, index % (columns // width) * width
            pixels = lax.dynamic_slice(padded, (row, column, 0), (*around, channels))
            return band @ pixels.reshape(around[0] * around[1], channels)

        tiles = lax.map(tile, jnp.arange(rows // height * (columns // width)))
        tiles = tiles.reshape(rows // height, columns // width, height, width, channels)
        return tiles.swapaxes(1, 2).reshape(rows, columns, channels)

    return convolution


def specs(shape):
    """The arguments by name."""
    size, channels, taps = shape
    shapes = {"x": (size, size, channels), "w": (taps, taps)}
    return {name: jax.ShapeDtypeStruct(shape, jnp.float32) for name, shape in shapes.items()}


def scales(shape):
    """The arguments' standard deviations, so that elements of the result stay near one."""
    _, _, taps = shape
    return {"x": 1.0, "w": 1 / taps}
