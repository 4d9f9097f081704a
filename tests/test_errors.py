"""Text of other programs is fit to show, whatever it is."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from shmaccum.errors import MESSAGE_BYTES, printable


@given(st.text())
def test_untrusted_text_becomes_one_printable_line(text: str) -> None:
    shown = printable(text)

    assert shown.isprintable()
    assert len(shown.encode()) <= MESSAGE_BYTES
    assert printable(shown) == shown
    if text.isprintable() and len(text.encode()) <= MESSAGE_BYTES:
        assert shown == text
