"""The gateway: from a notification to pinned kernel objects. It copies once, pins, and names what it pinned."""
