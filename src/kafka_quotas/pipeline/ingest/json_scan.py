"""JSON objects read in machine code: the members that a table names, and values of any kind skipped.

An `Object` has its members, those of the objects in it, and what is read of each: a figure, a text by its begin and
end, or what a broker charges for it. `reader_of` compiles a function that reads such an object.

Invariants: a step checks all that it passes, and refuses what brokers do not write: blanks, escapes, bytes beyond
ASCII, exponents, figures of more than 12 digits (whole ones of more than 18), a member twice, objects without members.
It returns -1 as the place after what it refuses. The bytes end with a line feed. No step passes over one, which is why
no step compares with the end.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kafka_quotas.pipeline.formats.request_log import compact_length_bytes
from kafka_quotas.pipeline.kernels.compiled import Kernel, compiled

NEWLINE, _QUOTE, COLON, COMMA, MINUS, _POINT = (ord(each) for each in '\n":,-.')
_OPEN, CLOSE, _OPEN_LIST, _CLOSE_LIST = (ord(each) for each in "{}[]")
ZERO, NINE, _T, _F, _N = (ord(each) for each in "09tfn")

SKIP, WHOLE, DECIMAL, FLAG, SIGN, STRING, NAME, OBJECT, LIST, CHOSEN, TEXT, RECORDS = range(12)
"""What is read of a member: nothing, a figure from 0, a literal, whether a figure is at least 0, a text, a text or
figure that nothing follows from, an object, a list of objects, the object that key and version choose, and a text or
a size of records that are charged."""
FREE: Final = 3
CHARGED, KEY, VERSION = range(FREE)
"""Figures of every object: the bytes charged, and what chooses among objects. Others come from `FREE` on."""
KEYS: Final = 128
VERSIONS: Final = 32
_LARGEST: Final = 10**18
DEEPEST: Final = 8


class Member(NamedTuple):
    """A member of an object."""

    name: str
    kind: int = SKIP
    target: int = 0
    """Where its figure or text is put: a list's is its length."""
    child: "Object | None" = None
    """The object, or each object of a list."""
    below: int = _LARGEST
    """Upper bound of a whole figure."""
    is_nullable: bool = False
    """Whether it may be null, which is -1, no text or an empty list."""
    is_needed: bool = True


class Object(NamedTuple):
    """An object, its members in the order in which most writers have them."""

    members: tuple[Member, ...]
    charged: int = 0
    """Bytes that are charged for it apart from its members."""
    is_compact: bool = False
    """Whether lengths are charged as compact ones."""


def _tables(root: Object, choices: Sequence[Mapping[tuple[int, int], Object]]) -> tuple[Any, ...]:
    """Return members and objects in arrays, the outermost object first.

    Returns:
        By member its beginning with quotes and colon, the length of that, and its rules: kind, target, number of the
        child, upper bound, whether it is nullable. By object the first member, the one after its last, the bits of
        needed ones, bytes charged, compactness. By target, key and version the number of the object, -1 to skip it.
    """
    known: dict[Object, int] = {}

    def number(each: Object | None) -> int:
        if each is None:
            return -1
        if each not in known:
            known[each] = len(known)
            for member in each.members:
                number(member.child)
        return known[each]

    number(root)
    chosen = np.full((len(choices), KEYS, VERSIONS), -1, dtype=np.int16)
    for target, by_version in enumerate(choices):
        for place, each in by_version.items():
            chosen[target, *place] = number(each)
    members = [member for each in known for member in each.members]
    names = [f'"{member.name}":'.encode() for member in members]
    rules = [(each.kind, each.target, number(each.child), each.below, each.is_nullable) for each in members]
    objects, end = [], 0
    for each in known:
        needed = sum(
            1 << place for place, member in enumerate(each.members) if member.is_needed and member.kind != SKIP
        )
        objects.append((end, end + len(each.members), needed, each.charged, each.is_compact))
        end += len(each.members)
    width = max(map(len, names))
    padded = np.array([list(name.ljust(width)) for name in names], dtype=np.uint8)
    return padded, np.array(list(map(len, names))), np.array(rules), np.array(objects, dtype=np.int64), chosen


_compact = compiled(compact_length_bytes)


