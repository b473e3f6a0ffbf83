"""Frames written in hexadecimal digits."""


def hex_frame(text: str) -> bytes:
    """The frame with this content, its length in front."""
    content = bytes.fromhex(text)
    return len(content).to_bytes(4, "big") + content
