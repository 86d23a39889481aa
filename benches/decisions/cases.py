"""The cases to tune: an operation with a shape, under the name in every table and flag."""

import typing

import attention
import convolution
import matmul
import softmax_matmul


class Case(typing.NamedTuple):
    op: str
    # returns the function of the arguments for a config
    function: typing.Callable
    configs: list
    # the config without tuning
    baseline: dict
    # the arguments by name, and their standard deviations
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
