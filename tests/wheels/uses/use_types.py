"""Decode a job, refuse a wrong one, and tell that two spellings are one job."""

from rookhold_types import InvalidJsonError, JobSpec, canonical_sha256, decode_strict, fingerprint

spec = decode_strict(b'{"language": "python", "code": "print(6*7)"}', JobSpec)
again = decode_strict(b'{"code":"print(6*7)","language":"python","limits":{}}', JobSpec)
assert fingerprint(spec) == fingerprint(again)
assert len(canonical_sha256({"a": [1, "é"]})) == 64
try:
    decode_strict(b'{"language": "python", "code": "", "code": ""}', JobSpec)
except InvalidJsonError as refused:
    print(refused.code)
