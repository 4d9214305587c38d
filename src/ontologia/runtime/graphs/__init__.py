"""`Omnigraph`: graphs as people use them, in typed objects. Stored by `ontologia.omnigraph`, asked by its engine."""
