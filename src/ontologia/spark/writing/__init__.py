"""`df.write.format("ontologia")`: executors check and stage rows, the driver compares and publishes."""
