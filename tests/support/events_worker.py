"""A worker in a process of its own: `python -m support.events_worker TARGET LOG MODE SETTINGS`. It writes down what it handles.

Every line of the log is one handling: the begin or the end, the event, the process. Appends of one line do not mix.
"""

import json
import os
import sys
import time
from pathlib import Path

from ontologia import OntologiaConfig, Session, on_event
from support.events_shop import StockLow

target, log, mode, settings = sys.argv[1:]


def write(what: str, event) -> None:
    with Path(log).open("a") as file:
        file.write(json.dumps([what, event.sku, os.getpid()]) + "\n")


@on_event(StockLow)
def reorder(ctx) -> None:
    write("begin", ctx.event)
    if mode == "hang":
        time.sleep(600)
    if mode == "slow":
        time.sleep(0.2)
    write("end", ctx.event)


with Session(target, "shop", config=OntologiaConfig(**json.loads(settings))) as session:
    print("ready", flush=True)
    session.run([reorder])
print("done", flush=True)
