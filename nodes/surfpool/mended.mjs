// surfpool as a chain that hangs together.
//
// surfpool runs the real programs, but its chain is none: a block with transactions is its own parent, hashes come from two
// counters, commitments are ignored, a closed token account goes on being told with what it held. Landfall proves that blocks
// hang together and has no mode that does not, so what it reads is mended here, in what is for tests and the sandbox only.
//
// Its own: which slots hold a block (one empty slot in 20 is skipped), previousBlockhash, parentSlot, blockHeight; what
// is confirmed and final, and that by `getSlot`, `getBlockHeight`, `getLatestBlockhash`, `getBlocks`, `getBlock`,
// `getTransaction`, `getSignatureStatuses`, `getSignaturesForAddress` alike; what is final by `getMultipleAccounts`, too; leaps
// of `blockTime`, which programs do not see.
// Put right: `blockTime` (seconds and not kiloseconds), the codes -32001 (before the first slot), -32004 (not there yet), -32007
// (skipped), -32015 (transaction version), -32016 (minContextSlot), -32020 (signature unknown); token balances of accounts that
// have no lamports left; fees, from which surfpool leaves out the price of compute units that it takes; batches of calls.
// A block's blockhash is the one that surfpool named as the newest in its slot, so that who signs with it is served; where that was
// missed it is made up, and surfpool takes no transaction with it.
// Left as it is: all transactions, their balances and errors, in the slot and order in which surfpool ran them; other
// accounts and balances, and those that are asked for as confirmed, which are always the newest; `getLatestBlockhash` at
// `processed`, which is surfpool's own: transactions are signed with that one, and nobody else may ask for it. There are no
// forks, no votes and no holes here: those need a node that is made up.
import { createHash } from "node:crypto";
import { createServer } from "node:http";
import { base58 } from "./base58.mjs";

// A block is closed when surfpool is this many slots further: what ran in its slot is written down by then.
const SLOTS_BEHIND = 3;
// As with Tower, where a block is final when 31 stand on it.
const SLOTS_TO_FINAL = 31;
const SKIP_ONE_IN = 20;
const PAGE_MAX = 1000;
// How often accounts are read that do not stand still, and how often it is looked whether a slot is final.
const STILL_TRIES_MAX = 5;
const STILL_PAUSE_MS = 20;
// As far as surfpool counts.
const VERSION_MAX = 127;

class Refusal extends Error {
  constructor(code, message, data) {
    super(message);
    this.error = { code, message, ...(data && { data }) };
  }
}

export class Mended {
  // Begins where surfpool stands.
  static async before(url, slotMs) {
    const mended = new Mended(url);
    mended.seed = await mended.ask("getGenesisHash", []);
    mended.first = (await mended.ask("getSlot", [{ commitment: "processed" }])) + 1;
    mended.closed = mended.first - 1;
    mended.heights.set(mended.closed, 0);
    mended.closing = setInterval(() => mended.close(), slotMs / 2);
    while (mended.tip("finalized") <= mended.first) await new Promise((done) => setTimeout(done, slotMs));
    return mended;
  }

  constructor(url) {
    this.url = url;
    // Of every slot that is closed and holds a block.
    this.heights = new Map();
    // What surfpool named as its newest blockhash while it was in a slot.
    this.hashes = new Map();
    this.newest = null;
    // How many transactions were told of a block.
    this.told = new Map();
    // By how much the time is later, and from which slot on.
    this.leaps = [];
    this.isClosing = false;
    // What is answered here; everything else is surfpool's.
    this.methods = { ...METHODS };
  }

  // Closes the slots that surfpool has left behind.
  async close() {
    if (this.isClosing) return;
    this.isClosing = true;
    const { context, value } = await this.ask("getLatestBlockhash", [{ commitment: "processed" }]);
    // Where it is busy it may name one twice, for a slot and for the next.
    if (!this.hashes.has(context.slot) && value.blockhash !== this.newest) this.hashes.set(context.slot, value.blockhash);
    this.newest = value.blockhash;
    const target = context.slot - SLOTS_BEHIND;
    while (this.closed < target) {
      const slot = this.closed + 1;
      const isSkipped = slot > this.first && this.draws(slot) && (await this.isEmpty(slot));
      if (!isSkipped) this.heights.set(slot, this.heights.get(this.parent(slot)) + 1);
      this.closed = slot;
    }
    this.isClosing = false;
  }

  draws(slot) {
    return this.digest("skip", slot)[0] % SKIP_ONE_IN === 0;
  }

  async isEmpty(slot) {
    const how = { commitment: "confirmed", transactionDetails: "signatures", rewards: false, maxSupportedTransactionVersion: 1 };
    return (await this.ask("getBlock", [slot, how])).signatures.length === 0;
  }

  digest(what, slot) {
    return createHash("sha256").update(`${what} ${slot} ${this.seed}`).digest();
  }

