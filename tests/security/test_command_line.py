"""What a terminal would obey is spelled out by every command: names, keys and errors are other people's."""

from __future__ import annotations

import json

import pytest
from django.core.management import CommandError, call_command
from django.test import RequestFactory

from sagas.commanding import CONTROLS, KEPT
from sagas_django.metrics import metrics_view
from tests.security.conftest import AsRole
from tests.shop.sagas import Trip
from tests.shop.waiting import Reviewed
from tests.shop.world import World
from tests.support.stories import begin, drain

CLEAR = "\x1b[2J\x1b]0;title\x07\x9b31m\u202e\u2028\x7f\r"
WHY = ("--reason", f"because{CLEAR}", "--actor", f"me{CLEAR}")


def dangerous(text: str) -> set[str]:
    """Characters that a terminal may obey."""
    import unicodedata

    return {each for each in text if each not in KEPT and unicodedata.category(each) in CONTROLS}


@pytest.mark.parametrize("options", [[], pytest.param(["--json"], marks=pytest.mark.full)], ids=["text", "json"])
def test_no_command_writes_what_a_terminal_obeys(
    guarded: str, as_role: AsRole, world: World, capsys: pytest.CaptureFixture[str], options: list[str]
) -> None:
    """Keys, errors, signals, reasons, actors, queues and messages have escape sequences in them; text and JSON."""
    world.always("charge", OSError(CLEAR), saga=f"parked{CLEAR}")
    with as_role("sagas_worker"):
        begin(Trip, f"parked{CLEAR}")
        begin(Reviewed, f"waits{CLEAR}")
        drain()
    parked, waits = f"test.trip:parked{CLEAR}", f"test.reviewed:waits{CLEAR}"
    _spoil(guarded)
    with as_role("sagas_operator"):
        call_command("sagas", "signal", waits, "review", json.dumps({"ok": True, "note": CLEAR}), *WHY)
        for words in (
            ["list"], ["list", "--stuck"], ["show", parked], ["show", waits], ["tail", "--since-start", "--count", "1"],
            ["top", "--count", "1"], ["stats"], ["doctor"], ["locks"], ["pauses"], ["definitions"], ["verify", parked],
            ["replay", parked], ["queues"], ["schedules"], ["messages", "dead"], ["messages", "waiting"],
            ["retry", parked, *WHY], ["cancel", waits, *WHY], ["pause-queue", f"q{CLEAR}", *WHY],
            ["show", f"test.trip:missing{CLEAR}"], ["show", CLEAR], ["resume-queue", f"q{CLEAR}"], ["verify"],
            ["pause-definition", f"test.trip{CLEAR}", *WHY], ["unlock", f"lock{CLEAR}", *WHY],
            ["list", "--status", CLEAR],
        ):  # fmt: skip
            last = ""
            try:
                call_command("sagas", *words, *options)
            except CommandError as problem:
                last = str(problem)
            except SystemExit:
                pass
            written = capsys.readouterr()
            assert not dangerous(written.out + written.err + last), words
    with as_role("sagas_worker"):
        drain(check=False)


def _spoil(url: str) -> None:
    """What workers, hosts and senders of messages may have written."""
    import psycopg

    with psycopg.connect(url) as owner:
        owner.execute(
            "insert into sagas_process (holder, host, pid, queues) values (%(e)s, %(e)s, 1, %(e)s)", {"e": CLEAR}
        )
        owner.execute(
            "insert into sagas_queue (name, concurrency, actor, reason) values (%(e)s, 1, %(e)s, %(e)s)", {"e": CLEAR}
        )
        owner.execute("insert into sagas_tally (name, step, what) values (%(e)s, %(e)s, 'begun')", {"e": CLEAR})
        owner.execute(
            "insert into sagas_lock (subject, saga_id, step) values (%(e)s, gen_random_uuid(), %(e)s)", {"e": CLEAR}
        )
        owner.execute(
            "insert into sagas_message (message_id, destination, state, payload, error, ordering_key, finished_at)"
            " values (gen_random_uuid(), %(e)s, 'dead', '{}', %(e)s, %(e)s, now())",
            {"e": CLEAR},
        )
        owner.execute(
            "insert into sagas_pause (kind, name, actor, reason) values ('queue', %(e)s, %(e)s, %(e)s)", {"e": CLEAR}
        )
        owner.execute(
            "update sagas_saga set error = error || %(e)s, subject_type = %(e)s, subject_id = %(e)s", {"e": CLEAR}
        )


def test_metrics_show_names_and_no_keys(guarded: str, as_role: AsRole, world: World) -> None:
    """Whoever can reach the view, or `sagas metrics`, reads names of sagas, steps and queues: no key and no payload."""
    world.always("charge", OSError("a secret error"), saga="a secret key")
    with as_role("sagas_worker"):
        begin(Trip, "a secret key")
        drain()
    with as_role("sagas_operator"):
        _spoil(guarded)
        answer = metrics_view(RequestFactory().get("/metrics"))
    text = answer.content.decode()
    assert answer.status_code == 200 and 'name="test.trip"' in text and "a secret" not in text
    assert all(line.startswith(("#", "sagas_")) for line in text.split("\n") if line), "a label forges no line"
