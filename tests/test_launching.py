from __future__ import annotations

import os

from torchdoctor.launching import birth_of


def test_another_process_of_the_same_number_is_not_the_trainer() -> None:
    assert birth_of(os.getpid()) == birth_of(os.getpid()) is not None
    assert birth_of(os.getpid()) != birth_of(1)
    assert birth_of(2**22 + 1) is None
