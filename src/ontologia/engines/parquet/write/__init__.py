"""Writing rows: files, the commit protocol around them, and the accelerators that follow the swap."""
