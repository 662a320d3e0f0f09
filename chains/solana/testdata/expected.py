"""Writes expected.json: what each owner gained by each recorded transaction, by the plainest sums over the JSON.

Knows nothing of the crate. Run it here: python3 expected.py > expected.json
Lines are [owner, asset, amount]: net gains of lamports (fee added back for the payer; token accounts left out) and of each
mint, per owner, of transactions that succeeded. Wrapped SOL is a mint like others. Where only what became of a transaction is
told, account number n has the key of 32 bytes n + 1.
"""

import glob
import json


def gains(tx):
    meta = tx["meta"]
    if meta["err"] is not None:
        return []
    message = tx["transaction"]["message"]
    keys = message["accountKeys"]
    if isinstance(keys[0], str):
        loaded = meta.get("loadedAddresses") or {"writable": [], "readonly": []}
        keys = keys + loaded["writable"] + loaded["readonly"]
    else:
        keys = [key["pubkey"] for key in keys]
    if len(keys) != len(meta["preBalances"]):
        return None
    tokens = [(-1, t) for t in meta["preTokenBalances"]] + [(1, t) for t in meta["postTokenBalances"]]
    token_accounts = {t["accountIndex"] for _, t in tokens}
    net = {}
    for at, key in enumerate(keys):
        if at not in token_accounts:
            change = meta["postBalances"][at] - meta["preBalances"][at] + (meta["fee"] if at == 0 else 0)
            net[key, "SOL"] = net.get((key, "SOL"), 0) + change
    for sign, token in tokens:
        if "owner" not in token:
            return "ownerless"
        if sign == 1 and meta["postBalances"][token["accountIndex"]] == 0:
            continue
        at = token["owner"], token["mint"]
        net[at] = net.get(at, 0) + sign * int(token["uiTokenAmount"]["amount"])
    return sorted([owner, asset, str(change)] for (owner, asset), change in net.items() if change > 0)


def made_up_key(number):
    """Base58 of 32 bytes number + 1; none of them is 0."""
    value, text = int.from_bytes(bytes([number + 1] * 32), "big"), ""
    while value:
        value, digit = divmod(value, 58)
        text = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"[digit] + text
    return text


def whole(tx):
    if "meta" in tx:
        return tx
    keys = [{"pubkey": made_up_key(at)} for at in range(len(tx["preBalances"]))]
    return {"meta": tx, "transaction": {"message": {"accountKeys": keys}}}


expected = {}
for path in sorted(glob.glob("*/*.json")):
    answer = json.load(open(path))
    answer = answer.get("result", answer)
    if "json" in answer:
        answer = answer["json"]
    if "blockhash" in answer and "transactions" not in answer:
        continue
    txs = [whole(tx) for tx in (answer["transactions"] if "transactions" in answer else [answer])]
    if "base64" in path or any(tx["meta"] is None for tx in txs):
        continue
    expected[path] = [gains(tx) for tx in txs]
print(json.dumps(expected, indent=1))
