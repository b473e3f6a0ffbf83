"""Messages that pass the proxy: the fields read on the way, and the patches in place.

Imports `wire.protocol` and `wire.codec`. A *patch* changes bytes of a frame. No module here decodes a whole message.
"""
