"""What a model's ``pm.Data`` hold: remembered, and put back for a while."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pymc as pm
from numpy.typing import NDArray
from pytensor.compile.sharedvalue import SharedVariable


@dataclass(frozen=True, eq=False)
class HeldData:
    """What a model's ``pm.Data``, mutable dimensions and coords held at some time; frozen data need no holding."""

    values: dict[SharedVariable, NDArray[Any]]
    coords: dict[str, Any]

    @classmethod
    def of(cls, model: pm.Model) -> HeldData:
        held = [v for v in (*model.data_vars, *model.dim_lengths.values()) if isinstance(v, SharedVariable)]
        return cls({v: v.get_value(borrow=True) for v in held}, dict(model.coords))

    def write(self, model: pm.Model) -> None:
        for variable, value in self.values.items():
            variable.set_value(value, borrow=True)
        model._coords.update({name: self.coords[name] for name in self.coords if name in model.coords})

    @contextmanager
    def held_by(self, model: pm.Model) -> Iterator[None]:
        """The model as it was, for the duration of the block."""
        now = HeldData.of(model)
        self.write(model)
        try:
            yield
        finally:
            now.write(model)