def reader_of(root: Object, choices: Sequence[Mapping[tuple[int, int], Object]] = ()) -> Kernel:
    """Return a function that reads an object, compiled for its members.

    `choices` has, for each target of a chosen member, the objects by key and version.
    """
    names, sizes, rules, objects, chosen = _tables(root, choices)  # constants to the compiler, which arguments are not

    def read_object(buf: Any, at: int, numbers: Any, reals: Any, places: Any, outer: Any) -> int:
        """Return the place after an object.

        Args:
            buf: Bytes that end with a line feed.
            at: Where the object begins.
            numbers: Whole figures by target, int64. What is charged is added to `CHARGED`.
            reals: Other figures by target, float64.
            places: Begin and end of texts by target, int64.
            outer: Room for the objects around one, int64 of shape (`DEEPEST`, 4): each with the members seen, the next
                one, and the objects of a list.
        """
        depth, number, seen, expected, begins = 0, 0, 0, 0, True
        while True:
            if begins:
                if buf[at] != _OPEN or buf[at + 1] == CLOSE:
                    return -1
                numbers[CHARGED] += objects[number, 3]
                seen, expected, begins = 0, objects[number, 0], False
            # the member that begins here, most often the expected one
            at += 1
            first, end, member, found = objects[number, 0], objects[number, 1], expected, -1
            for _ in range(end - first):
                member = first if member == end else member
                size, place = sizes[member], 0
                while place < size and buf[at + place] == names[member, place]:
                    place += 1
                if place == size:
                    found = member
                    at += size
                    break
                member += 1
            kind, target = SKIP, 0
            if found < 0:
                at = _read_key(buf, at)[2]
                if at < 0:
                    return -1
            else:
                if seen >> (member - first) & 1:
                    return -1
                seen |= 1 << (member - first)
                expected, kind, target = member + 1, rules[member, 0], rules[member, 1]
            child = rules[member, 2] if kind == OBJECT or kind == LIST else -1
            if kind == CHOSEN:
                if numbers[KEY] < 0:
                    return -1
                child = chosen[target, numbers[KEY], numbers[VERSION]]
                kind = OBJECT if child >= 0 else SKIP
            if kind == OBJECT or (kind == LIST and buf[at] == _OPEN_LIST and buf[at + 1] != _CLOSE_LIST):
                outer[depth, 0], outer[depth, 1] = number, seen
                outer[depth, 2], outer[depth, 3] = expected, kind == LIST
                depth, number, begins = depth + 1, child, True
                at += kind == LIST
                continue
            is_null = kind != SKIP and rules[member, 4] != 0 and buf[at] == _N
            if is_null:
                at = read_literal(buf, at, _NULL)
            if kind == SKIP:
                at = _skip_value(buf, at)
            elif kind == WHOLE or kind == RECORDS:
                value = -1
                if not is_null:
                    value, at = _read_whole(buf, at)
                if value >= rules[member, 3]:
                    return -1
                if kind == WHOLE:
                    numbers[target] = value
                else:
                    numbers[CHARGED] += value + (_compact(value) if objects[number, 4] else 4)
            elif kind == DECIMAL:
                reals[target], at = _read_decimal(buf, at)
            elif kind == FLAG:
                numbers[target] = buf[at] == _T
                at = read_literal(buf, at, _TRUE if buf[at] == _T else _FALSE)
            elif kind == STRING or kind == TEXT:
                start, stop = at, at
                if not is_null:
                    start, stop, at = _read_string(buf, at)
                if kind == STRING:
                    places[target, 0], places[target, 1] = start, stop
                else:
                    numbers[CHARGED] += stop - start + (_compact(stop - start) if objects[number, 4] else 2)
            elif kind == SIGN:
                if numbers[target] >= 0:
                    return -1
                is_below = buf[at] == MINUS
                value, at = _read_whole(buf, at + is_below)
                numbers[target] = value == 0 or not is_below
            elif kind == NAME:
                at = _read_string(buf, at)[2] if buf[at] == _QUOTE else _read_whole(buf, at)[1]
            elif kind == LIST:
                numbers[target] = 0
                numbers[CHARGED] += 1 if objects[number, 4] else 4
                if not is_null:
                    at = at + 2 if buf[at] == _OPEN_LIST else -1
            if at < 0 or (buf[at] != COMMA and buf[at] != CLOSE):
                return -1
            while buf[at] == CLOSE:
                if seen & objects[number, 2] != objects[number, 2]:
                    return -1
                at += 1
                if depth == 0:
                    return at
                count = outer[depth - 1, 3]
                if count > 0 and buf[at] == COMMA:
                    outer[depth - 1, 3], begins = count + 1, True
                    at += 1
                    break
                depth -= 1
                number, seen, expected = outer[depth, 0], outer[depth, 1], outer[depth, 2]
                if count > 0:
                    if buf[at] != _CLOSE_LIST:
                        return -1
                    at += 1
                    numbers[rules[expected - 1, 1]] = count
                    numbers[CHARGED] += _compact(count) if objects[number, 4] else 4
                if buf[at] != COMMA and buf[at] != CLOSE:
                    return -1

    return compiled(read_object)


