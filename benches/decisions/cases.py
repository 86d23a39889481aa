"""The cases that can be tuned: an operation with its shape, under the name that every table and flag says."""

import typing

import attention
import convolution
import matmul
import softmax_matmul


class Case(typing.NamedTuple):
    op: str
    # of a config: the function of the arguments
    function: typing.Callable
    configs: list
    # the config without tuning
    baseline: dict
    # the arguments by their names, and their standard deviations
    specs: dict
    scales: dict


def case_of(operation, shape):
    """One case of an operation, which is a module like `matmul`."""
    of_shape = [part(shape) for part in (operation.configs, operation.baseline, operation.specs, operation.scales)]
    return Case(operation.OP, operation.function, *of_shape)


CASES = {
    name: case_of(operation, shape)
    for operation in (matmul, attention, softmax_matmul, convolution)
    for name, shape in operation.CASES.items()
}
