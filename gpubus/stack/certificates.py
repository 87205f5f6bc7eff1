"""Certificates for `--listen`: an own CA, and a server certificate for the addresses other hosts use.

Must not be used by the gateway, which has its own CA. Read next: gpubus/stack/nats.py.
"""

from __future__ import annotations

import ipaddress
import platform
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from gpubus.datadir import write
from gpubus.refusal import Refusal
from shared.clock import SystemClock

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

_YEARS = timedelta(days=3650)


def ensure_certificates(folder: Path, host: str) -> None:
    """Make `ca.crt` once and `server.crt`, `server.key` for loopback, this host's name and `host`.

    Raises:
        Refusal: the package `cryptography` is not installed.
    """
    try:
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.hazmat.primitives.serialization import load_pem_private_key
    except ImportError as error:
        raise Refusal("--listen needs TLS: `pip install 'gpubus[gateway]'` brings the package cryptography.") from error
    if not (folder / "ca.key").exists():
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = _issue("gpubus nodes CA", key, None, None, [])
        write(folder / "ca.crt", _pem(certificate), durable=True)
        write(folder / "ca.key", _private(key), durable=True)
    signer = load_pem_private_key((folder / "ca.key").read_bytes(), None)
    assert isinstance(signer, ec.EllipticCurvePrivateKey), "we wrote it"
    own = ec.generate_private_key(ec.SECP256R1())
    names = ["127.0.0.1", "localhost", platform.node(), host]
    write(folder / "server.crt", _pem(_issue("gpubus NATS", own, signer, "gpubus nodes CA", names)), durable=True)
    write(folder / "server.key", _private(own), durable=True)


def _issue(
    name: str,
    key: EllipticCurvePrivateKey,
    signer: EllipticCurvePrivateKey | None,
    issuer: str | None,
    names: list[str],
) -> x509.Certificate:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes

    now = SystemClock().now()
    builder = (
        x509.CertificateBuilder()
        .subject_name(_name(name))
        .issuer_name(_name(issuer or name))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=5))
        .not_valid_after(now + _YEARS)
        .add_extension(x509.BasicConstraints(ca=signer is None, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    if names:
        alternatives = x509.SubjectAlternativeName([_alternative(one) for one in dict.fromkeys(filter(None, names))])
        builder = builder.add_extension(alternatives, critical=False)
    if signer is None:
        builder = builder.add_extension(_signs_certificates(), critical=True)
    else:
        authority = x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key())
        builder = builder.add_extension(authority, critical=False)
    return builder.sign(signer or key, hashes.SHA256())


def _signs_certificates() -> x509.KeyUsage:
    """What a CA must say of its key, or strict verification (Python 3.13's default) takes none of its certificates."""
    from cryptography import x509

    return x509.KeyUsage(
        digital_signature=False, content_commitment=False, key_encipherment=False, data_encipherment=False, key_agreement=False,
        key_cert_sign=True, crl_sign=True, encipher_only=False, decipher_only=False,
    )  # fmt: skip


def _name(text: str) -> x509.Name:
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _alternative(name: str) -> x509.GeneralName:
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _pem(certificate: x509.Certificate) -> str:
    from cryptography.hazmat.primitives.serialization import Encoding

    return certificate.public_bytes(Encoding.PEM).decode()


def _private(key: EllipticCurvePrivateKey) -> str:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
