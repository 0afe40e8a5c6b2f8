"""The picture of who holds which page when: for each column and band of pages, the main holder."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from kvlife.invariants.effect import holder_of
from kvlife.ledger import Ledger, PageState
from kvlife.ledger.entries import group_entries
from kvlife.ledger.spans import indices
from kvlife.replay.report_page.tenures import shortened

I32 = npt.NDArray[np.int32]
I64 = npt.NDArray[np.int64]
U8 = npt.NDArray[np.uint8]
U16 = npt.NDArray[np.uint16]
Index = npt.NDArray[np.intp]

# What a cell shows where no row holds most of it, and from where on it names a holder.
FREE, CACHED, QUARANTINED, ORPHAN = range(4)
FIRST_HOLDER = 4
# The cells of all page spaces in one column, and what 16 bits can name.
MAX_BANDS = 200
MAX_HOLDERS = (1 << 16) - FIRST_HOLDER - 1
OTHERS = (1 << 16) - 1

# A page in no row's table, by its state. One that is PRIVATE has lost its holder: a leak.
_UNHELD = np.zeros(len(PageState), np.int32)
_UNHELD[PageState.FREE] = FREE
_UNHELD[PageState.RESERVED] = FREE
_UNHELD[PageState.CACHED] = CACHED
_UNHELD[PageState.QUARANTINED] = QUARANTINED
_UNHELD[PageState.PRIVATE] = ORPHAN
# Behind the last page of the last band.
_NO_PAGE = -1


class Holders:
    """The names of holders, numbered as they come; all too late to get a number are OTHERS."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self._numbers: dict[str, int] = {}

    def number(self, name: str) -> int:
        """The number of a name."""
        known = self._numbers.get(name)
        if known is None:
            if len(self.names) >= MAX_HOLDERS:
                return OTHERS
            known = self._numbers[name] = FIRST_HOLDER + len(self.names)
            self.names.append(name)
        return known


def owners_of(ledger: Ledger, space_idx: int, index: Index) -> tuple[I32, I64]:
    """Per page of a space, 1 + the place in `index` of a row that references it, or 0.

    And how many table entries each row has in it. A page that several rows share is the last one's.
    """
    owners = np.zeros(ledger.spaces[space_idx].num_pages, np.int32)
    held = np.zeros(index.size, np.int64)
    none = np.zeros(index.size, np.int32)
    place_of = np.zeros(ledger.layout.num_rows, np.int32)
    place_of[index] = np.arange(index.size, dtype=np.int32)
    for group in ledger.layout.groups:
        if group.space_idx != space_idx:
            continue
        at = indices(group_entries(ledger, group, index, none, ledger.rows.allocated[index]))
        places = place_of[at // group.table_width]
        held += np.bincount(places, minlength=index.size)
        owners[ledger.tables[group.idx][at]] = places + 1
    owners[0] = 0
    return owners, held


class HeatMap:
    """One page space's part: `cells` and `shares` are [band, column].

    A share is the part of the band's pages that its main holder has, as 0 to 255.
    """

    def __init__(self, num_columns: int, max_bands: int, num_pages: int) -> None:
        self.max_bands = max_bands
        self.num_pages = num_pages
        self._columns: list[tuple[int, U16, U8]] = []
        self._num_columns = num_columns

    def note(self, num: int, ledger: Ledger, space_idx: int, look: Look) -> None:
        """The next `num` columns end in this state."""
        space = ledger.spaces[space_idx]
        self.num_pages = max(self.num_pages, space.num_pages)
        per_band = -(-space.num_pages // self.max_bands)
        cells, shares = _main_holders(space.state, look.owners[space_idx], per_band)
        named = cells >= FIRST_HOLDER
        cells[named] = look.numbers(cells[named] - FIRST_HOLDER)
        column = (per_band, cells.astype(np.uint16), shares)
        self._columns.extend([column] * num)

    @property
    def per_band(self) -> int:
        """Pages in one band."""
        return -(-self.num_pages // self.max_bands)

    def cells(self) -> tuple[U16, U8]:
        """All columns under one scale: where the space was resized, by the nearest band."""
        num_bands = -(-self.num_pages // self.per_band)
        middles = np.arange(num_bands) * self.per_band + self.per_band // 2
        cells = np.zeros((num_bands, self._num_columns), np.uint16)
        shares = np.zeros((num_bands, self._num_columns), np.uint8)
        for number, (per_band, column, share) in enumerate(self._columns):
            bands = middles // per_band
            there = bands < column.size
            cells[there, number] = column[bands[there]]
            shares[there, number] = share[bands[there]]
        return cells, shares


class Look:
    """The state at one border, looked at once for all page spaces: which row has which page."""

    def __init__(self, ledger: Ledger, holders: Holders) -> None:
        self.index: Index = ledger.rows.in_use()
        self.owners: list[I32] = []
        self.held: I64 = np.zeros(self.index.size, np.int64)
        for space_idx in range(len(ledger.spaces)):
            owners, held = owners_of(ledger, space_idx, self.index)
            self.owners.append(owners)
            self.held += held
        self._ledger = ledger
        self._holders = holders
        self._named: dict[int, int] = {}

    def numbers(self, places: I64) -> I64:
        """The numbers of the holders of rows, by their places in `index`."""
        return np.array([self._number(place) for place in places.tolist()], np.int64)

    def _number(self, place: int) -> int:
        known = self._named.get(place)
        if known is None:
            row = int(self.index[place])
            name = holder_of(self._ledger, row)
            rows = self._ledger.rows
            if rows.rid[row] is None and rows.session[row] is None:
                name = f"row {row}, {name}"
            known = self._named[place] = self._holders.number(shortened(name))
        return known


def _main_holders(state: U8, owners: I32, per_band: int) -> tuple[I64, U8]:
    """Of each band the code that most pages have, and which part that is.

    Codes: `_UNHELD`, or FIRST_HOLDER + a row's place. A band with an orphan shows the orphan.
    """
    num_bands = -(-state.size // per_band)
    codes = np.full(num_bands * per_band, _NO_PAGE, np.int32)
    codes[: state.size] = np.where(owners > 0, owners + np.int32(FIRST_HOLDER - 1), _UNHELD[state])
    by_band = codes.reshape(num_bands, per_band)
    by_band.sort(axis=1)
    begins = np.empty((num_bands, per_band), np.bool_)
    begins[:, 0] = True
    np.not_equal(by_band[:, 1:], by_band[:, :-1], out=begins[:, 1:])
    starts = np.flatnonzero(begins)
    sizes = np.diff(starts, append=codes.size)
    run_codes, run_bands = codes[starts], starts // per_band
    weights = np.where(run_codes == ORPHAN, state.size + sizes, sizes)
    weights[run_codes == _NO_PAGE] = 0
    order = np.lexsort((weights, run_bands))
    chosen = order[np.flatnonzero(np.diff(run_bands[order], append=-1))]
    band_sizes = np.full(num_bands, per_band)
    band_sizes[-1] = state.size - (num_bands - 1) * per_band
    shares = np.ceil(255 * sizes[chosen] / band_sizes).astype(np.uint8)
    return run_codes[chosen].astype(np.int64), shares
