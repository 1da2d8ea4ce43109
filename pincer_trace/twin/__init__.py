"""The judge: pure decisions over requests, and the one place where a decision becomes a record."""
