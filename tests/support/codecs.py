"""Payload codecs as applications write them."""

from __future__ import annotations

import zlib

from cryptography.fernet import Fernet, MultiFernet


class FernetCodec:
    """Encrypts with the first key and reads with any of them."""

    def __init__(self, *keys: bytes, name: str = "fernet", hash_key: bytes | None = None) -> None:
        self.name, self.hash_key = name, hash_key
        self._fernet = MultiFernet([Fernet(key) for key in keys])

    def encode(self, data: bytes) -> bytes:
        return self._fernet.encrypt(data)

    def decode(self, data: bytes) -> bytes:
        return self._fernet.decrypt(data)


class ZlibCodec:
    """Compresses."""

    name = "zlib"

    def encode(self, data: bytes) -> bytes:
        return zlib.compress(data)

    def decode(self, data: bytes) -> bytes:
        return zlib.decompress(data)


class NoCheck:
    """A cipher that does not notice a wrong key: it gives back something else."""

    name = "xor"

    def __init__(self, key: int) -> None:
        self.key = key

    def encode(self, data: bytes) -> bytes:
        return bytes(each ^ self.key for each in data)

    decode = encode
