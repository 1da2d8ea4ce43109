"""pincer-trace: run an AI agent with every effect judged and performed by a supervisor."""

__version__ = "0.1.0"
