"""The credential broker: a loopback reverse proxy for one fixed upstream, which holds the key that the worker does not.

`desk.py` decides at the start of a run which keys stay here, `process.py` is the process, `proxy.py` relays in it;
`requests.py`, `scrubbing.py` and `upstream.py` are what it decides, without any input or output.
"""
