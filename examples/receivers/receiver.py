"""Receives Landfall's webhooks: verifies them, takes each change of a deposit once and credits on CONFIRMED, and takes
each change of an identity and of a transfer once.

    pip install standardwebhooks
    SIGNING_KEY=whsec_.. PORT=9000 LEDGER=ledger.db python3 receiver.py

Events come at least once. What makes crediting happen exactly once is one transaction: the change is noted under
(dedup_key, status), and only when that was not there yet, the account is credited. The 2xx is said after the commit.
An identity may come to the same status again, and a transfer to the same stage. So their changes are known by the id of
their envelope.
"""

import json
import os
import sqlite3
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from standardwebhooks.webhooks import Webhook, WebhookVerificationError

BODY_BYTES_MAX = 1 << 20
VERIFIER = Webhook(os.environ["SIGNING_KEY"])
LEDGER = os.environ.get("LEDGER", "ledger.db")
TABLES = """
CREATE TABLE IF NOT EXISTS changes (dedup_key TEXT, status TEXT, PRIMARY KEY (dedup_key, status));
CREATE TABLE IF NOT EXISTS other_changes (event_id TEXT PRIMARY KEY, object_id TEXT, change TEXT);
CREATE TABLE IF NOT EXISTS credits (dedup_key TEXT PRIMARY KEY, account_id TEXT, amount TEXT, currency_symbol TEXT);
"""


def take(deposit: dict) -> bool:
    """Notes a change of a deposit and credits it when it is CONFIRMED; false when it was noted before."""
    ledger = sqlite3.connect(LEDGER, timeout=10)
    try:
        with ledger:
            ledger.execute("PRAGMA synchronous = FULL")
            change = (deposit["dedup_key"], deposit["status"])
            if ledger.execute("INSERT OR IGNORE INTO changes VALUES (?, ?)", change).rowcount == 0:
                return False
            if deposit["status"] == "CONFIRMED":
                # Amounts are decimal texts: never read them as floats.
                credit = [deposit[field] for field in ("dedup_key", "account_id", "amount", "currency_symbol")]
                ledger.execute("INSERT INTO credits VALUES (?, ?, ?, ?)", credit)
    finally:
        ledger.close()
    return True


def note(event_id: str, object_id: str, change: str) -> bool:
    """Notes a change of an identity or a transfer; false when it was noted before."""
    ledger = sqlite3.connect(LEDGER, timeout=10)
    try:
        with ledger:
            ledger.execute("PRAGMA synchronous = FULL")
            row = (event_id, object_id, change)
            return ledger.execute("INSERT OR IGNORE INTO other_changes VALUES (?, ?, ?)", row).rowcount > 0
    finally:
        ledger.close()


class Receiver(BaseHTTPRequestHandler):
    timeout = 30

    def do_POST(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        # Of a length below 0 it would read for as long as the sender likes.
        if not 0 <= length <= BODY_BYTES_MAX:
            return self.answer(413)
        body = self.rfile.read(length).decode("utf-8", "replace")
        try:
            # The bytes as they came: what is parsed and written again has another signature.
            VERIFIER.verify(body, {name.lower(): value for name, value in self.headers.items()})
        except WebhookVerificationError:
            return self.answer(401)
        event = json.loads(body)
        # Types that are not known yet are taken and left alone, so that they are not sent again.
        if event["type"] == "deposit_v2":
            deposit = event["data"]
            if take(deposit) and deposit["status"] == "CONFIRMED":
                print("credited", deposit["amount"], deposit["currency_symbol"], "to", deposit["account_id"], flush=True)
        elif event["type"] == "identity_status_update":
            identity, accounts = event["data"]["identity"], event["data"]["affected_account_ids"]
            if note(event["id"], identity["id"], identity["status"]):
                print(f"{identity['id']} is {identity['status']}:", *accounts, flush=True)
        elif event["type"] in ("transfer_submitted", "transfer_reconciliation", "transfer_failed"):
            # CONFIRMED, FAILED and DROPPED are for ever; a stage before them may be taken back by a reorg.
            transfer = event["data"]
            change = transfer.get("stage", transfer["status"])
            if note(event["id"], transfer["id"], change):
                amount, symbol, account = (transfer[field] for field in ("amount", "currency_symbol", "account_id"))
                print(f"{amount} {symbol} from {account}: {change}", flush=True)
        self.answer(204)

    def answer(self, status: int) -> None:
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


if __name__ == "__main__":
    with sqlite3.connect(LEDGER) as created:
        created.executescript(TABLES)
    ThreadingHTTPServer(("127.0.0.1", int(os.environ.get("PORT", "9000"))), Receiver).serve_forever()
