"""What the shop declares: a product, and the events around its stock."""

from ontologia import Entity, Event, Field


class Product(Entity):
    sku: Field[str] = Field(primary_key=True)
    left: Field[int]


class StockLow(Event):
    sku: Field[str]
    left: Field[int] = 0


class OrderPlaced(Event):
    sku: Field[str]


def send(session, *events):
    """Commit these events alone."""
    session.commit(event=events)
