"""Children: started with the entry that says so, awaited, and undone with their parent."""

from __future__ import annotations

from sagas.errors import Refused
from sagas.states import Status
from sagas.testing.conformance import outside
from sagas.testing.conformance.adapter import Integration
from sagas.testing.conformance.base import Suite
from sagas.testing.conformance.bodies import raises
from sagas.testing.conformance.sagas import Family, stage

CHILDREN = "select key from sagas_saga where parent is not null"
TOGETHER = (  # children whose first entry is of the transaction of the entry that tells of them
    "select count(*) from sagas_log c join sagas_saga s on s.id = c.saga_id and c.seq = 0"
    " join sagas_log p on p.saga_id = s.parent and p.kind = 'children_started' and p.xmin = c.xmin"
)


class FamilySuite(Suite):
    """Sagas that start others."""

    def test_a_child_and_one_for_each_item(self, integration: Integration) -> None:
        """Each of them ends before its parent goes on, which has their results in order."""
        self.begin(integration, Family, "a", what="list")
        stage.plays("list", lambda run: "+".join([run.child.result, *run.items.result]))
        outside.drain(integration.store)
        children = outside.rows(integration.url, CHILDREN)
        assert len(children) == 4
        assert outside.rows(integration.url, TOGETHER) == [4]
        assert outside.notes(integration.url) == ["body a"]
        assert stage.calls["last", "done+0+1+2"] == 1
        self.ended(integration, Status.COMPLETED, "a", *children)

    def test_they_are_undone_with_their_parent(self, integration: Integration) -> None:
        """What they completed is undone, item by item, before the saga counts as undone."""
        stage.plays("refuses", raises(Refused("no")))
        self.begin(integration, Family, "a", what="refuses")
        outside.drain(integration.store)
        children = outside.rows(integration.url, CHILDREN)
        assert len(children) == 4
        self.ended(integration, Status.CANCELLED, *children)
        assert [stage.calls["item back", str(item)] for item in range(3)] == [1, 1, 1]
        assert stage.calls["back from done", ""] == 1
        self.ended(integration, Status.COMPENSATED, "a")
