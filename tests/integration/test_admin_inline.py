"""`SagaInline` and `HasSagas`: the sagas of a business object, beside the object."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.contrib.sessions.models import Session
from django.core import checks
from django.db import models, router, transaction
from django.test import Client
from django.test.testcases import DatabaseOperationForbidden
from django.urls import reverse
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries

from sagas_django.admin_inline import SagaFormSet, SagaInline
from sagas_django.models import HasSagas, SagaRow, sagas_of
from tests.integration.test_admin import make_saga, text_of
from tests.shop.models import Order
from tests.shop.sagas import Ordered, Trip

from .conftest import database_alias

pytestmark = [pytest.mark.django_db, pytest.mark.urls("tests.support.back_office")]


@pytest.fixture
def client(db: None) -> Client:
    """A superuser's browser."""
    client = Client()
    client.force_login(User.objects.create_superuser("root"))
    return client


def page_of(subject: models.Model) -> str:
    return reverse(f"back:{subject._meta.app_label}_{subject._meta.model_name}_change", args=[subject.pk])


def started(subject: models.Model, key: str) -> SagaRow:
    with transaction.atomic():
        return SagaRow.objects.get(id=Trip.start(Ordered(), key=key, subject=subject).id)


def subjects() -> list[models.Model]:
    """Business objects whose primary keys are a number, a text, and a UUID."""
    session = Session.objects.create(session_key="k" * 32, session_data="", expire_date=timezone.now())
    return [Order.objects.create(title="tea"), session, make_saga(7, key="a saga about a saga")]


def test_sagas_of_any_kind_of_key(db: None) -> None:
    """Exactly those about this very object, newest first."""
    everybody = subjects()
    about = {subject: [started(subject, f"{n}-{m}") for m in range(2)] for n, subject in enumerate(everybody)}
    for subject in everybody:
        assert list(sagas_of(subject)) == about[subject][::-1]
        fresh = type(subject)._base_manager.get(pk=str(subject.pk))
        assert list(sagas_of(fresh)) == about[subject][::-1]


def test_has_sagas(db: None, django_assert_num_queries: DjangoAssertNumQueries) -> None:
    """`order.sagas` is a queryset like any other; nothing is asked of the database for an unsaved order."""
    order = Order.objects.create(title="tea")
    first, second = started(order, "first"), started(order, "second")
    assert list(order.sagas) == [second, first]
    assert order.sagas.filter(key="first").get() == first
    with django_assert_num_queries(0):
        assert list(Order(title="new").sagas) == []
    assert HasSagas._meta.abstract and not HasSagas._meta.local_fields, "no migration of the user's is needed"


def test_a_proxy_is_the_same_subject(db: None) -> None:
    """However the instance was loaded."""

    class Prepaid(User):
        class Meta:
            proxy = True
            app_label = "shop"

    try:
        user = User.objects.create_user("anna")
        saga = started(Prepaid.objects.get(), "proxy")
        assert (saga.subject_type, list(sagas_of(user))) == ("auth.User", [saga])
        assert list(sagas_of(Prepaid.objects.get())) == [saga]
    finally:
        Prepaid._meta.apps.all_models["shop"].pop("prepaid")
        Prepaid._meta.apps.clear_cache()


