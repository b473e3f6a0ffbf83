"""Messages that pass the proxy: the fields read on the way, and the patches in place.

Imports `wire.protocol` and `wire.codec`. A *patch* changes bytes of a frame. No module here decodes a whole message.
Each function raises `ProtocolError` if the bytes can't be the message that it reads. One that may be called with the
first bytes of a message says what it returns if more are needed.
"""
