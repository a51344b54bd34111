"""Which tensors a module was called with, wherever in its arguments they are."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from torchdoctor.probes.batches import batch_tensors, change_tensors, input_tensors


@dataclass
class Node:
    values: Tensor
    parent: Node | None = None
    children: list[Node] = field(default_factory=list)


def test_nodes_that_know_their_parents_have_an_end() -> None:
    """A RecursionError would hide the whole forward pass."""
    root = Node(torch.zeros(2))
    root.children = [Node(torch.ones(2), root)]
    named = input_tensors((root,), {})
    assert list(named) == ["0['values']", "0['children'][0]['values']"]
    assert {id(tensor) for tensor in batch_tensors(root)} == {id(tensor) for tensor in named.values()}
    assert change_tensors(root, lambda tensor: tensor) is root


def test_a_tensor_that_is_given_twice_is_one() -> None:
    query, mask = torch.ones(2, 3), torch.ones(2)
    assert list(input_tensors((query, query), {"batch": {"mask": mask, "key": query}})) == ["0", "batch['mask']"]
