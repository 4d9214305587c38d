"""A shop that orders by itself: stock falls below a limit, an order is placed, a confirmation goes out.

    python examples/stock.py                       # on a SQLite file in a temporary folder, with two workers
    python examples/stock.py s3://my-bucket/shop   # the same on a bucket, which is initialized if it is empty

Each worker is a process of its own. They share the queue, and every event is handled by one of them.
"""

from __future__ import annotations

import multiprocessing
import random
import sys
import tempfile
import time

from ontologia import Entity, Event, Field, OntologiaConfig, Session, UninitializedStorageError, initialize_storage
from ontologia import on_event as on

LIMIT = 5
SALES = 60
PRODUCTS = ("cocoa", "coffee", "honey", "pepper", "rice", "rum", "salt", "sugar", "tea")
SETTINGS = OntologiaConfig(event_poll_interval_ms=100)


class Product(Entity):
    sku: Field[str] = Field(primary_key=True)
    left: Field[int]


class Order(Entity):
    number: Field[str] = Field(primary_key=True)
    sku: Field[str]
    amount: Field[int]


class StockLow(Event):
    sku: Field[str]
    left: Field[int]


class OrderPlaced(Event):
    number: Field[str]
    sku: Field[str]


@on(StockLow)
def reorder(ctx) -> None:
    """Order what is missing. Done twice it is still one order: the number follows from the event."""
    event = ctx.event
    order = Order(number=f"re-{event.id[:8]}", sku=event.sku, amount=100 - event.left)
    ctx.ensure(order)
    ctx.commit()
    ctx.emit(OrderPlaced(number=order.number, sku=event.sku))


@on(OrderPlaced)
def confirm(ctx) -> None:
    print(f"  {multiprocessing.current_process().name} confirms {ctx.event.number} for {ctx.event.sku}", flush=True)


def work(target: str) -> None:
    """What a worker does, until it is told to stop."""
    with Session(target, "shop", config=SETTINGS) as session:
        session.run([reorder, confirm])


def sell(target: str, sales: int) -> int:
    """Sell at random; where stock falls below the limit, the commit says so. How often that was."""
    stock, low = dict.fromkeys(PRODUCTS, 10), 0
    with Session(target, "shop", config=SETTINGS) as session:
        for _ in range(sales):
            sku = random.choice(PRODUCTS)
            stock[sku] -= 1
            falls = stock[sku] == LIMIT - 1
            session.ensure(Product(sku=sku, left=stock[sku]))
            session.commit(event=StockLow(sku=sku, left=stock[sku]) if falls else None)
            low += falls
    return low


def main(target: str) -> None:
    if "://" in target:
        try:
            Session(target).close()
        except UninitializedStorageError:
            initialize_storage(storage_uri=target)
    spawn = multiprocessing.get_context("spawn")
    workers = [spawn.Process(target=work, args=(target,), name=f"worker {number}") for number in (1, 2)]
    for worker in workers:
        worker.start()
    with Session(target, "shop", config=SETTINGS) as session:
        while len(session.events.sessions()) < len(workers):
            time.sleep(0.1)
        low = sell(target, SALES)
        while len(session.events.events(type="order.placed", status="acked")) < low:
            time.sleep(0.1)
        for worker in workers:
            worker.terminate()  # SIGTERM: what is being handled is finished, the rest released
            worker.join()
        orders = session.query().entities(Order).count()
    print(f"{SALES} sales, {low} products fell below {LIMIT}, {orders} orders placed and confirmed")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(sys.argv[1])
    else:
        with tempfile.TemporaryDirectory() as folder:
            main(f"{folder}/shop.db")