  hash(slot) {
    return this.hashes.get(slot) ?? base58(this.digest("block", slot));
  }

  // Blocks that are not closed yet are so much later; the first such slot.
  leap(secs) {
    const from = this.closed + 1;
    this.leaps.push({ from, secs });
    return from;
  }

  // In seconds since 1970.
  async time(slot) {
    const time = await this.ask("getBlockTime", [slot]);
    const leaps = this.leaps.filter(({ from }) => slot >= from);
    return time === null ? null : leaps.reduce((later, { secs }) => later + secs, time);
  }

  parent(slot) {
    let parent = slot - 1;
    while (!this.heights.has(parent) && parent >= this.first) parent -= 1;
    return parent;
  }

  // The newest block of a commitment; without one, as nodes have it, the newest final one.
  tip(commitment) {
    const behind = ["processed", "confirmed"].includes(commitment) ? 0 : SLOTS_TO_FINAL;
    return this.parent(Math.max(this.closed - behind, this.first) + 1);
  }

  status(slot) {
    if (slot <= this.tip("finalized")) return "finalized";
    return slot <= this.tip("confirmed") ? "confirmed" : "processed";
  }

  // What surfpool answers.
  async ask(method, params) {
    const { result, error } = JSON.parse(await this.forward({ jsonrpc: "2.0", id: 1, method, params }));
    if (error) throw new Refusal(error.code, error.message, error.data);
    return result;
  }

  async forward(call) {
    const headers = { "content-type": "application/json" };
    const answer = await fetch(this.url, { method: "POST", headers, body: JSON.stringify(call) });
    return answer.text();
  }

  // The answer to a call, as text.
  async answer(call) {
    const { id, method, params = [] } = call;
    try {
      const config = params.find((param) => param !== null && typeof param === "object" && !Array.isArray(param)) ?? {};
      const contextSlot = this.tip(config.commitment);
      if (config.minContextSlot > contextSlot) {
        throw new Refusal(-32016, "Minimum context slot has not been reached", { contextSlot });
      }
      const isSigning = method === "getLatestBlockhash" && config.commitment === "processed";
      if (!Object.hasOwn(this.methods, method) || isSigning) return await this.forward(call);
      const result = await this.methods[method](this, params, config);
      return JSON.stringify({ jsonrpc: "2.0", result, id });
    } catch (failure) {
      const error = failure instanceof Refusal ? failure.error : { code: -32603, message: String(failure) };
      return JSON.stringify({ jsonrpc: "2.0", error, id });
    }
  }

  // Listens on a free port; its URL.
  async listen() {
    const server = createServer(async (request, response) => {
      let body = "";
      for await (const chunk of request) body += chunk;
      const asked = JSON.parse(body);
      const answer = Array.isArray(asked)
        ? `[${(await Promise.all(asked.map((call) => this.answer(call)))).join(",")}]`
        : await this.answer(asked);
      response.writeHead(200, { "content-type": "application/json" }).end(answer);
    });
    await new Promise((done) => server.listen(0, "127.0.0.1", done));
    return `http://127.0.0.1:${server.address().port}`;
  }
}

