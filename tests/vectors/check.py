#!/usr/bin/env python3
"""Derives every id and amount in this folder again, from the rules in ids.json and amounts.json and nothing else.

`check.py` compares and exits 1 at the first difference; `check.py --write` writes what it derives. The Rust tests read
the same files: two languages that agree on them agree on every id.
"""
import hashlib
import json
import pathlib
import sys
import uuid

HERE = pathlib.Path(__file__).parent


def lp(field: bytes) -> bytes:
    return len(field).to_bytes(4, "big") + field


def uuid8(digest: bytes) -> str:
    raw = bytearray(digest[:16])
    raw[6] = (raw[6] & 0x0F) | 0x80
    raw[8] = (raw[8] & 0x3F) | 0x80
    return str(uuid.UUID(bytes=bytes(raw)))


def leg_hash(leg: dict) -> bytes:
    fields = [
        b"deposit/v1",
        leg["chain_ref"].encode(),
        bytes.fromhex(leg["tx_id"]),
        bytes.fromhex(leg["asset"]),
        bytes.fromhex(leg["recipient"]),
        int(leg["raw_amount"]).to_bytes(32, "big"),
        leg["nth"].to_bytes(4, "big"),
    ]
    return hashlib.sha256(b"".join(map(lp, fields))).digest()


def event_id(leg: bytes, status: str, n: int) -> str:
    fields = [b"event/v1", leg, status.encode(), n.to_bytes(4, "big")]
    return uuid8(hashlib.sha256(b"".join(map(lp, fields))).digest())


def decimal(base_units: int, decimals: int) -> str:
    digits = str(base_units).rjust(decimals + 1, "0")
    whole, fraction = (digits[:-decimals], digits[-decimals:]) if decimals else (digits, "")
    fraction = fraction.rstrip("0")
    return f"{whole}.{fraction}" if fraction else whole


def derive_ids(vector: dict) -> dict:
    leg = leg_hash(vector["leg"])
    events = {name: event_id(leg, *(lambda s, n: (s, int(n)))(*name.split("/"))) for name in vector["events"]}
    return {"leg": vector["leg"], "leg_hash": leg.hex(), "id": uuid8(leg), "dedup_key": event_id(leg, "PENDING", 0), "events": events}


def main() -> int:
    ids = json.loads((HERE / "ids.json").read_text())
    amounts = json.loads((HERE / "amounts.json").read_text())
    derived = (
        {**ids, "vectors": [derive_ids(vector) for vector in ids["vectors"]]},
        {**amounts, "vectors": [{**a, "decimal": decimal(int(a["base_units"]), a["decimals"])} for a in amounts["vectors"]]},
    )
    if "--write" in sys.argv:
        for name, content in zip(("ids.json", "amounts.json"), derived):
            (HERE / name).write_text(json.dumps(content, indent=1) + "\n")
        return 0
    if derived != (ids, amounts):
        print("vectors: ids.json or amounts.json differs from what its rules give")
        return 1
    print(f"vectors: {len(ids['vectors'])} legs and {len(amounts['vectors'])} amounts agree")
    return 0


if __name__ == "__main__":
    sys.exit(main())
