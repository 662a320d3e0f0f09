"""What schemathesis must know beside openapi.json: how texts of our formats are made, and how requests are signed.

LANDFALL_SIGNING_KEY is the PEM of the Ed25519 key that the API key of LANDFALL_KEY_ID is paired with: then each request is signed
as openapi.json says of `X-Request-Signature`. Without it none is. LANDFALL_PAYER is the id of an account that has USDC to send.
"""

import base64
import hashlib
import json
import os
import re
import secrets
import time
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import requests
import schemathesis
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from hypothesis import strategies as st
from hypothesis.provisional import urls
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import negative_data_rejection, positive_data_acceptance

# A webhook's URL that nothing is wrong with.
PLAIN_URL = re.compile(r"https://example\.com(:443|:[1-5][0-9]{4})?(/[a-z0-9]*)*")
BASE58 = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"


def base58(data: bytes) -> str:
    number, text = int.from_bytes(data, "big"), ""
    while number:
        number, digit = divmod(number, 58)
        text = BASE58[digit] + text
    return "1" * (len(data) - len(data.lstrip(b"\0"))) + text


def base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


schemathesis.openapi.format("evm-address", st.binary(min_size=20, max_size=20).map(lambda raw: "0x" + raw.hex()))
schemathesis.openapi.format("solana-address", st.binary(min_size=32, max_size=32).map(base58))
schemathesis.openapi.format("uri", st.one_of(urls(), st.from_regex(PLAIN_URL, fullmatch=True)))


class Signed(requests.auth.AuthBase):
    """Signs a request as it is sent, to the byte."""

    def __init__(self) -> None:
        self.key_id = os.environ["LANDFALL_KEY_ID"]
        self.key = load_pem_private_key(Path(os.environ["LANDFALL_SIGNING_KEY"]).read_bytes(), None)

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        parts, now = urlsplit(request.url), int(time.time())
        body = request.body or b""
        claims = {
            "sub": self.key_id,
            "aud": parts.netloc,
            "method": request.method,
            "uri": parts.path + (f"?{parts.query}" if parts.query else ""),
            "bodyHash": hashlib.sha256(body.encode() if isinstance(body, str) else body).hexdigest(),
            "nonce": secrets.token_hex(16),
            "iat": now,
            "exp": now + 30,
        }
        head = base64url(json.dumps({"alg": "EdDSA", "typ": "JWT"}).encode())
        signed = f"{head}.{base64url(json.dumps(claims).encode())}"
        request.headers["X-Request-Signature"] = f"{signed}.{base64url(self.key.sign(signed.encode()))}"
        return request


if "LANDFALL_SIGNING_KEY" in os.environ:
    schemathesis.auth.set_from_requests(Signed())


@schemathesis.hook
def before_call(context, case, kwargs):
    """Nobody waits for an event longer than a second, and few that long, or this would take hours."""
    wait = str((case.query or {}).get("wait"))
    if wait in map(str, range(1, 26)):
        case.query["wait"] = "1" if wait == "25" else "0"


@schemathesis.hook("before_call")
def most_transfers_can_be_paid(context, case, kwargs):
    """Of four well-formed transfers three are of the account that has money, whatever else was asked for. What they ask for follows from
    their `request_id`, so that one that comes again is the same. Those that go through the values of each field stay as they are."""
    meta, body = case.meta, case.body
    if case.operation.label != "POST /v2/crypto/transfers" or meta is None or not isinstance(body, dict):
        return
    if meta.phase.name == "coverage" or not meta.generation.mode.is_positive:
        return
    digest = hashlib.sha256(body["request_id"].lower().encode()).hexdigest()
    if digest[0] in "048c":
        return
    # The account has some 9,000 of the largest.
    amount = f"0.{1 + int(digest[1:4], 16) % 999:06d}"
    address, chain = "0x" + digest[-40:], "ETHEREUM_TESTNET"
    nested = {"address_destination": {"address": address, "chain": chain}}
    flat = {"destination_address": address, "destination_chain": chain}
    case.body = {
        "request_id": body["request_id"],
        "account_id": os.environ["LANDFALL_PAYER"],
        "currency_symbol": "USDC",
        "amount": amount,
        **(nested if digest[4] in "01234567" else flat),
    }


# What is refused with 503 although nothing failed.
NOT_NOW = {"BALANCE_UNKNOWN", "SIGNER_UNAVAILABLE"}


@schemathesis.check
def servers_do_not_fail(ctx, response, case):
    """As schemathesis's own check, but for two refusals: a balance was not read yet, and an address cannot be derived without a
    signer."""
    if response.status_code == 503 and response.json().get("code") in NOT_NOW:
        return None
    return not_a_server_error(ctx, response, case)


BEYOND_SCHEMA = {
    "cursor": ("must be a cursor that this list gave", "belongs to other filters"),
    "after": "is beyond the newest event",
    "start_time": "must not be after end_time",
    "symbol": "is listed by no chain that is followed",
    "identity_id": "is refused",
    "url": "is not taken",
    "addresses": ("is refused", "must give a SEGREGATED account"),
    "chains": "is refused",
    "previous_key_valid_secs": "must be an integer of at least 0, without a fraction",
    "account_id": "names no account",
    "request_id": "must be a UUID",
    "amount": '"',
    "currency_symbol": ("is not listed on", "names several assets"),
    "address_destination": ("must be sent alone", "is required"),
    "address_destination.address": "",
    "address_destination.chain": "is not followed",
    "destination_address": "",
    "destination_chain": ("is required beside", "is not followed"),
}
# Why a transfer that is well formed is not accepted.
NOT_PAYABLE = {"SOURCE_NOT_MANAGED", "ASSET_NOT_SENDABLE", "INSUFFICIENT_FUNDS", "TRANSACTION_LIMIT_EXCEEDED", "GAS_CREDIT_EXHAUSTED"}


def is_beyond_schema(case, parameter: str, detail: str) -> bool:
    url = case.body.get("url") if isinstance(case.body, dict) else None
    if parameter == "url" and isinstance(url, str) and PLAIN_URL.fullmatch(url):
        return detail.startswith("is not taken: there are 1000 webhooks")
    return detail.startswith(BEYOND_SCHEMA.get(parameter, "\0"))


@schemathesis.check
def well_formed_requests_are_taken(ctx, response, case):
    """As schemathesis's own check, but for what no schema can say: a page's cursor is one that the list gave with these
    filters, a symbol is one that is listed, a time is not after another, no event of the feed is above its newest, an account's
    identity exists and its addresses are nobody else's, a webhook's host can be a name of the internet (one whose host is one is
    taken), an integer is written as one, without a fraction of zero, and a transfer can be paid and has one destination."""
    if response.status_code == 422 and response.json().get("code") in NOT_PAYABLE:
        return None
    if response.status_code == 400:
        errors = [(error["parameter"], error["detail"]) for error in response.json().get("errors", [])]
        if errors and all(is_beyond_schema(case, parameter, detail) for parameter, detail in errors):
            return None
    return positive_data_acceptance(ctx, response, case)


@schemathesis.check
def ill_formed_requests_are_refused(ctx, response, case):
    """As schemathesis's own check, but for two things that it does not know: 431 refuses what is too long to be looked at, and a
    parameter whose value comes to nothing is not in the URL that was sent."""
    sent = parse_qs(urlsplit(response.request.url).query, keep_blank_values=True)
    if response.status_code == 431 or not set(case.query or {}) <= set(sent):
        return None
    return negative_data_rejection(ctx, response, case)
