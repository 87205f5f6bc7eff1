"""Makes the gateway's certificate authority and server certificate. Run as a short child: the library is 14 MB.

Files ca.crt, ca.key, server.crt, server.key and server.json (until when, which names), all 0600, each replaced at once.
Must not be imported by the gateway process. Read next: tls.py, which decides when.
"""

from __future__ import annotations

import fcntl
import ipaddress
import json
import os
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

CA_DAYS = 3650
SERVER_DAYS = 90
_BACKDATED = timedelta(hours=1)
"""Clients whose clock is a little behind must take a new certificate too."""
_CA_NAME = "gpubus CA"


def make(directory: Path, names: Sequence[str], now: datetime) -> None:
    """Make the server certificate, and the authority when there is none; one process at a time."""
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    with (directory / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        ca_key, ca = _authority(directory, now)
        key = ec.generate_private_key(ec.SECP256R1())
        until = now + timedelta(days=SERVER_DAYS)
        certificate = (
            _builder(names[0], key.public_key(), ca.subject, now, until)
            .add_extension(x509.SubjectAlternativeName([_general_name(name) for name in names]), critical=False)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()), critical=False)
            .sign(ca_key, hashes.SHA256())
        )
        _write(directory / "server.key", _key_bytes(key))
        _write(directory / "server.crt", certificate.public_bytes(serialization.Encoding.PEM))
        _write(directory / "server.json", json.dumps({"until": until.timestamp(), "names": list(names)}).encode())


def _authority(directory: Path, now: datetime) -> tuple[ec.EllipticCurvePrivateKey, x509.Certificate]:
    try:
        key = serialization.load_pem_private_key((directory / "ca.key").read_bytes(), None)
        found = x509.load_pem_x509_certificate((directory / "ca.crt").read_bytes())
        if isinstance(key, ec.EllipticCurvePrivateKey) and found.not_valid_after_utc - now > timedelta(
            days=SERVER_DAYS
        ):
            return key, found
    except (FileNotFoundError, ValueError):
        pass
    fresh = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, _CA_NAME)])
    usage = x509.KeyUsage(
        digital_signature=False, content_commitment=False, key_encipherment=False, data_encipherment=False, key_agreement=False,
        key_cert_sign=True, crl_sign=True, encipher_only=False, decipher_only=False,
    )  # fmt: skip
    certificate = (
        _builder(_CA_NAME, fresh.public_key(), subject, now, now + timedelta(days=CA_DAYS))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(fresh.public_key()), critical=False)
        .sign(fresh, hashes.SHA256())
    )
    _write(directory / "ca.key", _key_bytes(fresh))
    _write(directory / "ca.crt", certificate.public_bytes(serialization.Encoding.PEM))
    return fresh, certificate


def _builder(
    common_name: str, key: ec.EllipticCurvePublicKey, issuer: x509.Name, now: datetime, until: datetime
) -> x509.CertificateBuilder:
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name[:64])])
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BACKDATED)
        .not_valid_after(until)
    )


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _key_bytes(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _write(path: Path, content: bytes) -> None:
    fresh = path.with_name(f"{path.name}.new")
    fresh.unlink(missing_ok=True)
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as sink:
        sink.write(content)
        sink.flush()
        os.fsync(descriptor)
    fresh.replace(path)
