"""Loading: sources are mapped, checked, compared and staged by executors, and published by the driver."""