def _text(name: str) -> Any:
    return np.frombuffer(name.encode(), dtype=np.uint8)


_TRUE, _FALSE, _NULL = _text("true"), _text("false"), _text("null")
_PLAIN: Final = np.array([0x20 <= byte < 0x80 and byte not in b'"\\' for byte in range(256)], dtype=np.bool_)
_POWERS: Final = np.array([10.0**exponent for exponent in range(13)])
_DIGITS: Final = 12
_LONGEST_NUMBER: Final = 18
_DEEPEST_SKIPPED: Final = 60
_FNV_PRIME: Final = 1_099_511_628_211


@compiled
def _string_end(buf: Any, at: int) -> int:
    """Return where the closing quote of a text is, from its first byte on."""
    while _PLAIN[buf[at]]:
        at += 1
    return at if buf[at] == _QUOTE else -1


@compiled
def _read_string(buf: Any, at: int) -> tuple[int, int, int]:
    """Return the begin and end of a text, and the place after its quote."""
    if buf[at] != _QUOTE:
        return 0, 0, -1
    stop = _string_end(buf, at + 1)
    return at + 1, stop, stop + 1 if stop >= 0 else -1


@compiled
def _read_key(buf: Any, at: int) -> tuple[int, int, int]:
    """Return the begin and end of a member's name, and the place after its colon."""
    start, stop, at = _read_string(buf, at)
    if at < 0 or buf[at] != COLON:
        return 0, 0, -1
    return start, stop, at + 1


@compiled
def read_literal(buf: Any, at: int, name: Any) -> int:
    """Return the place after the bytes of a name."""
    for place in range(name.size):
        if buf[at + place] != name[place]:
            return -1
    return at + int(name.size)


@compiled
def _read_whole(buf: Any, at: int) -> tuple[int, int]:
    """Return a whole number from 0 and the place after it."""
    first, value = at, 0
    while ZERO <= buf[at] <= NINE:
        value = value * 10 + (buf[at] - ZERO)
        at += 1
        if at - first > _LONGEST_NUMBER:
            return 0, -1
    if at == first or (buf[first] == ZERO and at > first + 1) or (buf[at] != COMMA and buf[at] != CLOSE):
        return 0, -1
    return value, at


@compiled
def _read_decimal(buf: Any, at: int) -> tuple[float, int]:
    """Return a number from 0 and the place after it, rounded as `float` rounds it."""
    first, point, value = at, -1, 0
    while (ZERO <= buf[at] <= NINE) or (buf[at] == _POINT and point < 0 and at > first):
        if buf[at] == _POINT:
            point = at
        else:
            value = value * 10 + (buf[at] - ZERO)
        at += 1
        if at - first > _DIGITS:
            return 0.0, -1
    has_zero = buf[first] == ZERO and at > first + 1 and point != first + 1
    if at == first or point == at - 1 or has_zero or (buf[at] != COMMA and buf[at] != CLOSE):
        return 0.0, -1
    # both are exact below 2^53, and so their quotient is the nearest float
    return (value / _POWERS[at - point - 1] if point >= 0 else float(value)), at


@compiled
def _number_end(buf: Any, at: int) -> int:
    first = at
    if buf[at] == MINUS:
        at += 1
    digits = at
    while ZERO <= buf[at] <= NINE:
        at += 1
    if at == digits or (buf[digits] == ZERO and at > digits + 1):
        return -1
    if buf[at] == _POINT:
        point = at
        at += 1
        while ZERO <= buf[at] <= NINE:
            at += 1
        if at == point + 1:
            return -1
    if at - first > _LONGEST_NUMBER:  # beyond 64 bits JSON libraries differ
        return -1
    return at


@compiled
def _skip_value(buf: Any, at: int) -> int:
    """Return the place after a value of any kind."""
    depth, kinds = 0, 0  # a bit per level, 1 for an object
    while True:
        byte = buf[at]
        if byte == _QUOTE:
            at = _string_end(buf, at + 1) + 1
            if at == 0:
                return -1
        elif byte == _OPEN or byte == _OPEN_LIST:
            is_object = byte == _OPEN
            at += 1
            if buf[at] == (CLOSE if is_object else _CLOSE_LIST):
                at += 1
            else:
                depth += 1
                if depth > _DEEPEST_SKIPPED:
                    return -1
                kinds = kinds << 1 | is_object
                if is_object:
                    _, _, at = _read_key(buf, at)
                    if at < 0:
                        return -1
                continue
        elif byte == _T or byte == _F or byte == _N:
            at = read_literal(buf, at, _TRUE if byte == _T else _FALSE if byte == _F else _NULL)
        else:
            at = _number_end(buf, at)
        if at < 0:
            return -1
        while depth > 0 and buf[at] == (CLOSE if kinds & 1 else _CLOSE_LIST):
            at += 1
            kinds >>= 1
            depth -= 1
        if depth == 0:
            return at
        if buf[at] != COMMA:
            return -1
        at += 1
        if kinds & 1:
            _, _, at = _read_key(buf, at)
            if at < 0:
                return -1


