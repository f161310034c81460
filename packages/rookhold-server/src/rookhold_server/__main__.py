"""`python -m rookhold_server`."""

from rookhold_server.serve import main

if __name__ == "__main__":
    raise SystemExit(main())
