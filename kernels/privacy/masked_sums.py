"""How a run's sums are masked, and how many honest shares are in each sum that can be decoded: public numbers."""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from hushgrid.kernels.privacy.mask_graphs import MaskGraph, fewest_shares


class MaskedSites(Struct, frozen=True):
    """How a run's sums are masked in two levels."""

    sizes: tuple[int, ...]  #: devices of each site
    fewest: tuple[int, ...]  #: s_s, of a round of each site
    corrupt: int  #: c: so many of the sites' coordinators, another than a device's own
    contributors: int  #: m, the fewest sites of a round

    @property
    def devices(self) -> int:
        """So many devices at least, of sites with an honest coordinator, are in each sum that can be decoded."""
        return sum(sorted(self.fewest)[: self.contributors - self.corrupt])


class Masked(Struct, frozen=True):
    """How a run's sums are masked."""

    corrupt: int  #: t
    contributors: int  #: s, the fewest devices of a round; of a site's round, the smallest
    pads: str = ""  #: what a pad is named by; "": by round and attempt alone, as in plans of older programs
    graph: MaskGraph | None = None  #: who masks with whom; None: all with all
    exposed: float = 0.0  #: what its draws may add to delta
    sites: MaskedSites | None = None  #: of two levels, where all of a level mask with all
    site: int = 0  #: h_s, in a device's own site; of no device in particular: in the smallest
    shares: int = 0  #: h, as a ledger or, of two levels, an owner has counted it; 0: by the rest

    @property
    def uncorrupted(self) -> int:
        """So many contributors at least of a sum are honest: s - t, or of two levels those of the fewest sites."""
        if self.sites is None:
            return self.contributors - self.corrupt
        return self.shares or self.sites.devices - self.corrupt

    @property
    def honest(self) -> int:
        """h: so many shares at least are in each sum that can be decoded, but for a probability of `exposed`.

        As many as are honest, and a little less where each masks with few others. 1, a share by itself, if the graph
        promises nothing.
        """
        if self.shares or self.graph is None:
            return self.shares or self.uncorrupted
        return max(fewest_shares(self.graph, self.exposed), 1)

    def believing(self, honest: int) -> Masked:
        """The same as somebody counts it who believes in so many honest contributors."""
        if self.sites is not None:
            return replace(self, shares=honest)
        corrupt = self.contributors - honest
        graph = None if self.graph is None else self.graph._replace(corrupt=corrupt)
        return replace(self, corrupt=corrupt, graph=graph)

    def spares(self, nodes: int) -> bool:
        """Whether a round can be asked again without some of so many devices."""
        if self.sites is None:
            return self.contributors < nodes
        return self.sites.fewest != self.sites.sizes or self.sites.contributors < len(self.sites.sizes)

    def of_site(self, position: int) -> Masked:
        """The same for the device that is the position-th of all."""
        if self.sites is None:
            return self
        k, last = 0, self.sites.sizes[0]
        while position >= last:
            k += 1
            last += self.sites.sizes[k]
        return replace(self, site=self.sites.fewest[k] - self.corrupt)
