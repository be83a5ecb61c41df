"""A payload codec of the runtime seals what the saga stores, whoever starts it."""

from __future__ import annotations

from collections.abc import Callable

import psycopg
import pytest
from cryptography.fernet import Fernet
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from sagas import ports
from sagas.errors import ConfigurationError
from sagas_django.store import DjangoStore
from sagas_sqlalchemy import Sagas
from tests.sqlalchemy.conftest import drain, rows
from tests.sqlalchemy.shop import Order, Placed, PlaceOrder
from tests.support.codecs import FernetCodec

RuntimeMaker = Callable[..., Sagas]
SEALED = "select coalesce(data->'result', data #> '{saga,input}')->>'$sealed' from sagas_log order by seq"


def test_sealed_by_the_runtimes_codec(engine: Engine, url: str, make_runtime: RuntimeMaker) -> None:
    """Inputs and results bear the codec's name and are used like any others."""
    runtime = make_runtime(engine, payload_codec=FernetCodec(Fernet.generate_key()))
    with Session(engine) as session, session.begin():
        order = Order(amount=5)
        session.add(order)
        session.flush()
        PlaceOrder.start(Placed(order.id, 5), using=session)
    drain(runtime)
    assert rows(url, SEALED)[:3] == ["fernet"] * 3  # input, reservation, charge; the others hold nothing to seal
    assert rows(url, "select status from sagas_saga") == ["completed"]
    assert rows(url, "select amount from bank") == [5]


def test_a_bare_connection_in_doubt(engine: Engine, url: str, make_runtime: RuntimeMaker) -> None:
    """It has no settings of its own. Where the stores of the process differ, nothing is stored unsealed by mistake."""
    ports.register_store("default", lambda: DjangoStore("default"), owner="sagas_django")
    runtime = make_runtime(engine, payload_codec=FernetCodec(Fernet.generate_key()))
    with psycopg.connect(url) as connection:
        with pytest.raises(ConfigurationError, match="pass using= a session"):
            PlaceOrder.start(Placed(7, 5), using=connection)
        runtime.close()
        PlaceOrder.start(Placed(7, 5), using=connection)


def test_what_is_no_codec_is_refused(engine: Engine, make_runtime: RuntimeMaker) -> None:
    """When the runtime is made."""
    with pytest.raises(ConfigurationError, match="payload_codec: object has no usable name"):
        make_runtime(engine, payload_codec=object())
