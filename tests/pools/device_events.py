"""A ledger and device pools that follow the same events, held against each other."""

import numpy as np

from kvlife.ledger import Ledger
from kvlife.pools import DevicePools


class Twins:
    """Applies events to a ledger and to pools on the CPU."""

    def __init__(self, config, layouts=None, **options):
        self.ledger = Ledger(config)
        self.pools = DevicePools(layouts, **options)
        self.pools.attach(self.ledger)
        self.seq = 0

    def apply(self, event):
        change = self.ledger.apply(event, self.seq)
        self.pools.apply(event, change, self.seq)
        self.seq += 1

    def differing(self):
        """The names of the device's tensors that differ from the ledger's columns, with both."""
        return {
            name: (spots, here[spots], there[spots])
            for name, (tensor, array) in self.pools.state.beside(self.ledger).items()
            for here, there in [(tensor.numpy().ravel(), np.asarray(array).ravel())]
            for spots in [np.flatnonzero(here != there)]
            if spots.size
        }
