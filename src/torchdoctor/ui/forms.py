"""What the pages' own forms bring: the only requests that change anything."""

from __future__ import annotations

from urllib.parse import parse_qs

from starlette.exceptions import HTTPException
from starlette.requests import Request

from torchdoctor.store.journal import LONGEST
from torchdoctor.ui.guard import Access

MAX_FORM_BYTES = 16 * LONGEST
"""A letter may take four bytes, and a byte three signs."""


async def read_form(request: Request, access: Access) -> dict[str, str]:
    """Its fields. 403 where it was not one of our own pages that sent it, 413 where it is too long."""
    body = b""
    async for piece in request.stream():
        body += piece
        if len(body) > MAX_FORM_BYTES:
            raise HTTPException(413)
    try:
        fields = parse_qs(body.decode("ascii", "replace"), keep_blank_values=True, max_num_fields=8)
    except ValueError:
        raise HTTPException(400) from None
    found = {name: values[0] for name, values in fields.items()}
    if not access.admits_form(found.get("form_token", "")):
        raise HTTPException(403)
    return found
