"""Signatures by libcrypto: the `cryptography` package, another implementation's face, verifies them."""

from __future__ import annotations

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from hypothesis import given
from hypothesis import strategies as st

from pincer_trace.kernel import ed25519


@given(st.binary(max_size=300))
def test_signatures_verify(message):
    key = ed25519.SigningKey()
    Ed25519PublicKey.from_public_bytes(key.public).verify(key.sign(message), message)
    with pytest.raises(InvalidSignature):
        Ed25519PublicKey.from_public_bytes(key.public).verify(key.sign(message), message + b"x")


@given(st.binary(min_size=32, max_size=32), st.binary(max_size=300))
def test_the_same_key_as_the_package_makes(seed, message):
    made = ed25519._by_libcrypto(seed)
    if made is None:
        pytest.skip("no libcrypto by its usual name")
    sign, public = made
    other = Ed25519PrivateKey.from_private_bytes(seed)
    assert public == other.public_key().public_bytes_raw()
    assert sign(message) == other.sign(message)  # Ed25519 is deterministic


def test_without_libcrypto(monkeypatch):
    monkeypatch.setattr(ed25519, "_LIBRARIES", ("libabsent.so.9",))
    key = ed25519.SigningKey()
    Ed25519PublicKey.from_public_bytes(key.public).verify(key.sign(b"message"), b"message")


def test_each_key_is_another():
    assert ed25519.SigningKey().public != ed25519.SigningKey().public
