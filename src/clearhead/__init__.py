"""Clearhead: every transformer, small enough to read, fast enough to use, with glass walls."""
