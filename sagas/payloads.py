"""Payloads as they are stored: plain JSON, or sealed by the application's own codec (encryption, compression).

A sealed payload is JSON too, an envelope with the name of the codec that sealed it. So a payload is opened by who
sealed it, whatever is written today: old rows stay readable when the codec changes, as long as the old one is listed.
What has sensitive fields lies in an envelope without a codec, beside the form that may be shown: whoever shows payloads
needs neither the key nor the code of the saga.
"""

from __future__ import annotations

import base64
import hmac
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any, Final, Protocol

import msgspec
from msgspec import UNSET, Raw

from sagas import codec
from sagas.errors import CodecError, ConfigurationError, InvalidInput, PayloadLocked
from sagas.sensitive import MASK, masked
from sagas.storable import facts_of

MARK: Final = b'"$sealed"'
NULL: Final = b"null"
PROBE: Final = b"sagas"  # sealed with each large payload, so that the key can be tried without opening that
LARGE: Final = 32 * 1024  # bytes; what is larger is loaded only when it is asked for
MOST_SHOWN: Final = 16 * 1024  # bytes of a payload that is stored a second time, masked
MAX_NAME: Final = 64  # characters


class PayloadCodec(Protocol):
    """What the application provides to seal payloads. Calls may come from several threads at once.

    A codec that encrypts may have `hash_key: bytes` as well; the fingerprints of inputs are made with it then.
    """

    @property
    def name(self) -> str:
        """Stored with each payload; give a codec that cannot read what the one before wrote another name."""

    def encode(self, data: bytes, /) -> bytes:
        """Seal a payload, given as JSON."""

    def decode(self, data: bytes, /) -> bytes:
        """Open what `encode` returned; raises where it cannot."""


class Envelope(msgspec.Struct, omit_defaults=True):
    """How a payload lies in the database that is not stored as it is."""

    by: str = msgspec.field(name="$sealed")  # name of the codec; "": none
    data: Raw  # the payload itself, or base64 of what the codec made of it
    probe: str | None = None  # base64 of the sealed PROBE; large payloads only
    shown: Raw | msgspec.UnsetType = UNSET  # the payload with its sensitive fields masked


_envelope = msgspec.json.Decoder(Envelope)


class Payloads:
    """How the payloads of one store are written and read.

    Args:
        codecs: the first one seals, and all of them open what bears their name; none: payloads are plain JSON.

    Raises:
        ConfigurationError: one is no codec, or two have the same name.
    """

    def __init__(self, codecs: Sequence[PayloadCodec] = ()) -> None:
        for each in codecs:
            _check(each)
        self._writer = codecs[0] if codecs else None
        self._by_name: Mapping[str, PayloadCodec] = {each.name: each for each in codecs}
        if len(self._by_name) < len(codecs):
            raise ConfigurationError("payload_codec: two codecs have the same name; each payload is opened by its name")

    @property
    def seals(self) -> bool:
        """Whether what is written now is sealed."""
        return self._writer is not None

    @classmethod
    def of(cls, given: Any) -> Payloads:
        """From a setting: nothing, a codec, several, or where they are (`"module.attribute"`).

        Raises:
            ConfigurationError: it is none of these.
        """
        if isinstance(given, cls):
            return given
        if isinstance(given, str):
            given = _imported(given)
        if given is None:
            return PLAIN
        return cls(list(given) if isinstance(given, list | tuple) else [given])

    def store(
        self, value: object, declared: Any, *, limit: int, what: str, of: str = "",
        error: type[CodecError] = InvalidInput,
    ) -> bytes:  # fmt: skip
        """A value as it is stored. See `sagas.codec.encode`."""
        return self.seal(codec.encode(value, declared=declared, limit=limit, what=what, error=error, of=of), declared)

    def read(self, stored: bytes | str, declared: Any, *, what: str) -> Any:
        """The value of what is stored. See `sagas.codec.decode`.

        Raises:
            PayloadLocked: it is sealed and cannot be opened here.
        """
        return codec.decode(self.open(stored, what=what), declared, what=what)

    def seal(self, raw: bytes, declared: Any) -> bytes:
        """JSON of a value as it is stored. That there is no value is not sealed."""
        if raw == NULL:
            return raw
        if self._writer is not None:
            return _sealed(self._writer, raw)
        if facts_of(declared).sensitive:
            return msgspec.json.encode(Envelope("", Raw(raw), None, Raw(_shown(raw, declared))))
        return msgspec.json.encode(Envelope("", Raw(raw))) if MARK in raw else raw

    def hash_of(self, raw: bytes, stored: bytes) -> str:
        """The fingerprint of an input that is not stored as it is; nothing where the stored one tells it.

        Under the codec's `hash_key` where it has one, so that nobody can try inputs against it.
        """
        if stored == raw:
            return ""
        key = getattr(self._writer, "hash_key", None)
        if key is None:
            return codec.fingerprint(raw)
        return hmac.new(key, codec.canonical(raw), "sha256").hexdigest()

    def open(self, stored: bytes | str, *, what: str = "payload") -> bytes:
        """JSON of a value, from what is stored.

        Raises:
            PayloadLocked: no codec of this name is set up here, or it cannot open it.
        """
        raw = stored.encode() if isinstance(stored, str) else bytes(stored)
        envelope = _enveloped(raw)
        if envelope is None:
            return raw
        if envelope.by == "":
            return bytes(envelope.data)
        found = self._opened(envelope.by, msgspec.json.decode(envelope.data, type=bytes), what)
        try:
            msgspec.json.decode(found, type=Raw)
        except msgspec.DecodeError:
            raise PayloadLocked(f"{what}: codec {envelope.by!r} made no JSON of it; is its key right?") from None
        return found

    def try_key(self, by: str, probe: str, *, what: str) -> None:
        """Whether a large payload could be opened, without having it.

        Raises:
            PayloadLocked: it could not.
        """
        if self._opened(by, base64.b64decode(probe), what) != PROBE:
            raise PayloadLocked(f"{what}: codec {by!r} does not open what it sealed; is its key right?")

    def _opened(self, by: str, data: bytes, what: str) -> bytes:
        found = self._by_name.get(by)
        if found is None:
            known = ", ".join(map(repr, self._by_name)) or "none"
            raise PayloadLocked(
                f"{what}: sealed by payload codec {by!r}, and this process has {known}; add it to payload_codec (the "
                f"first one of several writes, all of them read)"
            )
        try:
            return found.decode(data)
        except Exception as problem:
            raise PayloadLocked(
                f"{what}: payload codec {by!r} cannot open it ({type(problem).__name__}); has it the key that it was "
                f"sealed with?"
            ) from problem


