"""Record batches of producers that number theirs, as far as anybody reads them on the way."""


def batch(sequence: int, *, producer_id: int = 9, epoch: int = 0, size: int = 70) -> bytes:
    """A batch whose first record has a sequence number."""
    head = bytes(16) + b"\2" + bytes(26)
    numbers = producer_id.to_bytes(8, "big") + epoch.to_bytes(2, "big") + sequence.to_bytes(4, "big")
    return (head + numbers).ljust(size, b"\0")


def sequence_of(records: bytes) -> int:
    """The sequence number of a batch's first record."""
    return int.from_bytes(records[53:57], "big")