TAKEN, FORWARDED, BLANK, ODD = range(4)
"""What becomes of a line: a row, nothing if it is a forwarded request or has no byte, or a line's parser reads it."""


class Scan(NamedTuple):
    """The result of a scan of lines."""

    kinds: NDArray[np.int8]
    """What became of each line."""
    figures: NDArray[np.int64]
    """Figures by line taken. The first ones are texts, each by its number in `texts`."""
    reals: NDArray[np.float64]
    """A further figure by line taken."""
    texts: list[list[bytes]]
    """The different texts of each kind."""


def scan_of(kernel: Kernel, buf: NDArray[np.uint8], ends: NDArray[np.int64], *, texts: int, figures: int) -> Scan:
    """Scan lines by a kernel of the arguments below, which returns the number of lines taken.

    Args:
        kernel: Fills kinds, figures and reals by `Scan`, and for each kind of text (int64 of shape (texts, lines, 2))
            begin and end of the different ones, their numbers by hash and how many there are, by `take_row`.
        buf: Bytes that end with a line feed, not to be written.
        ends: Where each line ends, after a first entry that says where the first begins; or room for that.
        texts: The number of kinds of texts.
        figures: The number of figures of a line, its texts included.
    """
    lines = ends.size - 1
    kinds, found, reals = np.zeros(lines, np.int8), np.empty((figures, lines), np.int64), np.empty(lines)
    spans, counts = np.empty((texts * lines, 2), np.int64), np.zeros(texts, np.int64)
    slots = np.full(texts * (2 << lines.bit_length()), -1, np.int32)
    taken = kernel(buf, ends, kinds, found, reals, spans, slots, counts)
    known = zip(spans.reshape(texts, lines, 2), counts.tolist(), strict=True)
    names = [[buf[begin:end].tobytes() for begin, end in own[:count].tolist()] for own, count in known]
    return Scan(kinds, found[:, :taken], reals[:taken], names)


@compiled
def take_row(buf: Any, row: Any, places: Any, figures: Any, spans: Any, slots: Any, counts: Any, taken: int) -> None:
    """Put the figures of a line among those taken, with its texts, at `places`, by their numbers.

    `row` has the texts of the line before: neighbouring lines often have equal ones. `spans` and `slots` have equal
    parts by kind of text.
    """
    lines, room = spans.shape[0] // counts.size, slots.size // counts.size
    for kind in range(counts.size):
        start, stop, first = places[kind, 0], places[kind, 1], kind * lines
        last = first + row[kind]
        if not (row[kind] < counts[kind] and _is_same(buf, start, stop, spans[last, 0], spans[last, 1])):
            row[kind] = _text_number(buf, start, stop, spans, slots, first, kind * room, room, counts[kind])
            counts[kind] = max(counts[kind], row[kind] + 1)
    for place in range(row.size):
        figures[place, taken] = row[place]


@compiled
def _text_number(
    buf: Any, start: int, stop: int, spans: Any, slots: Any, first: int, begin: int, room: int, texts: int
) -> int:
    """Return the number of a text among the different ones of its kind, to which new ones are added.

    There are `texts` so far. `slots` has numbers by hash, -1 if free: a power of two, at least twice the texts.
    """
    code = 1469598103934665603
    for place in range(start, stop):
        code = (code ^ buf[place]) * _FNV_PRIME
    slot = (code ^ (code >> 29)) & (room - 1)
    while slots[begin + slot] >= 0:
        number = int(slots[begin + slot])
        if _is_same(buf, start, stop, spans[first + number, 0], spans[first + number, 1]):
            return number
        slot = (slot + 1) & (room - 1)
    slots[begin + slot] = texts
    spans[first + texts, 0], spans[first + texts, 1] = start, stop
    return texts


@compiled
def _is_same(buf: Any, start: int, stop: int, known_start: int, known_stop: int) -> bool:
    if known_stop - known_start != stop - start:
        return False
    for place in range(stop - start):  # noqa: SIM110 - compiled
        if buf[start + place] != buf[known_start + place]:
            return False
    return True
