"""The form of a signal, or of the result of a step, made from its declared type: a field for each part, else JSON."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Any, ClassVar, Final

import msgspec
from django import forms
from django.contrib.admin.widgets import AdminTextareaWidget, AdminTextInputWidget
from django.utils import timezone
from django.utils.translation import gettext_lazy as _
from msgspec import inspect as types

from sagas import codec
from sagas.errors import CodecError
from sagas.operate_asking import read_value
from sagas.step import Step
from sagas.storable import type_label
from sagas_django.admin_actions import NO_ECHO, AskForm
from sagas_django.conf import sagas_settings

PREFIX: Final = "value_"  # of the fields of a signal, which may be called like ours
WHOLE: Final = "value"  # the field of a signal that has no parts, or that is given as JSON
PART = re.compile(r"^(?P<reason>.*) - at `\$\.(?P<part>\w+)", re.DOTALL)
NUMBERS: Final = {
    types.IntType: forms.IntegerField,
    types.FloatType: forms.FloatField,
    types.DecimalType: forms.DecimalField,
    types.UUIDType: forms.UUIDField,
}
YES_OR_NO: Final = [("true", _("Yes")), ("false", _("No"))]
NOT_CHOSEN: Final = [("", "---------")]


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """One part of a signal: how it is called where, and its field."""

    key: str  # in JSON; nothing: it is the whole
    field: forms.Field
    leave_out: bool  # where nothing was entered, its default is taken
    values: Mapping[str, Any] | None = None  # of a choice, by what the browser sends


@dataclass(frozen=True, kw_only=True, slots=True)
class Made:
    """What a form was made for."""

    step: Step[Any, Any]
    parts: Mapping[str, Part]  # by name of the field; none: it is JSON


class SignalForm(AskForm):
    """Who decides says what, and why."""

    made: ClassVar[Made]
    value: Any = None  # once it is valid

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.fields["reason"].widget.attrs.pop("autofocus", None)  # what is sent comes first

    def clean(self) -> dict[str, Any] | None:
        data = super().clean()
        if not self.errors:
            step = self.made.step
            try:
                self.value = self._read(step, self.cleaned_data)
                limit = sagas_settings().max_payload
                codec.encode(self.value, declared=step.result_type, limit=limit, what=step.name)
            except msgspec.ValidationError as problem:
                found = PART.match(str(problem))
                name = f"{PREFIX}{found['part']}" if found else WHOLE
                self.add_error(name if name in self.fields else None, found["reason"] if found else str(problem))
            except CodecError as problem:
                self.add_error(WHOLE if WHOLE in self.fields else None, str(problem))
        return data

    def _read(self, step: Step[Any, Any], given: Mapping[str, Any]) -> Any:
        parts = self.made.parts
        if not parts:
            return read_value(step, given[WHOLE]) if WHOLE in given else None
        read = {name: _value(part, given[name]) for name, part in parts.items()}
        if WHOLE in parts:
            return msgspec.convert(read[WHOLE], step.result_type)
        taken = {
            part.key: read[name] for name, part in parts.items() if not (part.leave_out and given[name] in (None, ""))
        }
        return msgspec.convert(taken, step.result_type)


def _value(part: Part, given: Any) -> Any:
    if isinstance(given, datetime) and timezone.is_naive(given):  # USE_TZ = False
        return timezone.make_aware(given, timezone.get_default_timezone())
    return given if part.values is None else part.values.get(given)


def form_for(step: Step[Any, Any], base: type[SignalForm] = SignalForm) -> type[SignalForm]:
    """The form class for the signal of a wait, or for the result of a step; no field where it returns nothing."""
    found = types.type_info(step.result_type)
    parts = dict(_parts(found))
    fields: dict[str, forms.Field] = {name: part.field for name, part in parts.items()}
    if not parts and not isinstance(found, types.NoneType):
        label = type_label(step.result_type)
        fields = {WHOLE: forms.CharField(
            label=_("Value"), widget=AdminTextareaWidget(attrs={"rows": 6}), help_text=_("JSON of %s") % label
        )}  # fmt: skip
    own = {
        "made": Made(step=step, parts=parts), "field_order": ["nonce", *fields, "reason"], "__module__": __name__,
    }  # fmt: skip
    return type(base.__name__, (base,), own | fields)


def _parts(info: Any) -> Iterator[tuple[str, Part]]:
    """The fields of a type, if one for each part is enough."""
    if isinstance(info, types.StructType | types.DataclassType) and not getattr(info, "array_like", False):
        found = [(f"{PREFIX}{each.encode_name}", _part(each.encode_name, each.type, each)) for each in info.fields]
        if info.fields and all(part for _name, part in found):
            yield from ((name, part) for name, part in found if part is not None)
    elif (whole := _part("", info, None)) is not None:
        yield WHOLE, whole


def _part(key: str, info: Any, declared: types.Field | None) -> Part | None:
    """A field for one part; None: no input of a form can stand for it."""
    optional, info = _unwrapped(info)
    has_default = declared is not None and not declared.required
    default = msgspec.NODEFAULT if declared is None else declared.default
    shown = None if default is msgspec.NODEFAULT else default
    named: dict[str, Any] = {
        "label": key.replace("_", " ").capitalize() or _("Value"), "required": not (optional or has_default),
    }  # fmt: skip
    choices = _choices(info)
    if choices is not None:
        value = shown.value if isinstance(shown, Enum) else shown
        initial = next((text for text, each in choices[1].items() if each == value and value is not None), None)
        field: forms.Field = forms.ChoiceField(
            choices=[*NOT_CHOSEN, *choices[0]], initial=initial, error_messages=NO_ECHO, **named
        )  # fmt: skip
        return Part(key=key, field=field, leave_out=has_default, values=choices[1])
    made = _plain(info, named | {"initial": shown}, optional)
    if made is None:
        return None
    texts = isinstance(info, types.StrType)  # an empty text is a text
    return Part(key=key, field=made, leave_out=has_default and not (texts and not optional))


def _plain(info: Any, named: dict[str, Any], optional: bool) -> forms.Field | None:
    if isinstance(info, types.StrType):
        return forms.CharField(widget=AdminTextInputWidget, empty_value=None if optional else "", **named)
    if isinstance(info, types.DateTimeType):
        return forms.DateTimeField(widget=forms.DateTimeInput(attrs={"type": "datetime-local", "step": "1"}), **named)
    if isinstance(info, types.DateType):
        return forms.DateField(widget=forms.DateInput(attrs={"type": "date"}), **named)
    kind = NUMBERS.get(type(info))
    return None if kind is None else kind(**named)


def _unwrapped(info: Any) -> tuple[bool, Any]:
    """Whether it may be None, and what else it is; limits are checked when the value is read."""
    optional = False
    while True:
        if isinstance(info, types.Metadata):
            info = info.type
        elif isinstance(info, types.UnionType) and len(info.types) == 2 and info.includes_none:
            optional = True
            (info,) = [each for each in info.types if not isinstance(each, types.NoneType)]
        else:
            return optional, info


def _choices(info: Any) -> tuple[list[tuple[str, Any]], dict[str, Any]] | None:
    """What can be chosen from, and the values that stand for it."""
    if isinstance(info, types.BoolType):
        return YES_OR_NO, {"true": True, "false": False}
    if isinstance(info, types.EnumType):
        return [(str(each.value), each.name) for each in info.cls], {str(each.value): each.value for each in info.cls}
    if isinstance(info, types.LiteralType):
        return [(str(each), str(each)) for each in info.values], {str(each): each for each in info.values}
    return None
