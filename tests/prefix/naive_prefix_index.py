"""A prefix index of dicts and tuples that is too simple to be wrong, and far too slow."""

from dataclasses import dataclass, field


@dataclass
class NaiveNode:
    """A run of units: those of `path` from `start` on."""

    namespace: bytes
    path: tuple
    start: int
    last_use: int = 0
    created: int = 0
    hits: int = 0


@dataclass
class NaiveIndex:
    """`units` maps (namespace, path of units) to the pages of its last unit, per group."""

    page_sizes: tuple
    windows: tuple
    policy: str
    extends: bool
    units: dict = field(default_factory=dict)
    nodes: dict = field(default_factory=dict)
    roots: dict = field(default_factory=dict)
    free_ids: list = field(default_factory=list)
    next_id: int = 1

    @property
    def align(self):
        return max(self.page_sizes)

    def split_units(self, tokens):
        a = self.align
        return tuple(tuple(tokens[i : i + a]) for i in range(0, len(tokens) - a + 1, a))

    # -- finding ---------------------------------------------------------------------------

    def found(self, namespace, path):
        k = 0
        while k < len(path) and (namespace, path[: k + 1]) in self.units:
            k += 1
        return k

    def group_pages(self, namespace, path, group, first=0):
        return [
            p for k in range(first, len(path)) for p in self.units[namespace, path[: k + 1]][group]
        ]

    def is_usable(self, namespace, path, floor):
        length = len(path) * self.align
        for g, window in enumerate(self.windows):
            if window is None:
                continue
            pages = self.group_pages(namespace, path, g)
            first = max(0, length - window + 1)
            for t in range(length):
                if (t < floor or t >= first) and not pages[t // self.page_sizes[g]]:
                    return False
        return True

    def matched(self, namespace, path, limit, floor):
        k = self.found(namespace, path)
        if limit is not None:
            k = min(k, limit // self.align)
        while not self.is_usable(namespace, path[:k], floor):
            k -= 1
        return k

    # -- changing --------------------------------------------------------------------------

    def node_over(self, namespace, path):
        """The node that holds the last unit of a path."""
        for node_id, node in self.nodes.items():
            over = node.path[: len(path)] == path and node.start < len(path)
            if node.namespace == namespace and over:
                return node_id
        return None

    def children(self, node_id):
        node = self.nodes[node_id]
        k = len(node.path)
        return [
            i
            for i, n in self.nodes.items()
            if n.namespace == node.namespace and n.start == k and n.path[:k] == node.path
        ]

    def touch(self, namespace, path, seq):
        for node in self.nodes.values():
            on_path = node.path[: len(path)] == path[: len(node.path)] and node.start < len(path)
            if node.namespace == namespace and on_path:
                node.last_use = seq
                node.hits += 1

    def insert(self, namespace, path, start, pages, seq):
        """`pages[g]` over units [start, len(path))."""
        found = self.found(namespace, path)
        for k in range(start, found):
            held = self.units[namespace, path[: k + 1]]
            for g in range(len(self.page_sizes)):
                for i, page in enumerate(self.unit_pages(pages, g, k - start)):
                    held[g][i] = held[g][i] or page
        end = found
        for k in range(found, len(path)):
            held = [self.unit_pages(pages, g, k - start) for g in range(len(self.page_sizes))]
            self.units[namespace, path[: k + 1]] = held
            if any(map(any, held)):
                end = k + 1
        for k in range(end, len(path)):
            del self.units[namespace, path[: k + 1]]
        self.place(namespace, path, found, end, seq)
        return end

    def unit_pages(self, pages, group, unit):
        per = self.align // self.page_sizes[group]
        return [int(p) for p in pages[group][unit * per : unit * per + per]]

    def place(self, namespace, path, found, end, seq):
        over = self.node_over(namespace, path[:found]) if found else None
        if end == found:
            if over is not None:
                self.nodes[over].last_use = seq
            return
        if found == 0 and namespace not in self.roots:
            self.roots[namespace] = self.take_id()
        if over is not None:
            node = self.nodes[over]
            if len(node.path) > found:
                upper = self.take_id()
                self.nodes[upper] = NaiveNode(
                    namespace, path[:found], node.start, node.last_use, node.created, node.hits
                )
                node.start = found
                over = upper
            self.nodes[over].last_use = seq
            if self.extends and not self.children(over):
                self.nodes[over].path = path[:end]
                return
        self.nodes[self.take_id()] = NaiveNode(namespace, path[:end], found, seq, seq)

    def take_id(self):
        if self.free_ids:
            return self.free_ids.pop()
        self.next_id += 1
        return self.next_id - 1

    # -- evicting --------------------------------------------------------------------------

    def priority(self, node_id):
        node = self.nodes[node_id]
        return {
            "lru": (node.last_use,),
            "lfu": (node.hits, node.last_use),
            "fifo": (node.created,),
            "slru": (node.hits >= 2, node.last_use),
        }[self.policy] + (node_id,)

    def is_locked(self, unit, locked):
        return any((g, p) in locked for g, pages in enumerate(unit) for p in pages if p)

    def victims(self, need, locked):
        """The cuts (node, units kept) in order, and the pages of each group."""
        short = [min(n, len(self.all_pages(g))) for g, n in enumerate(need)]
        cuts, taken, gone, stuck = [], [[] for _ in need], set(), set()
        while any(s > 0 for s in short):
            leaves = [
                i
                for i in self.nodes
                if i not in gone | stuck and all(c in gone for c in self.children(i))
            ]
            if not leaves:
                break
            leaf = min(leaves, key=self.priority)
            node = self.nodes[leaf]
            keep = len(node.path)
            while keep > node.start and any(s > 0 for s in short):
                unit = self.units[node.namespace, node.path[:keep]]
                if self.is_locked(unit, locked):
                    break
                keep -= 1
                for g, pages in enumerate(unit):
                    taken[g] += [p for p in pages if p]
                    short[g] -= sum(1 for p in pages if p)
            if keep < len(node.path):
                cuts.append((leaf, keep - node.start))
            (gone if keep == node.start else stuck).add(leaf)
        return cuts, taken

    def window_victims(self, group, count, locked):
        """The pages of a window group that go alone, in order."""
        chosen = []
        for node_id in sorted(self.nodes, key=self.priority):
            node = self.nodes[node_id]
            pages = self.group_pages(node.namespace, node.path, group, node.start)
            chosen += [p for p in pages if p and (group, p) not in locked]
        return chosen[:count]

    def remove_cuts(self, cuts):
        touched = []
        for node_id, keep in cuts:
            node = self.nodes[node_id]
            above = self.node_over(node.namespace, node.path[: node.start]) if node.start else None
            touched.append(node_id if keep else above)
            for k in range(node.start + keep, len(node.path)):
                del self.units[node.namespace, node.path[: k + 1]]
            if keep:
                node.path = node.path[: node.start + keep]
            else:
                self.drop(node_id)
        if None not in self.windows:
            for node_id in touched:
                self.prune(node_id)
        self.reset_when_empty()

    def remove_window_pages(self, group, pages):
        touched = []
        for node_id in sorted(self.nodes, key=self.priority):
            node = self.nodes[node_id]
            hit = False
            for k in range(node.start, len(node.path)):
                unit = self.units[node.namespace, node.path[: k + 1]][group]
                hit = hit or any(p in pages for p in unit)
                unit[:] = [0 if p in pages else p for p in unit]
            if hit:
                touched.append(node_id)
        if None not in self.windows:
            for node_id in touched:
                self.prune(node_id)
        self.reset_when_empty()

    def prune(self, node_id):
        while node_id in self.nodes and not self.children(node_id):
            node = self.nodes[node_id]
            while len(node.path) > node.start:
                if any(map(any, self.units[node.namespace, node.path])):
                    return
                del self.units[node.namespace, node.path]
                node.path = node.path[:-1]
            parent = self.node_over(node.namespace, node.path) if node.path else None
            self.drop(node_id)
            node_id = parent

    def drop(self, node_id):
        namespace = self.nodes.pop(node_id).namespace
        self.free_ids.append(node_id)
        if not any(n.namespace == namespace for n in self.nodes.values()):
            self.free_ids.append(self.roots.pop(namespace))

    def reset_when_empty(self):
        if not self.nodes:
            self.__init__(self.page_sizes, self.windows, self.policy, self.extends)

    def all_pages(self, group):
        return sorted(p for unit in self.units.values() for p in unit[group] if p)

    def evictable(self, group, locked):
        if self.windows[group] is not None:
            return sum((group, p) not in locked for p in self.all_pages(group))
        count = 0
        for (namespace, path), unit in self.units.items():
            below = (
                u for (n, p), u in self.units.items() if n == namespace and p[: len(path)] == path
            )
            if not any(self.is_locked(u, locked) for u in below):
                count += sum(1 for p in unit[group] if p)
        return count