const METHODS = {
  getSlot: (chain, _, { commitment }) => chain.tip(commitment),
  getBlockHeight: (chain, _, { commitment }) => chain.heights.get(chain.tip(commitment)),
  getFirstAvailableBlock: (chain) => chain.first,
  minimumLedgerSlot: (chain) => chain.first,

  getLatestBlockhash(chain, _, { commitment }) {
    const slot = chain.tip(commitment);
    const value = { blockhash: chain.hash(slot), lastValidBlockHeight: chain.heights.get(slot) + 150 };
    return { context: { slot }, value };
  },

  // surfpool has only the newest state: what is told of a slot has stood still until that was final. What is confirmed may be as
  // new as that.
  async getMultipleAccounts(chain, params, { commitment }) {
    let told = await chain.ask("getMultipleAccounts", params);
    if (commitment === "confirmed") return { context: { slot: chain.tip(commitment) }, value: told.value };
    for (let tries = 0; tries < STILL_TRIES_MAX; tries += 1) {
      const { slot } = told.context;
      while (chain.tip(commitment) < slot) await new Promise((done) => setTimeout(done, STILL_PAUSE_MS));
      const now = await chain.ask("getMultipleAccounts", params);
      if (JSON.stringify(now.value) === JSON.stringify(told.value)) return { context: { slot }, value: told.value };
      told = now;
    }
    throw new Refusal(-32603, "the accounts do not stand still");
  },

  getBlocks(chain, [first, second], { commitment }) {
    const last = Math.min(typeof second === "number" ? second : Infinity, chain.tip(commitment));
    const slots = [];
    for (let slot = Math.max(first, chain.first); slot <= last; slot += 1) if (chain.heights.has(slot)) slots.push(slot);
    return slots;
  },

  async getBlock(chain, [slot, how], { commitment }) {
    check(chain, slot, commitment);
    const block = await shown(chain, "getBlock", [slot, { ...how, commitment: "confirmed" }]);
    if (block === null) throw new Refusal(-32603, `surfpool has lost block ${slot}`);
    const transactions = block.transactions ?? [];
    const count = (block.transactions ?? block.signatures)?.length;
    if (count !== undefined && count !== (chain.told.get(slot) ?? count)) {
      throw new Refusal(-32603, `surfpool changed block ${slot} after it was closed`);
    }
    if (count !== undefined) chain.told.set(slot, count);
    for (const { meta } of transactions) mend(meta);
    const parentSlot = chain.parent(slot);
    block.parentSlot = parentSlot;
    block.previousBlockhash = chain.hash(parentSlot);
    block.blockhash = chain.hash(slot);
    block.blockHeight = chain.heights.get(slot);
    block.blockTime = await chain.time(slot);
    return block;
  },

  getBlockTime(chain, [slot]) {
    check(chain, slot, "confirmed");
    return chain.time(slot);
  },

  async getTransaction(chain, params, { commitment }) {
    const [signature, how] = params;
    const asked = typeof how === "object" ? { ...how, commitment: "confirmed" } : how;
    const tx = await shown(chain, "getTransaction", [signature, asked]);
    if (tx === null || tx.slot > chain.tip(commitment)) return null;
    mend(tx.meta);
    tx.blockTime = await chain.time(tx.slot);
    return tx;
  },

  async getSignatureStatuses(chain, params) {
    const { value } = await chain.ask("getSignatureStatuses", params);
    for (const status of value.filter((status) => status !== null)) {
      status.confirmationStatus = chain.status(status.slot);
      status.confirmations = status.confirmationStatus === "finalized" ? null : Math.max(chain.closed - status.slot, 0);
    }
    return { context: { slot: chain.tip("confirmed") }, value };
  },

  async getSignaturesForAddress(chain, [address], config) {
    const { limit = PAGE_MAX, commitment, before, until } = config;
    for (const signature of [before, until].filter(Boolean)) {
      const { value } = await chain.ask("getSignatureStatuses", [[signature], { searchTransactionHistory: true }]);
      if (value[0] === null) throw new Refusal(-32020, `Transaction ${signature} not found`);
    }
    // What is not confirmed yet must not use up the page.
    const how = { before, until, limit: PAGE_MAX, commitment: "confirmed" };
    const found = await chain.ask("getSignaturesForAddress", [address, how]);
    const shown = found.filter(({ slot }) => slot <= chain.tip(commitment)).slice(0, limit);
    for (const one of shown) one.confirmationStatus = chain.status(one.slot);
    return shown;
  },
};

// That there is a block in the slot.
function check(chain, slot, commitment) {
  if (slot < chain.first) {
    throw new Refusal(-32001, `Block ${slot} cleaned up, does not exist on node. First available block: ${chain.first}`);
  }
  if (slot > chain.tip(commitment)) throw new Refusal(-32004, `Block not available for slot ${slot}`);
  if (!chain.heights.has(slot)) {
    throw new Refusal(-32007, `Slot ${slot} was skipped, or missing due to ledger jump to recent snapshot`);
  }
}

// What surfpool shows of a block or a transaction. It says "internal error" when a version is above what was asked for, and names
// none: asked again for all, the answer tells which it is.
async function shown(chain, method, [what, how]) {
  try {
    return await chain.ask(method, [what, how]);
  } catch (refusal) {
    const asked = how?.maxSupportedTransactionVersion ?? -1;
    const all = await chain.ask(method, [what, { ...how, maxSupportedTransactionVersion: VERSION_MAX }]);
    const versions = (all?.transactions ?? [all]).map((tx) => (Number.isInteger(tx?.version) ? tx.version : -1));
    const version = versions.find((version) => version > asked);
    if (version === undefined) throw refusal;
    const message =
      `Transaction version (${version}) is not supported by the requesting client. ` +
      `Please try the request again with the following configuration parameter: "maxSupportedTransactionVersion": ${version}`;
    throw new Refusal(-32015, message);
  }
}

// What surfpool says of what a transaction did.
function mend(meta) {
  if (!meta?.preBalances) return;
  withoutClosed(meta);
  // What is gone is the fee; where a balance is too great for a number of JavaScript's, it stays as it was told.
  const all = [...meta.preBalances, ...meta.postBalances];
  const sum = (balances) => balances.reduce((sum, lamports) => sum + lamports, 0);
  if (all.every(Number.isSafeInteger)) meta.fee = sum(meta.preBalances) - sum(meta.postBalances);
}

// An account without lamports is gone, and what it held with it.
function withoutClosed(meta) {
  const held = meta?.postTokenBalances;
  if (held) meta.postTokenBalances = held.filter(({ accountIndex }) => meta.postBalances[accountIndex] !== 0);
}