PLAIN: Final = Payloads()


def shown(stored: bytes | str) -> str:
    """A stored payload as JSON for a person to look at: sensitive fields masked, and nothing of what is sealed."""
    raw = stored.encode() if isinstance(stored, str) else bytes(stored)
    envelope = _enveloped(raw)
    if envelope is None:
        return raw.decode()
    if isinstance(envelope.shown, Raw):
        return bytes(envelope.shown).decode()
    if envelope.by == "":
        return bytes(envelope.data).decode()
    return msgspec.json.encode(f"(sealed by {envelope.by})").decode()


def shown_value(value: Any) -> Any:
    """The same for a payload that a framework has read from JSON already."""
    if not (isinstance(value, dict) and "$sealed" in value):
        return value
    return msgspec.json.decode(shown(msgspec.json.encode(value)))


def request_text(payload: str | None) -> str:
    """What a request says, for a log line: the beginning of it, without what was signalled, or sensitive, or sealed."""
    try:
        said = msgspec.json.decode(payload or "{}", type=dict[str, Raw])
    except msgspec.MsgspecError:
        return "(unreadable)"
    told = (f"{name}: {shown(bytes(value))[:200]}" for name, value in said.items() if name != "value")
    return "{" + ", ".join(told)[:400] + "}"


def _enveloped(raw: bytes) -> Envelope | None:
    if MARK not in raw or raw[:1] != b"{":
        return None
    try:
        return _envelope.decode(raw)
    except msgspec.MsgspecError:  # the mark stands somewhere inside of a value
        return None


def _sealed(by: PayloadCodec, raw: bytes) -> bytes:
    data = Raw(msgspec.json.encode(by.encode(raw)))
    probe = base64.b64encode(by.encode(PROBE)).decode() if len(data) > LARGE // 2 else None
    return msgspec.json.encode(Envelope(by.name, data, probe))


def _shown(raw: bytes, declared: Any) -> bytes:
    if len(raw) > MOST_SHOWN:
        return msgspec.json.encode(f"{MASK} ({len(raw):,} bytes, some of them sensitive)")
    return msgspec.json.encode(masked(msgspec.json.decode(raw), declared))


def _check(given: Any) -> None:
    name = getattr(given, "name", None)
    if not (isinstance(name, str) and 0 < len(name) <= MAX_NAME and name.isprintable()):
        raise ConfigurationError(
            f"payload_codec: {type(given).__name__} has no usable name: give it an attribute `name`, a text of 1 to "
            f"{MAX_NAME} characters, which is stored with each payload"
        )
    for method in ("encode", "decode"):
        if not callable(getattr(given, method, None)):
            raise ConfigurationError(f"payload_codec: {name!r} has no {method}(bytes) -> bytes")


def _imported(path: str) -> Any:
    module, dot, attribute = path.rpartition(".")
    try:
        if not dot:
            raise ImportError("a module and a dot are missing")
        return getattr(import_module(module), attribute)
    except (ImportError, AttributeError) as problem:
        raise ConfigurationError(f"payload_codec={path!r}: not found, give 'module.attribute': {problem}") from problem
