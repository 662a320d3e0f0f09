// An account that has money and signs when it is told to, as anvil's own accounts do. For the sandbox, which knows no SDK.
//
//   landfall_mint [MINT, DECIMALS]       makes a token at this address: the mint is put there, as `anvil_setCode` puts a
//                                        contract; the payer mints 1,000,000,000,000 base units to itself
//   landfall_pay [TO, AMOUNT, MINT?]     pays SOL, or tokens to the associated account, which is made if it is missing;
//                                        the signature
//
// What is paid is a real transaction of real programs, signed with the payer's key. Nothing is waited for.
import { createPrivateKey, sign } from "node:crypto";
import { base58, key } from "./base58.mjs";

const SYSTEM = "11111111111111111111111111111111";
const TOKEN = "TokenkegQfeZyiNwAJbNbGKPFXCWuBvf9Ss623VQ5DA";
const ATA = "ATokenGPvbdGVxr1b2hvZbsiqW5xWH25efTNsLJA8knL";
const MINTED = 1_000_000_000_000n;
const MINT_LAMPORTS = 1_461_600;
// What stands before an Ed25519 seed in PKCS #8 (RFC 8410).
const PKCS8 = Buffer.from("302e020100300506032b657004220420", "hex");

const writable = (key) => ({ key, writable: true });
const readonly = (key) => ({ key, writable: false });

export class Bank {
  // `node` is surfpool's module, `ask` calls it.
  constructor(node, ask) {
    Object.assign(this, { node, ask, payer: node.payer, decimals: new Map() });
    const seed = Buffer.from(node.payerSecretKey).subarray(0, 32);
    this.secret = createPrivateKey({ key: Buffer.concat([PKCS8, seed]), format: "der", type: "pkcs8" });
  }

  async mint(mint, decimals) {
    const data = Buffer.concat([u32(1), key(this.payer), u64(0n), Buffer.from([decimals, 1]), u32(0), Buffer.alloc(32)]);
    const account = { lamports: MINT_LAMPORTS, owner: TOKEN, data: data.toString("hex"), executable: false };
    await this.ask("surfnet_setAccount", [mint, account]);
    this.decimals.set(mint, decimals);
    const [make, own] = this.associated(this.payer, mint);
    const accounts = [writable(mint), writable(own), readonly(this.payer)];
    return this.send([make, { program: TOKEN, accounts, data: Buffer.concat([Buffer.from([7]), u64(MINTED)]) }]);
  }

  async pay(to, amount, mint) {
    if (mint === undefined) {
      const data = Buffer.concat([u32(2), u64(BigInt(amount))]);
      return this.send([{ program: SYSTEM, accounts: [writable(this.payer), writable(to)], data }]);
    }
    const [, from] = this.associated(this.payer, mint);
    const [make, account] = this.associated(to, mint);
    const accounts = [writable(from), readonly(mint), writable(account), readonly(this.payer)];
    const data = Buffer.concat([Buffer.from([12]), u64(BigInt(amount)), Buffer.from([this.decimals.get(mint)])]);
    return this.send([make, { program: TOKEN, accounts, data }]);
  }

  // What makes the owner's account of a token, unless it is there; and its address.
  associated(owner, mint) {
    const account = this.node.getAta(owner, mint);
    const others = [owner, mint, SYSTEM, TOKEN].map(readonly);
    return [{ program: ATA, accounts: [writable(this.payer), writable(account), ...others], data: Buffer.from([1]) }, account];
  }

  async send(instructions) {
    const { value } = await this.ask("getLatestBlockhash", [{ commitment: "processed" }]);
    const message = compile(this.payer, instructions, value.blockhash);
    const tx = Buffer.concat([Buffer.from([1]), sign(null, message, this.secret), message]);
    return this.ask("sendTransaction", [tx.toString("base64"), { encoding: "base64", preflightCommitment: "processed" }]);
  }
}

// A legacy message with one signer. All of its lists are shorter than 128.
function compile(payer, instructions, blockhash) {
  const named = instructions.flatMap(({ program, accounts }) => [...accounts, readonly(program)]);
  const ofKind = (isWritable) => named.filter((account) => account.writable === isWritable).map((account) => account.key);
  const written = [...new Set([payer, ...ofKind(true)])];
  const read = [...new Set(ofKind(false))].filter((account) => !written.includes(account));
  const keys = [...written, ...read];
  const calls = instructions.map(({ program, accounts, data }) => {
    const places = [keys.indexOf(program), accounts.length, ...accounts.map((account) => keys.indexOf(account.key)), data.length];
    return Buffer.concat([Buffer.from(places), data]);
  });
  const header = Buffer.from([1, 0, read.length, keys.length]);
  return Buffer.concat([header, ...keys.map(key), key(blockhash), Buffer.from([calls.length]), ...calls]);
}

function u32(number) {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32LE(number);
  return bytes;
}

function u64(number) {
  const bytes = Buffer.alloc(8);
  bytes.writeBigUInt64LE(number);
  return bytes;
}
