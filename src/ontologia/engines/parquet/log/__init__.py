"""The log: what the control plane stores, one class per object, and how it is read. Nothing here writes rows."""
