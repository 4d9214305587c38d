"""`df.write.format("ontologia")`: executors check, compare and stage rows, the driver publishes."""
