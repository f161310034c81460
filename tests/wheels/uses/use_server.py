"""Start a gateway, hand it a job over plain HTTP, and stop it; needs nothing but the server."""

import json
import os
import signal
import subprocess
import sys
import urllib.request

KEY = "a-key-for-this-test-only-0123456789"
ready, told = os.pipe()
gateway = subprocess.Popen(
    [sys.executable, "-P", "-m", "rookhold_server"],
    env={
        **os.environ,
        "ROOKHOLD_ADDR": "127.0.0.1:0",
        "ROOKHOLD_API_KEYS": f"local:{KEY}",
        "ROOKHOLD_READY_FD": str(told),
    },
    pass_fds=(told,),
)
os.close(told)
with os.fdopen(ready, "rb") as pipe:
    address = json.loads(pipe.readline())["address"]


def ask(method: str, path: str, body: bytes | None = None) -> dict:
    headers = {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json"}
    request = urllib.request.Request(f"http://{address}{path}", body, headers, method=method)
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


job = ask("POST", "/v1/jobs", json.dumps({"language": "python", "code": "print(6*7)"}).encode())
result = ask("GET", f"/v1/jobs/{job['job_id']}/result?wait_seconds=30")
gateway.send_signal(signal.SIGTERM)
assert gateway.wait(60) == 0
print(result["status"], result["stdout"].strip())
