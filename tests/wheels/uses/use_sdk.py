"""Run a job on the gateway that the environment names."""

from rookhold import Rookhold

with Rookhold() as gateway:
    result = gateway.run("python", "print(6 * 7)", limits={"wall_seconds": 5})
    print(result.status, result.stdout.strip())
