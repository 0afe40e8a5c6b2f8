"""What may happen to a log's files, checksums left as they are: one random damage at a time."""

import zlib

import msgspec

from kvlife.log.walk import BadRecord, records
from kvlife.log.wire import SEGMENT_HEAD, SEGMENT_HEAD_BYTES

HUGE = (b"\xff" * 4, b"\0\0\0\x7f", b"\xff\xff\0\0", b"\0\0\0\x80", b"\xff" * 8)
# What a number in a header may become.
NUMBERS = (0, -1, 1, 7, 1 << 31, 1 << 63, 1 << 70, -(1 << 40), 1.5, 1e308, "16", None, [], True)


def record_spans(content):
    """Where the records of a raw segment lie; none in what is no raw segment."""
    if len(content) < SEGMENT_HEAD_BYTES or not content.startswith(b"KVLIFESG"):
        return []
    head = SEGMENT_HEAD.unpack_from(content)
    crc = zlib.crc32(content[: SEGMENT_HEAD.size])
    spans = []
    try:
        for _, _, end, _, _, offset, _ in records(content, SEGMENT_HEAD_BYTES, crc, *head[6:8]):
            spans.append((offset, end))
    except BadRecord:
        pass
    return spans


def used_len(content):
    """Up to where there is something in a file whose end is reserved space."""
    return max(len(content.rstrip(b"\0")), 1)


class Damage:
    """One damage to the files of a run; `files` maps names to contents."""

    def __init__(self, files, choice):
        self.files = dict(files)
        self.choice = choice

    def do(self):
        """Damage something, and say what was done."""
        damage = self.choice.choice(DAMAGES)
        try:
            damage(self)
        except (IndexError, ValueError):
            # Earlier damages have left no file, segment or name that this one could be done to.
            return f"no {damage.__name__}"
        return damage.__name__

    def name(self, *suffixes):
        found = [name for name in sorted(self.files) if name.endswith(suffixes or "")]
        return self.choice.choice(found or sorted(self.files))

    def flip_bits(self):
        name = self.name()
        content = bytearray(self.files[name])
        for _ in range(self.choice.choice((1, 1, 1, 4, 30))):
            content[self.choice.randrange(used_len(content))] ^= 1 << self.choice.randrange(8)
        self.files[name] = bytes(content)

    def cut(self):
        name = self.name()
        content = self.files[name]
        self.files[name] = content[: self.choice.randrange(used_len(content))]

    def tear(self):
        """The end of the last segment never reached the disk."""
        name = max(name for name in self.files if ".seg" in name)
        content = self.files[name]
        at = self.choice.randrange(used_len(content))
        self.files[name] = content[:at] + bytes(len(content) - at)

    def zero(self):
        name = self.name()
        content = bytearray(self.files[name])
        at = self.choice.randrange(used_len(content))
        num = min(self.choice.randrange(1, 300), len(content) - at)
        content[at : at + num] = bytes(num)
        self.files[name] = bytes(content)

    def huge_number(self):
        name = self.name()
        content = bytearray(self.files[name])
        at, number = self.choice.randrange(used_len(content)), self.choice.choice(HUGE)
        content[at : at + len(number)] = number
        self.files[name] = bytes(content)

    def insert_bytes(self):
        name = self.name()
        content = self.files[name]
        at = self.choice.randrange(used_len(content))
        some = self.choice.randbytes(self.choice.randrange(1, 60))
        self.files[name] = content[:at] + some + content[at:]

    def repeat_record(self):
        name = self.name(".seg")
        spans = record_spans(self.files[name])
        if not spans:
            return self.flip_bits()
        low, high = self.choice.choice(spans)
        content = self.files[name]
        self.files[name] = (content[:high] + content[low:high] + content[high:])[: len(content)]
        return None

    def leave_record_out(self):
        name = self.name(".seg")
        spans = record_spans(self.files[name])
        if not spans:
            return self.cut()
        low, high = self.choice.choice(spans)
        content = self.files[name]
        self.files[name] = content[:low] + content[high:] + bytes(high - low)
        return None

    def swap_records(self):
        name = self.name(".seg")
        spans = record_spans(self.files[name])
        if len(spans) < 2:
            return self.flip_bits()
        (low, mid), (left, right) = sorted(self.choice.sample(spans, 2))
        old = self.files[name]
        self.files[name] = old[:low] + old[left:right] + old[mid:left] + old[low:mid] + old[right:]
        return None

    def lose_file(self):
        del self.files[self.name()]

    def lose_files(self):
        suffix = self.choice.choice((".snap", ".seg", ".segz", ".json"))
        self.files = {name: c for name, c in self.files.items() if not name.endswith(suffix)}

    def swap_files(self):
        suffix = self.choice.choice((".snap", ".seg", ".segz", ""))
        left, right = self.name(suffix), self.name(suffix)
        self.files[left], self.files[right] = self.files[right], self.files[left]

    def rename_file(self):
        name = self.name(".snap", ".seg", ".segz")
        digit = self.choice.choice([at for at, letter in enumerate(name) if letter.isdigit()])
        renamed = name[:digit] + str(self.choice.randrange(10)) + name[digit + 1 :]
        self.files[renamed] = self.files.pop(name)

    def copy_file(self):
        """A second file under a name that is free, or instead of another."""
        name = self.name(".snap", ".seg", ".segz")
        self.files[self.name(".snap", ".seg", ".segz")] = self.files[name]

    def edit_header(self):
        edit_header(self.files, self.choice)


DAMAGES = [
    Damage.flip_bits,
    Damage.flip_bits,
    Damage.flip_bits,
    Damage.cut,
    Damage.tear,
    Damage.zero,
    Damage.huge_number,
    Damage.insert_bytes,
    Damage.repeat_record,
    Damage.leave_record_out,
    Damage.swap_records,
    Damage.lose_file,
    Damage.lose_files,
    Damage.swap_files,
    Damage.rename_file,
    Damage.copy_file,
    Damage.edit_header,
]


def edit_header(files, choice):
    """Give one place of the header another value, if there is one."""
    if "header.json" not in files:
        return
    try:
        tree = msgspec.json.decode(files["header.json"])
    except msgspec.DecodeError:
        return  # an earlier damage has left nothing that could be edited
    # An earlier damage may have left out any of these, or put something else in its place.
    config = tree.get("config")
    groups = config.get("groups") if isinstance(config, dict) else None
    parts = [tree, config, config, config, *(groups if isinstance(groups, list) else ())]
    places = [(part, name) for part in parts if isinstance(part, dict) for name in part]
    if isinstance(tree.get("policies"), dict):
        places += [(tree["policies"], name) for name in list(tree["policies"])[:3]]
    where, name = choice.choice(places)
    match choice.randrange(6):
        case 0:
            del where[name]
        case 1:
            where["unheard of"] = 1
        case 2:
            where[name] = choice.choice(("", "\ud800", "off", "collect", "full", {}, [[[]]] * 9))
        case 3 if isinstance(where[name], int):
            where[name] += choice.choice((-1, 1, 2, 16))
        case _:
            where[name] = choice.choice(NUMBERS)
    try:
        files["header.json"] = msgspec.json.encode(tree)
    except (UnicodeEncodeError, msgspec.MsgspecError, OverflowError):
        files["header.json"] = b"[" * choice.choice((1, 100_000))
