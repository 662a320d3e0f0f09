// Receives Landfall's webhooks: verifies them, takes each change of a deposit once and credits on CONFIRMED, and takes each
// change of an identity and of a transfer once.
//
//     npm install standardwebhooks && npm install --save-dev typescript @types/node && npx tsc receiver.ts
//     SIGNING_KEY=whsec_.. PORT=9000 LEDGER=ledger.jsonl node receiver.js
//
// Events come at least once. What makes crediting happen exactly once is one write: a line of the ledger says both that the
// change (dedup_key, status) was taken and what it credits, and it is on the disk before the 2xx is said. With a database
// of your own, make it one transaction. An identity may come to the same status again, and a transfer to the same stage. So
// their changes are known by the id of their envelope.

import { appendFileSync, closeSync, fsyncSync, ftruncateSync, openSync, readFileSync } from "node:fs";
import { createServer, type IncomingHttpHeaders, type IncomingMessage } from "node:http";
import { Webhook, WebhookVerificationError } from "standardwebhooks";

interface Deposit {
  dedup_key: string;
  status: "PENDING" | "CONFIRMED" | "FAILED";
  account_id: string;
  /** A decimal text: never make it a number. */
  amount: string;
  currency_symbol: string;
}

interface IdentityChange {
  identity: { id: string; status: "PENDING_ONBOARDING" | "ACTIVE" | "SUSPENDED" | "REJECTED" | "TERMINATED" };
  affected_account_ids: string[];
}

/** Where a transfer stands. CONFIRMED, FAILED and DROPPED are for ever; a stage before them may be taken back by a reorg. */
interface Transfer {
  id: string;
  status: "ACCEPTED" | "SUBMITTED" | "CONFIRMED" | "FAILED" | "DROPPED";
  /** Of transfer_reconciliation only. */
  stage?: "INCLUDED" | "DISPLACED" | "CONFIRMED";
  account_id: string;
  /** A decimal text: never make it a number. */
  amount: string;
  currency_symbol: string;
}

/** What a line of the ledger begins with: what it is known by again. */
type Taken = { dedup_key: string; status: string } | { event_id: string };

const BODY_BYTES_MAX = 1 << 20;

/** What was taken, in a file that survives. */
class Ledger {
  private readonly taken = new Set<string>();
  private readonly file: number;
  /** Of the lines that are whole and on the disk, in bytes. */
  private length: number;

  constructor(path: string) {
    closeSync(openSync(path, "a"));
    const text = readFileSync(path, "utf8");
    // A line that was cut off in the writing was never answered with a 2xx: its event comes again.
    const whole = text.slice(0, text.lastIndexOf("\n") + 1);
    for (const line of whole.split("\n").filter((line) => line !== "")) {
      this.taken.add(Ledger.key(JSON.parse(line) as Taken));
    }
    this.length = Buffer.byteLength(whole);
    this.file = openSync(path, "a");
  }

  /** Notes a change of a deposit; false when it was noted before. */
  take(deposit: Deposit): boolean {
    const { dedup_key, status, account_id, amount, currency_symbol } = deposit;
    return this.note({ dedup_key, status, account_id, amount, currency_symbol });
  }

  /** Notes a change of an identity or a transfer; false when it was noted before. */
  takeChange(event_id: string, object_id: string, change: string): boolean {
    return this.note({ event_id, object_id, change });
  }

  private note(line: Taken & Record<string, string>): boolean {
    const key = Ledger.key(line);
    if (this.taken.has(key)) return false;
    const text = JSON.stringify(line) + "\n";
    // What a write that failed left behind was never answered with a 2xx: no line stands behind it, or twice.
    ftruncateSync(this.file, this.length);
    appendFileSync(this.file, text);
    fsyncSync(this.file);
    this.length += Buffer.byteLength(text);
    this.taken.add(key);
    return true;
  }

  private static key(taken: Taken): string {
    return "event_id" in taken ? taken.event_id : `${taken.dedup_key} ${taken.status}`;
  }
}

const verifier = new Webhook(process.env["SIGNING_KEY"] ?? "");
const ledger = new Ledger(process.env["LEDGER"] ?? "ledger.jsonl");

async function read(request: IncomingMessage): Promise<string | undefined> {
  const chunks: Buffer[] = [];
  let length = 0;
  for await (const chunk of request as AsyncIterable<Buffer>) {
    length += chunk.length;
    if (length > BODY_BYTES_MAX) return undefined;
    chunks.push(chunk);
  }
  return Buffer.concat(chunks).toString("utf8");
}

function receive(body: string, headers: IncomingHttpHeaders): number {
  let event: { id: string; type: string; data: unknown };
  try {
    // The bytes as they came: what is parsed and written again has another signature.
    event = verifier.verify(body, headers as Record<string, string>) as typeof event;
  } catch (error) {
    if (error instanceof WebhookVerificationError) return 401;
    throw error;
  }
  // Types that are not known yet are taken and left alone, so that they are not sent again.
  if (event.type === "deposit_v2") {
    const deposit = event.data as Deposit;
    if (ledger.take(deposit) && deposit.status === "CONFIRMED") {
      console.log(`credited ${deposit.amount} ${deposit.currency_symbol} to ${deposit.account_id}`);
    }
  } else if (event.type === "identity_status_update") {
    const { identity, affected_account_ids } = event.data as IdentityChange;
    if (ledger.takeChange(event.id, identity.id, identity.status)) {
      console.log(`${identity.id} is ${identity.status}: ${affected_account_ids.join(" ")}`);
    }
  } else if (["transfer_submitted", "transfer_reconciliation", "transfer_failed"].includes(event.type)) {
    const transfer = event.data as Transfer;
    const change = transfer.stage ?? transfer.status;
    if (ledger.takeChange(event.id, transfer.id, change)) {
      console.log(`${transfer.amount} ${transfer.currency_symbol} from ${transfer.account_id}: ${change}`);
    }
  }
  return 204;
}

createServer(async (request, response) => {
  let status = 500;
  try {
    const body = await read(request);
    status = body === undefined ? 413 : receive(body, request.headers);
  } catch (error) {
    console.error(error);
  }
  response.writeHead(status).end();
}).listen(Number(process.env["PORT"] ?? "9000"), "127.0.0.1");
