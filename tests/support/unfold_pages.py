"""Renders the admin pages of sagas under django-unfold: `python -m tests.support.unfold_pages`.

Prints one line for each page: its address, the status and what is on it.
"""

from __future__ import annotations

import json
import os

os.environ["DJANGO_SETTINGS_MODULE"] = "tests.settings_unfold"

import django

django.setup()

from django.contrib.auth.models import User  # noqa: E402
from django.test import Client  # noqa: E402

from sagas_django.models import SagaRow  # noqa: E402
from tests.shop.sagas import Trip  # noqa: E402
from tests.shop.world import world  # noqa: E402
from tests.support.stories import begin, drain  # noqa: E402

LIST = "/admin/sagas/sagarow/"


def main() -> None:
    """All of it."""
    world.plan("charge", *[ConnectionError("no reply")] * 3)
    run = begin(Trip)
    drain()
    client = Client()
    client.force_login(User.objects.create_superuser("root"))
    assert SagaRow.objects.count() == 1
    page = f"{LIST}{run.id}"
    for url in (
        LIST, f"{LIST}dashboard/", f"{LIST}failures/", f"{LIST}pauses/", f"{page}/change/", f"{page}/redo/",
        f"{page}/decide/mark_done/charge/", f"{LIST}ask/retry/?saga={run.id}",
    ):  # fmt: skip
        answer = client.get(url)
        html = answer.content.decode()
        print(json.dumps({
            "url": url, "status": answer.status_code, "unfold": "unfold/css/styles" in html,
            "ours": "sagas_django/admin.css" in html, "sagas": 'class="sagas"' in html or "result_list" in html,
        }))  # fmt: skip


if __name__ == "__main__":
    main()
