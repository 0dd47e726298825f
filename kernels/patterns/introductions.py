"""How the members of a masked run introduce themselves to each other, through a coordinator that they do not trust."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

KEY = 32  #: bytes of a public key


class Introduction(Struct, tag="masked.introduction", frozen=True):
    """A member to all the others, by way of the coordinator: its key of this run, and whose it is.

    Public. The one who receives it judges it (`node/masks/identity.py` (`Trust.verify`)).
    """

    key: Annotated[bytes, Meta(min_length=KEY, max_length=KEY)]  #: X25519, of this run alone
    certificate: Annotated[bytes, Meta(max_length=8192)]  #: X.509 in DER; its common name is the member's
    #: by the certificate's key, over the run, the member's name, `key` and `mark`
    signature: Annotated[bytes, Meta(max_length=1024)]
    #: how far its ledger has come, encoded, for the others to remember; empty: it says nothing of it
    mark: Annotated[bytes, Meta(max_length=128)] = b""
