"""Make a key, sign a receipt with it, and leave the three files that a verifier needs."""

import os
from pathlib import Path

from rookhold_attestation import PrivateKey, testing

os.umask(0o077)
key = PrivateKey.generate()
key.public_key.save("signer.pub.pem")
evidence = testing.sample_evidence(key)
Path("envelope.json").write_bytes(evidence.envelope)
Path("result.json").write_bytes(evidence.artifact)
print(testing.TENANT)
