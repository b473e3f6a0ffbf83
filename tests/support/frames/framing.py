"""Frames: content with its length in front."""


def framed(content: bytes) -> bytes:
    """The frame with this content."""
    return len(content).to_bytes(4, "big") + content


def hex_frame(text: str) -> bytes:
    """The frame with this content, in hexadecimal digits."""
    return framed(bytes.fromhex(text))
