"""`python -m tools.protocol_tables` writes or checks the protocol tables."""

from tools.protocol_tables.generate import main

if __name__ == "__main__":
    raise SystemExit(main())
