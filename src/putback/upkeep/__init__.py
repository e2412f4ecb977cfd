"""Looking after the store: retention, reclaiming, checking, repairing, forgetting, relocating.

Above everything that keeps a record in the store, because it must know them all.
"""
