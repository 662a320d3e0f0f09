// Verifies requests with the official package `standardwebhooks`, and Ed25519 signatures with node's own crypto.
//
// Reads one JSON array from stdin: {key, headers, body} each. Prints one JSON array of true and false. Any other end is a failure.

import { createPublicKey, verify } from "node:crypto";
import { createRequire } from "node:module";
import { text } from "node:stream/consumers";

const require = createRequire(new URL("../../../nodes/package.json", import.meta.url));
const { Webhook } = require("standardwebhooks");

/** Whether one of the `v1a` signatures is by this public key. */
function signedByPublicKey(key, headers, body) {
  // An Ed25519 key in DER: RFC 8410's prefix, then its 32 bytes.
  const der = Buffer.concat([Buffer.from("302a300506032b6570032100", "hex"), Buffer.from(key.slice("whpk_".length), "base64")]);
  const publicKey = createPublicKey({ key: der, format: "der", type: "spki" });
  const signed = Buffer.from(`${headers["webhook-id"]}.${headers["webhook-timestamp"]}.${body}`);
  const signatures = headers["webhook-signature"].split(" ").filter((given) => given.startsWith("v1a,"));
  return signatures.some((given) => verify(null, signed, publicKey, Buffer.from(given.slice("v1a,".length), "base64")));
}

function isSigned({ key, headers, body }) {
  if (key.startsWith("whpk_")) return signedByPublicKey(key, headers, body);
  try {
    new Webhook(key).verify(body, headers);
    return true;
  } catch (error) {
    if (error.constructor.name === "WebhookVerificationError") return false;
    throw error;
  }
}

console.log(JSON.stringify(JSON.parse(await text(process.stdin)).map(isSigned)));
