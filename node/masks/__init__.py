"""Keys and masks of a masked run. Nothing but such a run imports this, for it needs the package `cryptography`."""

from importlib.util import find_spec

from hushgrid.kernels.errors import InputError

if find_spec("cryptography") is None:
    raise InputError(
        "a masked run, or trust: found no cryptography, expected it installed: pip install 'hushgrid[masked]'"
    )
