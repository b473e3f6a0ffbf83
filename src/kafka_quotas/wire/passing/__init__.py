"""Messages that pass the proxy: what is read from them on the way, and what is patched in place.

Imports `wire.protocol` and `wire.codec`. A *patch* changes bytes of a frame; nothing here decodes a whole message.
"""