@pytest.mark.parametrize("engine", ["sqlite3", "postgresql"])
def test_an_object_in_another_database(
    client: Client, engine: str, monkeypatch: pytest.MonkeyPatch, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    """One that holds no sagas: those about it are looked for where the router reads them, or where one says."""
    order = Order.objects.create(title="tea")
    saga = started(order, "elsewhere")
    allowed = router.allow_migrate_model
    monkeypatch.setattr(router, "allow_migrate_model", lambda alias, model: alias != "own" and allowed(alias, model))
    with database_alias("own", {"ENGINE": f"django.db.backends.{engine}", "NAME": "x"}):
        order._state.db = "own"
        assert list(order.sagas) == list(sagas_of(order)) == list(sagas_of(order, using="default")) == [saga]
        assert sagas_of(order, using="own").db == "own"
        order._state.db = "default"
        monkeypatch.setattr(SagaInline, "using", "own")
        with pytest.raises(DatabaseOperationForbidden, match="own"):
            client.get(page_of(order))


def test_page_shows_the_sagas(client: Client) -> None:
    """Status, step, times, and a link to each saga's page; there is nothing to fill in."""
    order, other = Order.objects.create(title="tea"), Order.objects.create(title="coffee")
    mine, theirs = started(order, "mine"), started(other, "theirs")
    html = client.get(page_of(order)).content.decode()
    text = text_of(html)
    assert "test.trip mine" in text and "running" in text and " book " in text
    assert reverse("back:sagas_sagarow_change", args=[mine.pk]) in html
    assert "theirs" not in html and str(theirs.pk) not in html
    assert 'name="sagas-0-status"' not in html and 'name="sagas-__prefix__' not in html
    assert "sagas_django/admin.css" in html


def test_page_of_every_kind_of_key(client: Client) -> None:
    """Also where the key is a text."""
    order, session, _ = subjects()
    for subject in (order, session):
        saga = started(subject, f"about-{subject._meta.model_name}")
        assert str(saga.pk) in client.get(page_of(subject)).content.decode()


def test_page_needs_one_query_for_any_number(client: Client, django_assert_num_queries: DjangoAssertNumQueries) -> None:
    """Session, user, the order, its sagas."""
    order = Order.objects.create(title="tea")
    client.get(page_of(order))
    for expected in (1, SagaFormSet.most):
        for number in range(order.sagas.count(), expected):
            started(order, f"k{number}")
        with django_assert_num_queries(4):
            html = client.get(page_of(order)).content.decode()
        assert len(re.findall(r"test\.trip k\d+", html)) == expected and "Only the newest" not in html
    started(order, "one-more")
    html = client.get(page_of(order)).content.decode()
    assert "Only the newest 20 are shown" in html and "one-more" in html and "test.trip k0\n" not in html


def test_saving_the_page_changes_no_saga(client: Client) -> None:
    """Whatever is sent along, also when sagas began since the page was shown."""
    order = Order.objects.create(title="tea")
    saga = started(order, "mine")
    forged: dict[str, Any] = {"sagas-0-id": saga.pk, "sagas-0-status": "completed", "sagas-0-DELETE": "on"}
    for management in ({}, {"sagas-TOTAL_FORMS": "5", "sagas-INITIAL_FORMS": "3"}, {"sagas-TOTAL_FORMS": "x"}):
        answer = client.post(page_of(order), {"title": f"tea {len(management)}", **management, **forged})
        assert answer.status_code == 302, answer.content.decode()
        order.refresh_from_db()
        assert order.title == f"tea {len(management)}"
        assert SagaRow.objects.get().status == saga.status
    answer = client.post(reverse("back:shop_order_add"), {"title": "new"})
    assert answer.status_code == 302 and Order.objects.filter(title="new").exists()


def test_only_for_those_who_may_see_sagas(client: Client) -> None:
    """Others see the order's page without them."""
    order = Order.objects.create(title="tea")
    saga = started(order, "mine")
    user = User.objects.create_user("clerk", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=["view_order", "change_order"]))
    other = Client()
    other.force_login(user)
    html = other.get(page_of(order)).content.decode()
    assert "tea" in html and str(saga.pk) not in html and "test.trip" not in html
    user.user_permissions.add(Permission.objects.get(codename="view_sagarow"))
    assert str(saga.pk) in other.get(page_of(order)).content.decode()


def test_actions_on_a_site_with_another_name(client: Client) -> None:
    """Buttons, the page that asks, and the way back stay on that site."""
    saga = started(Order.objects.create(title="tea"), "mine")
    page = reverse("back:sagas_sagarow_change", args=[saga.pk])
    assert f'href="/back/sagas/sagarow/ask/cancel/?saga={saga.pk}"' in client.get(page).content.decode()
    html = client.get("/back/sagas/sagarow/ask/cancel/", {"saga": saga.pk}).content.decode()
    assert 'action="/back/sagas/sagarow/ask/cancel/"' in html and f'href="{page}"' in html and '"/admin/' not in html
    nonce = re.findall(r'name="nonce" value="([^"]+)"', html)[0]
    answer = client.post("/back/sagas/sagarow/ask/cancel/", {"saga": saga.pk, "nonce": nonce, "reason": "no tea"})
    assert answer["Location"] == page


def test_system_checks_have_nothing_to_say() -> None:
    """Django looks for a foreign key in inlines; this one needs none."""
    from tests.support.back_office import site

    assert [problem for each in site._registry.values() for problem in each.check()] == []
    assert checks.run_checks(tags=["admin"]) == []
