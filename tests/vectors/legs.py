#!/usr/bin/env python3
"""Derives the legs of some recorded blocks again, from the raw JSON beside them and nothing else.

`legs.py` compares with chains/evm/testdata/legs and exits 1 at the first difference; `legs.py --write` writes them.
The Rust tests hold the crate to the same files. Where there are two places to read a thing, the other one is read here:
- the crate takes who pays, who is paid and what was created from the transaction; this from its receipt
- the crate takes POL from the logs of 0x1010; this from the values of transactions and of the traces' frames, and where
  there are no traces from the sender's balance before and after, which the same logs hold
- the crate scans traces as text, with a stack of its own; this walks the parsed tree, a failed frame first to last
Where a block was recorded without receipts, the legs are what may be a credit: each transaction's own value.
"""
import collections
import hashlib
import json
import pathlib
import sys

DATA = pathlib.Path(__file__).parents[2] / "chains" / "evm" / "testdata"
TRANSFER = "0xddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef"
LOG_TRANSFER = "0xe6497e3ee548a3372136af2fcb0696db31fc6cf20260707645068bd3fe97f3c4"
POL = "0x0000000000000000000000000000000000001010"
NOBODY = "0x" + "00" * 20
TOKENS = {
    "eth_mainnet": {
        "0xa0b86991c6218b36c1d19d4a2e9eb0ce3606eb48": "USDC",
        "0xdac17f958d2ee523a2206206994597c13d831ec7": "USDT",
        "0x1abaea1f7c830bd89acc67ec4af516284b1bc33c": "EURC",
    },
    "polygon_mainnet": {
        "0x2791bca1f2de4661ed88a30c99a7a9449aa84174": "USDC.e",
        "0x7ceb23fd6bc0add59e62ac25578270cff1b9f619": "WETH",
        "0x3c499c542cef5e3811e1192ce70d8cc03d5c3359": "USDC",
    },
    "optimism_sepolia": {"0x298b4c4f9be251c100724a3beae234bd1652cbce": "token"},
    "mode_mainnet": {},
    "unichain_sepolia": {},
}
ROOTS = [("eth_mainnet", n) for n in (4404763, 7280016, 11098450, 16899757)]
ROOTS += [("eth_mainnet", n) for n in (18000000, 19807080, 19840104, 20000000, 20066032, 22244135)]
ROOTS += [("eth_mainnet", n) for n in (23879620, 24628607, 24647140)]
ROOTS += [("mode_mainnet", 8017051), ("unichain_sepolia", 35535698)]
ROOTS += [("optimism_sepolia", n) for n in (26207960, 26207962)]
NO_RECEIPTS = [("eth_mainnet", n) for n in (19426587, 22431084, 23223655)] + [("eth_sepolia", 10100112)]
TRACES = [("eth_mainnet", n) for n in (16899757, 22244135)]
POLYGON = [("polygon_mainnet", 43200000)]
POLYGON_LOGS = [("polygon_mainnet", 50000000)]


def load(prefix, number, part):
    return json.loads((DATA / f"{prefix}_{number}_{part}.json").read_text())


def transactions(prefix, number):
    """Each transaction with its receipt, found by its hash."""
    receipts = {receipt["transactionHash"]: receipt for receipt in load(prefix, number, "receipts")}
    txs = load(prefix, number, "block")["transactions"]
    for tx in sorted(txs, key=lambda tx: int(tx["transactionIndex"], 16)):
        yield tx, receipts[tx["hash"]]


def is_leg(sender, recipient, amount):
    return amount > 0 and sender != recipient


def own_value(tx, receipt):
    recipient = receipt.get("to") or receipt["contractAddress"]
    leg = (receipt["from"], recipient, int(tx["value"], 16))
    return [("native", *leg)] if is_leg(*leg) else []


def tokens(prefix, receipt):
    for log in sorted(receipt["logs"], key=lambda log: int(log["logIndex"], 16)):
        symbol = TOKENS[prefix].get(log["address"])
        if symbol and log["topics"][0] == TRANSFER and len(log["topics"]) == 3 and len(log["data"]) == 66:
            leg = ("0x" + log["topics"][1][-40:], "0x" + log["topics"][2][-40:], int(log["data"], 16))
            if is_leg(*leg):
                yield (symbol, *leg)


def inside(frame):
    """What moved below `frame`, which did not fail; who borrows code moves nothing."""
    for call in frame.get("calls", []):
        if "error" in call:
            continue
        if call["type"] in ("CALL", "CREATE", "CREATE2", "SELFDESTRUCT"):
            leg = (call["from"], call["to"], int(call.get("value", "0x0"), 16))
            if is_leg(*leg):
                yield ("native", *leg)
        yield from inside(call)


