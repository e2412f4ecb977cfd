"""Supervised commands. The three documents that a run leaves behind have these names."""

LEDGER, MANIFEST, RECEIPT = "ledger.jsonl", "manifest.json", "receipt.json"
