"""Redis with a password, over TLS and behind Sentinel: Celery's own settings say how, and relay and worker obey."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import redis as client
from celery import Celery

from sagas.testing.binaries import find_redis
from sagas.testing.launch import free_port
from sagas.testing.processes import ProcessGroup
from sagas.testing.servers import redis
from sagas_celery.publisher import CeleryPublisher
from tests.relay.conftest import PlantMaker
from tests.relay.plant import SHORT, wait_until

PASSWORD = "long & secret/?"
QUOTED = "long%20%26%20secret%2F%3F"


def certificate(directory: Path) -> tuple[Path, Path]:
    """A certificate for 127.0.0.1 that signs itself, and its key."""
    x509 = pytest.importorskip("cryptography.x509", reason="NOT RUN: cryptography is not installed")
    from ipaddress import ip_address

    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    made = (
        x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
        .serial_number(x509.random_serial_number()).not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )  # fmt: skip
    where, keyed = directory / "server.crt", directory / "server.key"
    where.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    keyed.write_bytes(key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ))  # fmt: skip
    return where, keyed


def with_tls() -> Path:
    """A Redis that is likelier to be able to do TLS than the one in the wheel."""
    return Path(shutil.which("redis-server") or shutil.which("valkey-server") or find_redis())


@pytest.fixture
def group(tmp_path: Path) -> Iterator[ProcessGroup]:
    with ProcessGroup(tmp_path) as processes:
        yield processes


def test_sagas_run_over_a_redis_with_a_password_and_tls(
    new_plant: PlantMaker, group: ProcessGroup, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The URL has the password, `broker_use_ssl` the certificate: relay and worker are told nothing else."""
    crt, key = certificate(tmp_path)
    port = free_port()
    server = group.start(
        [with_tls(), "--port", "0", "--tls-port", str(port), "--bind", "127.0.0.1", "--save", "",
         "--requirepass", PASSWORD, "--tls-cert-file", crt, "--tls-key-file", key, "--tls-ca-cert-file", crt,
         "--tls-auth-clients", "no"],
        name="redis", cwd=tmp_path,
    )  # fmt: skip
    wait_until(lambda: "Ready to accept" in server.output() or server.poll() is not None, "a Redis", 20)
    if server.poll() is not None:
        pytest.skip("NOT RUN: this Redis cannot do TLS")
    verified = {"ssl_cert_reqs": "required", "ssl_ca_certs": str(crt)}
    monkeypatch.setenv("RELAY_CELERY", json.dumps({"CELERY_BROKER_USE_SSL": verified}))
    with new_plant(SHORT, broker=f"rediss://:{QUOTED}@127.0.0.1:{port}/0") as plant:
        plant.worker("quick", processes=1)
        relay = plant.relay()
        plant.start("secret")
        plant.wait_until_completed("secret")
        assert PASSWORD not in relay.output() and QUOTED not in relay.output()


def test_a_wrong_password_is_said_and_not_shown() -> None:
    """The relay's log names the broker, without what opens it."""
    with redis(private=True) as server:
        client.Redis(port=server.port).config_set("requirepass", PASSWORD)
        app = Celery("locked", broker=f"redis://:wrong-one@127.0.0.1:{server.port}/0", set_as_current=False)
        publisher = CeleryPublisher(app, "default", timeout=5)
        try:
            with pytest.raises(Exception) as refused:  # noqa: PT011 - whatever the client raises
                publisher.publish("quick", [(1, 0)])
            assert "wrong-one" not in str(refused.value)
        finally:
            publisher.reset()
            app.close()


def test_sentinel_leads_to_the_master(group: ProcessGroup, tmp_path: Path) -> None:
    """`sentinel://` and `master_name` are Celery's; what is published is in the master that Sentinel names."""
    with redis(private=True) as master:
        port = free_port()
        told = tmp_path / "sentinel.conf"
        told.write_text(
            f"port {port}\nbind 127.0.0.1\ndir {tmp_path}\nsentinel monitor shop 127.0.0.1 {master.port} 1\n"
        )
        sentinel = group.start([find_redis(), told, "--sentinel"], name="sentinel", cwd=tmp_path)
        wait_until(lambda: "+monitor master shop" in sentinel.output(), "a Sentinel", 20)
        app = Celery("watched", broker=f"sentinel://127.0.0.1:{port}", set_as_current=False)
        app.conf.broker_transport_options = {"master_name": "shop"}
        publisher = CeleryPublisher(app, "default", timeout=5)
        try:
            publisher.publish("quick", [(7, 3)])
            assert client.Redis(port=master.port).llen("quick") == 1
        finally:
            publisher.reset()
            app.close()