def minted(tx):
    """What a deposit of the OP stack mints, whether it fails or not."""
    amount = int(tx.get("mint") or "0x0", 16)
    return [("native", NOBODY, tx["from"], amount)] if amount else []


def withdrawals(prefix, number):
    """They have no transaction: DESIGN names them by their index. A root in a header of the OP stack is of something else."""
    for withdrawal in load(prefix, number, "block").get("withdrawals") or []:
        fields = (b"withdrawal/v1", int(withdrawal["index"], 16).to_bytes(8, "big"))
        name = hashlib.sha256(b"".join(len(field).to_bytes(4, "big") + field for field in fields)).hexdigest()
        yield ("0x" + name, "native", NOBODY, withdrawal["address"], int(withdrawal["amount"], 16) * 10**9)


def lines(prefix, number, pieces):
    found = []
    for index, (tx, receipt) in enumerate(transactions(prefix, number)):
        found += [(tx["hash"], *leg) for leg in minted(tx)]
        if receipt["status"] == "0x1":
            found += [(tx["hash"], *leg) for leg in pieces(index, tx, receipt)]
    return found


def roots(prefix, number):
    found = lines(prefix, number, lambda _, tx, receipt: own_value(tx, receipt) + list(tokens(prefix, receipt)))
    return found + list(withdrawals(prefix, number))


def candidates(prefix, number):
    """What may be a credit of a block whose receipts nobody recorded."""
    found = []
    for tx in load(prefix, number, "block")["transactions"]:
        leg = (tx["from"], tx.get("to"), int(tx["value"], 16))
        if is_leg(*leg):
            found.append((tx["hash"], "native", *leg))
    return found + list(withdrawals(prefix, number))


def traces(prefix, number):
    frames = load(prefix, number, "traces")
    return lines(prefix, number, lambda index, _tx, _receipt: inside(frames[index]))


def polygon(prefix, number):
    """Native legs of a transaction first: only the chain's own logs would tell their order among those of tokens."""
    frames = load(prefix, number, "traces")
    return lines(
        prefix, number,
        lambda index, tx, receipt: own_value(tx, receipt) + list(inside(frames[index])) + list(tokens(prefix, receipt)),
    )


def logged(receipt):
    """POL that moved, by the sender's balance before and after: the second and the fourth word of the log."""
    for log in receipt["logs"]:
        if (log["address"], log["topics"][0]) == (POL, LOG_TRANSFER) and log["topics"][1][-40:] == POL[2:]:
            words = [int(log["data"][at : at + 64], 16) for at in range(2, len(log["data"]), 64)]
            leg = ("0x" + log["topics"][2][-40:], "0x" + log["topics"][3][-40:], words[1] - words[3])
            if is_leg(*leg):
                yield ("native", *leg)


def polygon_by_logs(prefix, number):
    """As `polygon`, without traces. Each transaction's own value is one of those movements."""
    def pieces(_index, tx, receipt):
        moved = list(logged(receipt))
        assert all(leg in moved for leg in own_value(tx, receipt)), tx["hash"]
        return moved + list(tokens(prefix, receipt))

    return lines(prefix, number, pieces)


def text(legs):
    sums = collections.OrderedDict()
    for _, asset, _, _, amount in legs:
        count, total = sums.get(asset, (0, 0))
        sums[asset] = (count + 1, total + amount)
    head = [f"# {asset}: {count} legs, {total} in all" for asset, (count, total) in sorted(sums.items())]
    rows = [f"{tx[2:10]} {asset} {sender[2:]} {recipient[2:]} {amount}" for tx, asset, sender, recipient, amount in legs]
    return "".join(line + "\n" for line in head + rows)


def main():
    derived = {f"{p}_{n}_roots.txt": text(roots(p, n)) for p, n in ROOTS}
    derived |= {f"{p}_{n}_traces.txt": text(traces(p, n)) for p, n in TRACES}
    derived |= {f"{p}_{n}_roots.txt": text(polygon(p, n)) for p, n in POLYGON}
    derived |= {f"{p}_{n}_roots.txt": text(polygon_by_logs(p, n)) for p, n in POLYGON_LOGS}
    derived |= {f"{p}_{n}_candidates.txt": text(candidates(p, n)) for p, n in NO_RECEIPTS}
    for name, content in derived.items():
        if "--write" in sys.argv:
            (DATA / "legs" / name).write_text(content)
        elif (DATA / "legs" / name).read_text() != content:
            print(f"legs: {name} differs from what the recorded block says")
            return 1
    print(f"legs: {len(derived)} tables, {sum(content.count(chr(10)) for content in derived.values())} lines")
    return 0


if __name__ == "__main__":
    sys.exit(main())
